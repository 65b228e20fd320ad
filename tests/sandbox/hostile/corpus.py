"""Reads the hostile corpus: one file per language family and class, each a list of scripts with their expected ends."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from appliance.sandbox import Limits, Program

CLASSES = (
    "loops",
    "bombs",
    "regex",
    "recursion",
    "prototypes",  # PHP: magic methods, serialisation, reflection
    "forged_messages",
    "files",
    "network",
    "processes",
    "imports",
    "memory",
    "residue",
    "unicode",
    "getters",
)
LEAST_SCRIPTS, LEAST_IN_FAMILY = 20, 300
FOLDER = Path(__file__).parent
# Small, so that what never ends ends soon; a script that is expected to return gets the time of a loaded machine.
STOPPED_MS, RETURNING_MS, MEMORY_MB = 300, 10_000, 16
_KEYS = {
    *("name", "step", "module", "expression", "files", "empty_files", "language"),
    *("host", "limits", "output", "fails", "message", "logs", "calls"),
}
_WAYS = {"step", "module", "expression"}
_ENTRIES = {"typescript": "steps/hostile.ts", "javascript": "steps/hostile.js", "php": "steps/hostile.php"}
_FRAMES = {
    "typescript": ("export default async function (input: any, api: any) {\n", "\n}\n"),
    "javascript": ("export default async function (input, api) {\n", "\n}\n"),
    "php": ("<?php return function (array $input, $api) {\n", "\n};\n"),
}


class CorpusFault(Exception):
    """The corpus itself is wrong: a class is too small, or a script does not say how it ends."""


@dataclass(frozen=True)
class Script:
    """One attack. `fails` are the allowed pairs of failure class and code; empty when `output` must be given."""

    family: str
    kind: str
    name: str
    program: Program
    limits: Limits
    fails: tuple[tuple[str, str | None], ...] = ()
    output: Any = None
    message: str = ""
    host: str = "echo"
    expression: str = ""
    logs: list[str] | None = None
    calls: list[str] | None = None

    @property
    def id(self) -> str:
        return f"{self.kind}: {self.name}"


def read_family(family: str, classes: tuple[str, ...] = CLASSES) -> list[Script]:
    """All scripts of a family; CorpusFault when a class has fewer than it must or two scripts are the same."""
    scripts = [script for kind in classes for script in read_class(FOLDER / family / f"{kind}.yaml", family)]
    if len(classes) == len(CLASSES) and len(scripts) < LEAST_IN_FAMILY:
        raise CorpusFault(f"{family} has {len(scripts)} scripts, fewer than {LEAST_IN_FAMILY}")
    return scripts


def read_class(path: Path, family: str) -> list[Script]:
    entries = yaml.safe_load(path.read_text("utf-8"))
    scripts = [_read_script(entry, family, path.stem) for entry in entries]
    names, texts = {each.name for each in scripts}, {each.expression or each.program.digest for each in scripts}
    if len(names) < len(scripts) or len(texts) < len(scripts):
        raise CorpusFault(f"{path.name} has the same script twice")
    if len(scripts) < LEAST_SCRIPTS:
        raise CorpusFault(f"{path.name} has {len(scripts)} scripts, fewer than {LEAST_SCRIPTS}")
    return scripts


def _read_script(entry: dict[str, Any], family: str, kind: str) -> Script:
    unknown, ways = entry.keys() - _KEYS, _WAYS & entry.keys()
    if unknown or len(ways) != 1 or ("fails" in entry) == ("output" in entry):
        raise CorpusFault(f"{kind}: {entry.get('name')}: {unknown or 'one of step, module, expression; one of fails, output'}")
    fails = tuple(_pair(each) for each in _listed(entry.get("fails", [])))
    wall = STOPPED_MS if any(each[0] == "timeout" for each in fails) else RETURNING_MS
    limits = {"wall_ms": wall, "cpu_ms": wall, "memory_mb": MEMORY_MB} | entry.get("limits", {})
    return Script(
        family,
        kind,
        entry["name"],
        _program(entry, "php" if family == "php" else entry.get("language", "typescript")),
        Limits(**limits),
        fails,
        entry.get("output"),
        entry.get("message", ""),
        entry.get("host", "echo"),
        entry.get("expression", ""),
        entry.get("logs"),
        entry.get("calls"),
    )


def _program(entry: dict[str, Any], language: Any) -> Program:
    head, tail = _FRAMES[language] if "step" in entry else ("", "")
    text = head + _assembled(entry.get("step", entry.get("module", ""))) + tail
    files = {path: _assembled(each) for path, each in entry.get("files", {}).items()}
    files |= {f"empty/{number}.ts": "" for number in range(entry.get("empty_files", 0))}
    name = _ENTRIES[language]
    return Program(language, name, {name: text, **files}, "ten_hostile")


def _assembled(text: Any) -> str:
    """A text; or, for what is too large to be written down, a list of texts and of pairs (text, how often)."""
    if isinstance(text, str):
        return text
    return "".join(each if isinstance(each, str) else each[0] * each[1] for each in text)


def _pair(text: str) -> tuple[str, str | None]:
    """`class code`, or `class` alone for a failure without a code."""
    kind, _, code = text.partition(" ")
    return kind, code or None


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]
