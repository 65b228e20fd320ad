"""The request of an operation in its worker process, and the writer for its records."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BufferedReader, BufferedWriter
from typing import Any


@dataclass
class Records:
    """Writes records as lines of JSON (NDJSON)."""

    output: BufferedWriter
    count: int = 0

    def add(self, record: Any) -> None:
        self.output.write(json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n")
        self.count += 1


@dataclass(frozen=True)
class Limits:
    """Limits that the operation itself enforces: members of an archive, and bytes it unpacks or writes."""

    files: int = 10_000
    bytes: int = 500 << 20


@dataclass(frozen=True)
class Request:
    """One operation: its options as JSON, the contents it reads and the file it writes."""

    options: Mapping[str, Any]
    inputs: list[BufferedReader]
    output: BufferedWriter
    limits: Limits = field(default_factory=Limits)

    @property
    def content(self) -> BufferedReader:
        return self.inputs[0]

    def option(self, name: str, default: Any) -> Any:
        """The option, or the default if it is absent or null."""
        value = self.options.get(name)
        return default if value is None else value
