"""Turns a program into an artefact inside a sandbox process, or into failures with file, line and column."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any

from appliance.sandbox.artefact import Artefact, Module, resolve
from appliance.sandbox.engine import Engine
from appliance.sandbox.outcome import Failure, Position
from appliance.sandbox.sourcemap import SourceMap
from appliance.sandbox.typescript import SyntaxFault, TypeScript
from appliance.sandbox.vm import VM, OutOfMemory, Stopped, Thrown, Trapped

SECONDS = 10.0
FILES, SOURCE_BYTES = 500, 4 << 20
_DYNAMIC_IMPORT = re.compile(r"\bimport\s*\(\s*[\"'](\.{1,2}/[^\"']+)[\"']")
_PLACE = re.compile(r":(\d+):(\d+)\)?\s*$", re.MULTILINE)


class _Failed(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _Linking:
    """Owner of the instance that compiles one module: notes what it imports, and answers with nothing in it."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = known
        self._end = time.monotonic() + SECONDS
        self.imports: list[tuple[str, str]] = []

    def on_message(self, message: bytes) -> bytes | None:
        return None

    def read_clock(self) -> int:
        return 0

    def resolve_module(self, importer: str, specifier: str) -> str:
        path = resolve(self._known, importer, specifier)
        self.imports.append((specifier, path))
        return path

    def module_source(self, name: str) -> str | None:
        return "export {}" if name in self._known else None

    def overdue(self) -> str | None:
        return "timeout" if time.monotonic() > self._end else None


class Compiler:
    """Compiles one program; every file that the entry reaches, depth first."""

    def __init__(self, engine: Engine, typescript: TypeScript, program: Mapping[str, Any]) -> None:
        self._engine, self._typescript = engine, typescript
        self._language: str = program["language"]
        self._entry: str = program["entry"]
        self._files: dict[str, str] = program["files"]
        self._modules: dict[str, Module] = {}
        self._open: set[str] = set()
        self._circular = False
        self._failures: list[Failure] = []

    def compile(self) -> tuple[Artefact | None, list[Failure]]:
        """The artefact, or every failure of every file that could be looked at."""
        if self._entry not in self._files:
            return None, [
                Failure(
                    "validation",
                    "FileMissing",
                    f"the file '{self._entry}' does not exist in this process",
                    code="file_missing",
                )
            ]
        total = sum(map(len, self._files.values()))
        if len(self._files) > FILES or total > SOURCE_BYTES:
            message = f"the files are more than {FILES} or larger than {SOURCE_BYTES >> 20} MB together"
            return None, [Failure("validation", "TooLarge", message, code="program_size")]
        self._visit(self._entry)
        if self._failures:
            return None, self._failures
        return Artefact(self._modules, self._entry, self._circular), []

    def _visit(self, name: str) -> None:
        if name in self._open:
            self._circular = True
            return
        if name in self._modules:
            return
        self._open.add(name)
        try:
            module, imports = self._compile_file(name)
        except _Failed as failed:
            self._failures.append(failed.failure)
        else:
            for each in imports:
                self._visit(each)
            self._modules[name] = module
        self._open.discard(name)

    def _compile_file(self, name: str) -> tuple[Module, list[str]]:
        module = self._translate(name, self._files[name])
        linking = _Linking(self._files)
        try:
            with self._engine.ticker, VM(self._engine, linking) as vm:
                module.bytecode = vm.compile(module.source.encode("utf-8", "replace"), name)
        except Thrown as thrown:
            raise _Failed(self._explain(module, thrown.fault, linking)) from None
        except (OutOfMemory, Stopped, Trapped):
            raise _Failed(
                Failure(
                    "validation",
                    "TooLarge",
                    f"{name} is too large or nested too deeply to compile; split it",
                    code="program_size",
                )
            ) from None
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
            translation = self._typescript.translate(text, name)
        except SyntaxFault as fault:
            raise _Failed(_syntax(_plainly(fault.message), Position(name, fault.line, fault.column))) from None
        found = translation.map
        return Module(name, translation.code, map=SourceMap(found) if found else None, map_text=found)

    def _explain(self, module: Module, fault: dict[str, Any], linking: _Linking) -> Failure:
        message = str(fault.get("message", ""))
        for specifier, path in linking.imports:
            if path not in self._files:
                return _syntax(_import_refused(specifier), _find(module.name, self._files[module.name], specifier), "ImportFailed")
        position = self._place(module, str(fault.get("stack") or ""))
        if "@" in _line(module.source, position.line)[: position.column]:
            message = "decorators are not supported; call the function yourself"
        return _syntax(message, position)

    def _place(self, module: Module, stack: str) -> Position:
        found = _PLACE.search(stack)
        line, column = (int(found[1]), int(found[2])) if found else (1, 1)
        if module.map is not None:
            line, column = module.map.original(line, column) or (line, column)
        return Position(module.name, line, column)


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
    """Where the quoted specifier stands in the source."""
    for number, line in enumerate(text.splitlines(), 1):
        for quote in ("'", '"'):
            at = line.find(quote + specifier + quote)
            if at >= 0:
                return Position(name, number, at + 1)
    return Position(name, 1, 1)


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1] if 1 <= number <= len(lines) else ""


def _plainly(message: str) -> str:
    """swc repeats the reason after its own heading; the first line says it."""
    return message.strip().splitlines()[0].strip() if message.strip() else "the file is not TypeScript"
