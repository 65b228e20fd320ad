"""Compiled programs as the appliance keeps them: by namespace and content, ready to be sent to any sandbox process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from appliance.sandbox.outcome import Failure
from appliance.sandbox.wire import Header

LIMIT_BYTES = 64 << 20


@dataclass(frozen=True)
class Compiled:
    """A program as a sandbox process made it; or why it could not."""

    failures: list[Failure]
    artefact: Header = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes it takes, roughly: the text is kept beside the bytecode."""
        return sum(map(len, self.parts)) * 3 + 1000


class CompiledPrograms:
    """The longest unused one goes when they are too large together; thread-safe."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Compiled] = OrderedDict()
        self._bytes = 0

    def get(self, key: str) -> Compiled | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: str, compiled: Compiled) -> None:
        with self._lock:
            replaced = self._kept.pop(key, None)
            self._bytes += compiled.size - (replaced.size if replaced else 0)
            self._kept[key] = compiled
            while self._bytes > self._limit and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1].size
