"""Templates: values that contain expressions, compiled when a definition is parsed and filled in when a step runs.

A text that begins with `=` is an expression, `\\=` stands for a literal `=`, `{{ … }}` inside a longer text is filled in.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core.database.db import dump_json

PLAIN_PATH = re.compile(r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*|\[\d{1,9}\])*", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z_$][\w$]*|\d+", re.ASCII)
_EMBEDDED = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
MAX_EXPRESSION = 10_000
MAX_DEPTH = 64


class TemplateInvalid(Exception):
    """A value contains an invalid expression; `pointer` says where."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(message)
        self.pointer = pointer
        self.message = message


@dataclass(frozen=True)
class Expression:
    """One expression: its text, where it is, and its parts if it is a plain path such as `input.items[0]`."""

    text: str
    pointer: str
    path: tuple[str | int, ...] | None


@dataclass(frozen=True)
class Template:
    """A value and the expressions in it.

    `slots` are the places to fill as (place, parts): keys and indexes, and either one Expression that yields the whole
    value or literal texts and Expressions to be joined.
    """

    pointer: str
    value: Any
    slots: tuple[tuple[tuple[str | int, ...], tuple[str | Expression, ...]], ...]
    expressions: tuple[Expression, ...]
    constant: bool = False

    def fill(self, values: Mapping[Expression, Any]) -> Any:
        """The value with every expression replaced by its result."""
        if self.constant:
            return self.value
        result = _copy(self.value)
        for place, parts in self.slots:
            filled = values[parts[0]] if len(parts) == 1 and isinstance(parts[0], Expression) else _join(parts, values)
            result = _set_at(result, place, filled)
        return result


def compile_template(value: Any, pointer: str) -> Template:
    """Find every expression in `value`; TemplateInvalid if one is empty or too long."""
    slots: list[tuple[tuple[str | int, ...], tuple[str | Expression, ...]]] = []
    plain = _scan(value, (), pointer, slots)
    expressions = tuple(part for _, parts in slots for part in parts if isinstance(part, Expression))
    return Template(pointer, plain, tuple(slots), expressions, constant=not slots)


def _scan(value: Any, place: tuple[str | int, ...], pointer: str, slots: list[Any]) -> Any:
    """`value` without its expressions, which are added to `slots`."""
    if len(place) > MAX_DEPTH:
        raise TemplateInvalid(pointer, f"the value is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {k: _scan(v, (*place, k), f"{pointer}/{_token(k)}", slots) for k, v in value.items()}
    if isinstance(value, list):
        return [_scan(v, (*place, i), f"{pointer}/{i}", slots) for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value
    if value.startswith("\\="):
        value = value[1:]
    elif value.startswith("="):
        slots.append((place, (compile_expression(value[1:], pointer),)))
        return None
    if "{{" in value:
        parts = _parts(value, pointer)
        if any(isinstance(part, Expression) for part in parts):
            slots.append((place, parts))
            return None
    return value


def _parts(text: str, pointer: str) -> tuple[str | Expression, ...]:
    parts: list[str | Expression] = []
    end = 0
    for match in _EMBEDDED.finditer(text):
        parts += [text[end : match.start()], compile_expression(match[1], pointer)]
        end = match.end()
    parts.append(text[end:])
    return tuple(part for part in parts if part != "")


def compile_expression(text: str, pointer: str) -> Expression:
    """The expression of a text without its leading `=`."""
    text = text.strip()
    if not text:
        raise TemplateInvalid(pointer, "the expression is empty; write it after the =")
    if len(text) > MAX_EXPRESSION:
        raise TemplateInvalid(pointer, f"the expression is longer than {MAX_EXPRESSION} characters; move it to a code step")
    path: tuple[str | int, ...] | None = None
    if PLAIN_PATH.fullmatch(text):
        path = tuple(int(part) if part.isdigit() else part for part in _TOKEN.findall(text))
    return Expression(text, pointer, path)


def resolve_path(path: tuple[str | int, ...], names: Mapping[str, Any]) -> tuple[bool, Any]:
    """(True, value) of a plain path; (False, None) if it needs JavaScript (a member of a text, or a missing one)."""
    value: Any = names
    for part in path:
        if isinstance(part, str):
            is_present = isinstance(value, Mapping) and part in value
        else:
            is_present = isinstance(value, list) and part < len(value)
        if not is_present:
            return False, None
        value = value[part]
    return True, value


def _join(parts: tuple[str | Expression, ...], values: Mapping[Expression, Any]) -> str:
    return "".join(part if isinstance(part, str) else _as_text(values[part]) for part in parts)


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return value if isinstance(value, str) else dump_json(value)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _copy(v) for k, v in value.items()}
    return [_copy(v) for v in value] if isinstance(value, list) else value


def _set_at(root: Any, place: tuple[str | int, ...], value: Any) -> Any:
    if not place:
        return value
    target: Any = root
    for part in place[:-1]:
        target = target[part]
    target[place[-1]] = value
    return root


def _token(part: str | int) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")
