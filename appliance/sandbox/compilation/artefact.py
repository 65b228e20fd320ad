"""A compiled program: its modules in load order, and the mapping of positions back to the author's source."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from appliance.sandbox.compilation.sourcemap import SourceMap
from appliance.sandbox.outcome import Position

if TYPE_CHECKING:
    from appliance.sandbox.worker.vm import VM

_EXTENSIONS = (".ts", ".js", ".mts", ".mjs", ".json")
# The lookbehind restricts matches to the start of a word, as the search would otherwise be quadratic in a word's length.
_FRAME = re.compile(r"(?<![^\s()])([^\s()]+):(\d{1,9}):(\d{1,9})(?!\d)")


def resolve(names: Iterable[str], importer: str, specifier: str) -> str:
    """The file that a relative import refers to; the normalised path itself if there is no such file."""
    if not specifier.startswith(("./", "../")):
        return specifier
    path = posixpath.normpath(posixpath.join(posixpath.dirname(importer), specifier))
    stem, extension = posixpath.splitext(path)
    candidates = [path, *(path + each for each in _EXTENSIONS)]
    if extension in (".js", ".mjs"):  # as in TypeScript, import "./x.js" may refer to x.ts
        candidates += [stem + ".ts", stem + ".mts"]
    existing = set(names)
    return next((each for each in candidates if each in existing), path)


@dataclass
class Module:
    """One compiled file: `bytecode` (or `source`, which runs instead if imports are circular) and its source map."""

    name: str
    source: str
    bytecode: bytes = b""
    map: SourceMap | None = None
    map_text: str | None = None


@dataclass
class Artefact:
    """Modules by name, dependencies before dependents; the last one is the entry."""

    modules: dict[str, Module] = field(default_factory=dict)
    entry: str = ""
    circular: bool = False

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        return sum(len(each.source) + len(each.bytecode) + len(each.map_text or "") for each in self.modules.values())

    def load_into(self, vm: VM) -> int:
        """Evaluate all modules; returns the handle of the promise of the entry's namespace."""
        if self.circular:
            return vm.load_source(self.modules[self.entry].source.encode("utf-8", "replace"), self.entry)
        promise = 0
        for module in self.modules.values():
            promise = vm.load(module.bytecode)
        return promise

    def source(self, name: str) -> str | None:
        module = self.modules.get(name)
        return None if module is None else module.source

    def resolve(self, importer: str, specifier: str) -> str:
        return resolve(self.modules, importer, specifier)

    def locate(self, stack: str) -> tuple[str, Position | None]:
        """Map a stack trace to the author's positions; returns the text and the first position."""
        first: list[Position] = []

        def place(match: re.Match[str]) -> str:
            module = self.modules.get(match[1])
            if module is None:
                return match[0]
            line, column = int(match[2]), int(match[3])
            if module.map is not None:
                line, column = module.map.original(line, column) or (line, column)
            first.append(Position(module.name, line, column))
            return f"{module.name}:{line}:{column}"

        text = _FRAME.sub(place, stack)
        return text, first[0] if first else None

    def to_wire(self) -> tuple[dict[str, Any], list[bytes]]:
        modules = list(self.modules.values())
        header = {
            "entry": self.entry,
            "circular": self.circular,
            "modules": [{"name": each.name, "map": each.map_text, "source": each.source} for each in modules],
        }
        return header, [each.bytecode for each in modules]

    @classmethod
    def from_wire(cls, header: dict[str, Any], parts: list[bytes]) -> Artefact:
        modules = {}
        for each, bytecode in zip(header["modules"], parts, strict=True):
            text = each["map"]
            modules[each["name"]] = Module(each["name"], each["source"], bytecode, SourceMap(text) if text else None, text)
        return cls(modules, header["entry"], header["circular"])
