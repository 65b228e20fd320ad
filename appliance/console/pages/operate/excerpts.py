"""Excerpts of a process's code around the line where it failed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.processes import Process, ProcessVersion

AROUND, LONGEST = 3, 240


@dataclass(frozen=True)
class Excerpt:
    """Numbered lines of a file; `line` is the one that failed.

    With `is_inline` the code is in the definition itself, as the source of `step`, and `file` is empty.
    """

    file: str
    line: int
    column: int | None
    lines: list[tuple[int, str]]
    is_inline: bool
    step: str = field(compare=False)


def excerpt_of(version: Process | ProcessVersion, error: Any, step: str) -> Excerpt | None:
    """The code around the error of `step`; None when the error has no position or the file does not exist."""
    position = error.get("position") if isinstance(error, Mapping) else None
    if not isinstance(position, Mapping) or not isinstance(position.get("line"), int):
        return None
    file, line = str(position.get("file") or ""), position["line"]
    text = version.files.get(file)
    is_inline = text is None
    if text is None:
        text = next(find_sources(version.definition, step), ("", ""))[1]
    lines = text.splitlines()
    if not 1 <= line <= len(lines):
        return None
    first = max(1, line - AROUND)
    excerpt_lines = [(number, _cut(lines[number - 1])) for number in range(first, min(len(lines), line + AROUND) + 1)]
    return Excerpt("" if is_inline else file, line, position.get("column"), excerpt_lines, is_inline, step)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def find_sources(node: Any, step: str, pointer: str = "") -> Iterator[tuple[str, str]]:
    """The JSON pointer and source of the code step with this id, wherever it is nested in the definition."""
    if isinstance(node, Mapping):
        code = node.get("code")
        if node.get("id") == step and isinstance(code, Mapping) and isinstance(code.get("source"), str):
            yield f"{pointer}/code/source", code["source"]
    inner = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    for name, each in inner:
        yield from find_sources(each, step, f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}")
