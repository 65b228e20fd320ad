"""Versions compiled for execution: parsed definition, input schema and programs, with a cache of the recently used ones."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from appliance.core import yaml12
from appliance.core.json_schema import Schema, SchemaInvalid, compile_schema
from appliance.sandbox import Program

from .definition import Definition, Step, parse_definition

MODULE_SUFFIXES = (".ts", ".js", ".mts", ".mjs")
CODE_SUFFIXES = (*MODULE_SUFFIXES, ".json")
PHP_SUFFIXES = (".php", ".json")
INLINE_SUFFIX = {"typescript": ".ts", "javascript": ".js", "php": ".php"}
MAX_VERSIONS = 256
VersionKey = tuple[str, str, int, str]


@dataclass(frozen=True)
class CompiledVersion:
    """What the runner needs of one version.  `refusal`: why its input schema is unusable; no new execution can start then."""

    definition: Definition
    files: Mapping[str, str]
    input_schema: Schema | None
    programs: Mapping[str, Program]
    decisions: Mapping[str, Any]
    steps: Mapping[str, Step]
    refusal: str = ""


def compile_version(tenant_id: str, data: Any, files: Mapping[str, str]) -> CompiledVersion:
    """Parse and index; DefinitionProblems when the stored definition is not valid."""
    definition = parse_definition(data, files)
    steps = {step.path: step for step in definition.all_steps()}
    programs = {path: build_program(tenant_id, step, files) for path, step in steps.items() if step.kind == "code"}
    decisions = {
        path: load_decision(step, files) for path, step in steps.items() if step.kind == "rule" and "decision" in step.settings
    }
    schema, refusal = None, ""
    try:
        schema = compile_schema(definition.input_schema) if definition.input_schema is not None else None
    except SchemaInvalid as error:  # published by an earlier release without limits: running executions may still finish
        refusal = str(error)
    return CompiledVersion(
        definition=definition, files=files, input_schema=schema, programs=programs, decisions=decisions, steps=steps,
        refusal=refusal,
    )


def build_program(tenant_id: str, step: Step, files: Mapping[str, str]) -> Program:
    """The program of a code step: its file with every module of the process, or its inline source."""
    language, entry = step.settings["language"], step.settings["file"]
    suffixes = PHP_SUFFIXES if language == "php" else CODE_SUFFIXES
    modules = {path: text for path, text in files.items() if path.endswith(suffixes)}
    if entry is None:
        entry = f"steps/{step.id}{INLINE_SUFFIX[language]}"
        modules[entry] = step.settings["source"]
    return Program(language, entry, modules, tenant_id)


def load_decision(step: Step, files: Mapping[str, str]) -> Any:
    """The JSON Decision Model of a rule step, from its file or inline; yaml12.YamlInvalid if it cannot be parsed."""
    decision = step.settings["decision"]
    return yaml12.load(files[decision]) if isinstance(decision, str) else decision


class VersionCache:
    """An LRU cache of compiled versions, by (tenant, process, version, digest)."""

    def __init__(self) -> None:
        self._versions: OrderedDict[VersionKey, CompiledVersion] = OrderedDict()
        self._lock = Lock()

    def get(self, key: VersionKey) -> CompiledVersion | None:
        with self._lock:
            compiled = self._versions.get(key)
            if compiled is not None:
                self._versions.move_to_end(key)
            return compiled

    def put(self, key: VersionKey, compiled: CompiledVersion) -> None:
        with self._lock:
            self._versions[key] = compiled
            while len(self._versions) > MAX_VERSIONS:
                self._versions.popitem(last=False)
