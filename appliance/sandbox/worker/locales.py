"""The code and the data of `Intl`, held by a sandbox process and handed to a step piece by piece when it first asks."""

from __future__ import annotations

import io
import threading
import zipfile
from pathlib import Path

SOURCE, BYTECODE = "intl.js", "intl.bytecode"


class Locales:
    """The packed archive in memory: later no file can be opened. Thread-safe.

    `compiled`: whether the instances that ask run the engine that compiled it; those of a former template get the text.
    """

    def __init__(self, path: Path, *, compiled: bool = True) -> None:
        self._archive = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
        self._names = frozenset(self._archive.namelist())
        self._lock = threading.Lock()
        self.compiled = compiled
        self.code = self._archive.read(BYTECODE if compiled else SOURCE)

    def find(self, name: str) -> bytes | None:
        """The data by this name, JSON or JavaScript; None where there is none."""
        if name not in self._names:
            return None
        with self._lock:
            return self._archive.read(name)
