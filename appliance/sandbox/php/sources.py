"""The files of a PHP program: as PHP finds them on its disk, and as they go over the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from appliance.sandbox.outcome import Failure, Position
from appliance.sandbox.php.files import ROOT

SUFFIX = ".php"
_OPENED = re.compile(r"<\?(?:php|=)", re.IGNORECASE)
_BYTE_ORDER_MARK = "\ufeff"
NO_FUNCTION = "the file must return a function: return function (array $input, $api) { … };"


@dataclass(frozen=True)
class PhpSources:
    """Texts by path in the process's folder; `entry` is the file that returns the step's function."""

    entry: str
    texts: Mapping[str, bytes]

    @cached_property
    def files(self) -> dict[str, bytes]:
        return {ROOT + path: text for path, text in self.texts.items()}

    @property
    def size(self) -> int:
        """Bytes it takes, roughly."""
        return sum(map(len, self.texts.values()))

    @property
    def scripts(self) -> dict[str, bytes]:
        return {path: text for path, text in self.texts.items() if path.endswith(SUFFIX) or path == self.entry}

    @classmethod
    def of(cls, entry: str, files: Mapping[str, str]) -> PhpSources:
        """What was written, with `<?php` before an entry that leaves it out, on its first line: lines keep their numbers."""
        texts = {path: text.removeprefix(_BYTE_ORDER_MARK) for path, text in files.items()}
        if not _OPENED.search(texts[entry]):
            texts[entry] = "<?php " + texts[entry]
        return cls(entry, {path: text.encode("utf-8", "replace") for path, text in texts.items()})

    def missing_function(self) -> Failure | None:
        """What can be told of the entry without running it: that it never returns anything."""
        if b"return" in self.texts[self.entry].lower():
            return None
        position = Position(self.entry, 1, 1)
        return Failure("validation", "SyntaxError", NO_FUNCTION, f"    at {self.entry}:1", "syntax_error", position=position)

    def to_wire(self) -> tuple[dict[str, Any], list[bytes]]:
        return {"entry": self.entry, "names": list(self.texts)}, list(self.texts.values())

    @classmethod
    def from_wire(cls, header: dict[str, Any], parts: list[bytes]) -> PhpSources:
        return cls(header["entry"], dict(zip(header["names"], parts, strict=True)))
