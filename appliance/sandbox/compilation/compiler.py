"""Compiles a program to an artefact inside a sandbox process, or reports failures with file, line and column."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from appliance.sandbox.compilation.artefact import Artefact, Module, resolve
from appliance.sandbox.compilation.sourcemap import SourceMap
from appliance.sandbox.compilation.typescript import Occupied, SyntaxFault, TypeScript
from appliance.sandbox.outcome import Failure, Position
from appliance.sandbox.worker.engine import Engine
from appliance.sandbox.worker.instance import OutOfMemory, Stopped, Trapped
from appliance.sandbox.worker.vm import VM, Thrown

SECONDS = 10.0
NO_DEFAULT_EXPORT = "the step must have a default export that is a function: export default async function (input, api) { … }"
FILES, SOURCE_BYTES = 500, 4 << 20
_DYNAMIC_IMPORT = re.compile(r"\bimport\s*\(\s*[\"'](\.{1,2}/[^\"']+)[\"']")
_NO_EXPORT = re.compile(r"Could not find export '(.+)' in module '(.+)'")
_NO_SOURCES: Mapping[str, str] = MappingProxyType({})
# The name of a module that can never be linked: its imports are linked first, but nothing is executed.
_PROBE, _NEVER = "<probe>", "never"
_PLACE = re.compile(r":(\d+):(\d+)\)?\s*$", re.MULTILINE)


class _Failed(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _Linking:
    """The owner of an instance that compiles: records imports and supplies their sources, or empty modules."""

    def __init__(self, end: float, files: Collection[str], sources: Mapping[str, str] = _NO_SOURCES) -> None:
        self._end, self._files, self._sources = end, files, sources
        self.imports: list[tuple[str, str]] = []

    def on_message(self, message: bytes) -> bytes | None:
        return None

    def read_clock(self) -> int:
        return 0

    def resolve_module(self, importer: str, specifier: str) -> str:
        path = resolve(self._files, importer, specifier)
        self.imports.append((specifier, path))
        return path

    def module_source(self, name: str) -> str | None:
        return self._sources.get(name, "export {}") if name in self._files else None

    def overdue(self) -> str | None:
        return "timeout" if time.monotonic() > self._end else None


class Compiler:
    """Compiles one program: every file reachable from the entry, depth first."""

    def __init__(self, engine: Engine, typescript: TypeScript, program: Mapping[str, Any]) -> None:
        self._engine, self._typescript = engine, typescript
        self._language: str = program["language"]
        self._entry: str = program["entry"]
        self._files: dict[str, str] = program["files"]
        self._modules: dict[str, Module] = {}
        self._open: set[str] = set()
        self._broken: set[str] = set()
        self._imports: dict[str, list[tuple[str, str]]] = {}
        self._circular = False
        # One deadline for all files and stages, because the caller ends the process when it has passed.
        self._end = time.monotonic() + SECONDS
        self._failures: list[Failure] = []

    def compile(self) -> tuple[Artefact | None, list[Failure]]:
        """Compile; returns the artefact, or None and the failures of all files that could be examined."""
        refused = refuse_program(self._entry, self._files)
        if refused:
            return None, refused
        self._visit(self._entry)
        if not self._failures:
            self._link()
        if self._failures:
            return None, self._failures
        return Artefact(self._modules, self._entry, self._circular), []

    def _link(self) -> None:
        """Check that every name imported is exported and that the entry has a default export."""
        root = f'import entry from "{self._entry}"; import {{ {_NEVER} }} from "{_PROBE}"; entry({_NEVER})'
        linking = _Linking(self._end, {*self._files, _PROBE}, {each.name: each.source for each in self._modules.values()})
        try:
            with self._engine.ticker, VM(self._engine, linking) as vm:
                vm.load_source(root.encode("utf-8", "replace"), "<root>")
        except Thrown as thrown:
            missing = _NO_EXPORT.search(str(thrown.fault.get("message", "")))
            if missing is None:
                self._failures.append(_refused("SyntaxError", str(thrown.fault.get("message", "")), "syntax_error"))
            elif missing[2] != _PROBE:
                self._failures.append(self._not_exported(missing[1], missing[2]))
        except (OutOfMemory, Stopped, Trapped):
            self._failures.append(_refused("TooLarge", "the files are too large together to be linked", "program_size"))

    def _not_exported(self, name: str, module: str) -> Failure:
        if (name, module) == ("default", self._entry):
            return _syntax(NO_DEFAULT_EXPORT, Position(module, 1, 1))
        message = f"'{module}' does not export '{name}'"
        for importer, (specifier, path) in ((each, pair) for each, pairs in self._imports.items() for pair in pairs):
            if path == module and name in self._files[importer]:
                return _syntax(message, _find(importer, self._files[importer], specifier), "ImportFailed")
        return _syntax(message, Position(module, 1, 1), "ImportFailed")

    def _visit(self, name: str) -> None:
        if name in self._open:
            self._circular = True
            return
        if name in self._modules or name in self._broken:
            return
        self._open.add(name)
        try:
            module, imports = self._compile_file(name)
        except _Failed as failed:
            self._failures.append(failed.failure)
            self._broken.add(name)
        else:
            for each in imports:
                self._visit(each)
            self._modules[name] = module
        self._open.discard(name)

    def _compile_file(self, name: str) -> tuple[Module, list[str]]:
        module = self._translate(name, self._files[name])
        linking = _Linking(self._end, self._files)
        try:
            with self._engine.ticker, VM(self._engine, linking) as vm:
                module.bytecode = vm.compile(module.source.encode("utf-8", "replace"), name)
        except Thrown as thrown:
            raise _Failed(self._explain(module, thrown.fault, linking)) from None
        except (OutOfMemory, Stopped, Trapped):
            raise _Failed(
                _refused("TooLarge", f"{name} is too large or nested too deeply to compile; split it", "program_size")
            ) from None
        self._imports[name] = linking.imports
        dynamic = [resolve(self._files, name, each) for each in _DYNAMIC_IMPORT.findall(module.source)]
        return module, [path for _, path in linking.imports] + [each for each in dynamic if each in self._files]

    def _translate(self, name: str, text: str) -> Module:
        if name.endswith(".json"):
            try:
                return Module(name, "export default " + json.dumps(json.loads(text)))
            except (ValueError, RecursionError) as fault:
                line, column = getattr(fault, "lineno", 1), getattr(fault, "colno", 1)
                raise _Failed(_syntax(f"{name} is not JSON", Position(name, line, column))) from None
        if not name.endswith((".ts", ".mts")) and (name.endswith((".js", ".mjs")) or self._language != "typescript"):
            return Module(name, text)
        try:
            translation = self._typescript.translate(text, name, self._end)
        except SyntaxFault as fault:
            raise _Failed(_syntax(_first_line(fault.message), Position(name, fault.line, fault.column))) from None
        except Occupied:
            text = "other files take long to compile at this moment; try again later"
            raise _Failed(Failure("system", "SandboxBusy", text, code="sandbox_busy", retryable=True)) from None
        source_map = translation.map
        return Module(name, translation.code, map=SourceMap(source_map) if source_map else None, map_text=source_map)

    def _explain(self, module: Module, fault: dict[str, Any], linking: _Linking) -> Failure:
        message = str(fault.get("message", ""))
        for specifier, path in linking.imports:
            if path not in self._files:
                return _syntax(_import_refused(specifier), _find(module.name, self._files[module.name], specifier), "ImportFailed")
        place = _PLACE.search(str(fault.get("stack") or ""))
        line, column = (int(place[1]), int(place[2])) if place else (1, 1)
        if _line(module.source, line)[column - 1 : column] == "@":
            message = "decorators are not supported; call the function yourself"
        if module.map is not None:
            line, column = module.map.original(line, column) or (line, column)
        return _syntax(message, Position(module.name, line, column))


def refuse_program(entry: str, files: Mapping[str, str]) -> list[Failure]:
    """The failures of a program that is refused before compilation."""
    if entry not in files:
        return [_refused("FileMissing", f"the file '{entry}' does not exist in this process", "file_missing")]
    if len(files) > FILES or sum(map(len, files.values())) > SOURCE_BYTES:
        message = f"the files are more than {FILES} or larger than {SOURCE_BYTES >> 20} MB together"
        return [_refused("TooLarge", message, "program_size")]
    return []


def _refused(name: str, message: str, code: str) -> Failure:
    return Failure("validation", name, message, code=code)


def _syntax(message: str, position: Position, name: str = "SyntaxError") -> Failure:
    where = f"{position.file}:{position.line}:{position.column}"
    return Failure(
        "validation",
        name,
        message,
        f"    at {where}",
        "syntax_error" if name == "SyntaxError" else "import_failed",
        position=position,
    )


def _import_refused(specifier: str) -> str:
    if specifier.startswith("."):
        return f"the imported file '{specifier}' does not exist in this process"
    return f"'{specifier}' cannot be imported: a step has only the files of its own process, no packages"


def _find(name: str, text: str, specifier: str) -> Position:
    """The position of the quoted specifier in the source."""
    for number, line in enumerate(text.splitlines(), 1):
        for quote in ("'", '"'):
            at = line.find(quote + specifier + quote)
            if at >= 0:
                return Position(name, number, at + 1)
    return Position(name, 1, 1)


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1] if 1 <= number <= len(lines) else ""


def _first_line(message: str) -> str:
    """The first line of an swc message; the rest repeats the reason."""
    return message.strip().splitlines()[0].strip() if message.strip() else "the file is not TypeScript"
