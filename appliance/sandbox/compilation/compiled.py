"""The appliance's cache of compiled programs, by namespace and content, ready to be sent to any sandbox process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from appliance.sandbox.outcome import Failure
from appliance.sandbox.wire import Header

LIMIT_BYTES = 64 << 20


@dataclass(frozen=True)
class Compiled:
    """A program compiled by a sandbox process, or its failures."""

    failures: list[Failure]
    artefact: Header = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The approximate size in bytes, including the source text stored with the bytecode."""
        return sum(map(len, self.parts)) * 3 + 1000


class CompiledPrograms:
    """A cache with a total size limit that evicts the least recently used program. Thread-safe."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._programs: OrderedDict[str, Compiled] = OrderedDict()
        self._bytes = 0

    def get(self, key: str) -> Compiled | None:
        with self._lock:
            program = self._programs.get(key)
            if program is not None:
                self._programs.move_to_end(key)
            return program

    def put(self, key: str, compiled: Compiled) -> None:
        with self._lock:
            replaced = self._programs.pop(key, None)
            self._bytes += compiled.size - (replaced.size if replaced else 0)
            self._programs[key] = compiled
            while self._bytes > self._limit and len(self._programs) > 1:
                self._bytes -= self._programs.popitem(last=False)[1].size
