"""A compiled program: modules in the order they are loaded, and the way back to the positions the author knows."""

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
# The look behind lets a match begin only where a word does: otherwise a long word costs the square of its length.
_FRAME = re.compile(r"(?<![^\s()])([^\s()]+):(\d{1,9}):(\d{1,9})(?!\d)")


def resolve(names: Iterable[str], importer: str, specifier: str) -> str:
    """The file a relative import means; a name that exists nowhere when there is none."""
    if not specifier.startswith(("./", "../")):
        return specifier
    path = posixpath.normpath(posixpath.join(posixpath.dirname(importer), specifier))
    stem, extension = posixpath.splitext(path)
    candidates = [path, *(path + each for each in _EXTENSIONS)]
    if extension in (".js", ".mjs"):  # TypeScript's own habit: import "./x.js" means x.ts
        candidates += [stem + ".ts", stem + ".mts"]
    known = set(names)
    return next((each for each in candidates if each in known), path)


@dataclass
class Module:
    """One file: what runs (`bytecode`, or `source` where imports are circular) and its map."""

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
        """Bytes it takes, roughly."""
        return sum(len(each.source) + len(each.bytecode) + len(each.map_text or "") for each in self.modules.values())

    def load_into(self, vm: VM) -> int:
        """Evaluate all modules; answers the promise of the entry's namespace."""
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
        """A stack in the author's positions, and the first of them."""
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
