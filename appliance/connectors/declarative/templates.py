"""Texts with holes: `{{ input.id }}` is a plain path into what a call knows, `{{ input.limit ?? 100 }}` has a fallback."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from appliance.connectors.contract import ConfigError

_HOLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_ROOT = re.compile(r"[a-z]+")
_STEP = re.compile(r'\.([A-Za-z_@$][A-Za-z0-9_@$-]*)|\[([0-9]{1,6})\]|\["([^"\\]+)"\]')


class Missing(Enum):
    """What a path finds where there is nothing; null is something."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING

Values = Mapping[str, Any]
Escape = Callable[[str], str]


class TemplateInvalid(ValueError):
    """A hole that cannot be read, as a sentence."""


@dataclass(frozen=True)
class Hole:
    """One `{{ … }}`: where the value is found, and what stands for it where there is none."""

    root: str
    steps: tuple[str | int, ...]
    fallback: Any = MISSING

    def __str__(self) -> str:
        return self.root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.steps)

    def find(self, values: Values) -> Any:
        """The value, the fallback, or MISSING."""
        found = follow(values.get(self.root, MISSING), self.steps)
        return self.fallback if found is MISSING else found


@dataclass(frozen=True)
class Template:
    """A text in pieces: what is written out, and holes."""

    parts: tuple[str | Hole, ...]

    @property
    def holes(self) -> Iterator[Hole]:
        return (part for part in self.parts if isinstance(part, Hole))

    def value(self, values: Values) -> Any:
        """The value itself where the text is one hole, otherwise a text; MISSING when a hole of it is."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Hole):
            return self.parts[0].find(values)
        return self.text(values, lambda text: text)

    def text(self, values: Values, escape: Escape) -> str | Missing:
        """The text, each hole's value through `escape`; MISSING when one is missing or null."""
        made = []
        for part in self.parts:
            if isinstance(part, str):
                made.append(part)
                continue
            found = part.find(values)
            if found is MISSING or found is None:
                return MISSING
            made.append(escape(text_of(found, str(part))))
        return "".join(made)


def follow(value: Any, steps: tuple[str | int, ...]) -> Any:
    """What the steps lead to, MISSING where they lead nowhere."""
    for step in steps:
        known = (
            step in value if isinstance(value, Mapping) else isinstance(value, list) and isinstance(step, int) and step < len(value)
        )
        if not known:
            return MISSING
        value = value[step]
    return value


def text_of(value: Any, name: str) -> str:
    """A scalar as it is written in an address, a header or a form; ConfigError for a list or an object."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(f"{name} must be a text, a number or true or false, to stand in the middle of a text.")


def parse_path(text: str) -> tuple[str | int, ...]:
    """The steps of a path such as `data.items[0]["odd name"]`; an empty one leads to the whole."""
    whole = text if text[:1] in ("", "[") else f".{text}"
    if not _is_path(whole):
        raise TemplateInvalid(f'{text[:80]!r} is no path; write members and places like data.items[0]["odd name"]')
    return _steps(whole)


def parse_template(text: str, roots: Collection[str]) -> Template:
    """The text with its holes found; TemplateInvalid for one that is no path from one of `roots`."""
    parts: list[str | Hole] = []
    end = 0
    for found in _HOLE.finditer(text):
        parts += [text[end : found.start()]] if found.start() > end else []
        parts.append(_hole(found[1], roots))
        end = found.end()
    parts += [text[end:]] if end < len(text) or not parts else []
    if any(isinstance(part, str) and ("{{" in part or "}}" in part) for part in parts):
        raise TemplateInvalid("a {{ without its }} (or the other way round)")
    return Template(tuple(parts))


def _hole(text: str, roots: Collection[str]) -> Hole:
    path, mark, written = text.partition("??")
    path = path.strip()
    root = _ROOT.match(path)
    rest = path[root.end() :] if root else ""
    if root is None or not _is_path(rest):
        raise TemplateInvalid(f"{{{{ {path[:80]} }}}} is no path; write for example {{{{ input.id }}}}")
    if root[0] not in roots:
        raise TemplateInvalid(f"{{{{ {path[:80]} }}}}: there is no {root[0]} here; there is {', '.join(sorted(roots))}")
    return Hole(root[0], _steps(rest), _fallback(written) if mark else MISSING)


def _is_path(text: str) -> bool:
    return "".join(found[0] for found in _STEP.finditer(text)) == text


def _steps(text: str) -> tuple[str | int, ...]:
    return tuple(int(place) if place else name or quoted for name, place, quoted in _STEP.findall(text))


def _fallback(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise TemplateInvalid(f"{text.strip()[:80]!r} after ?? is no JSON value; write for example ?? 100") from error


def parse_tree(value: Any, roots: Collection[str]) -> Any:
    """JSON in which every text is a Template."""
    if isinstance(value, str):
        return parse_template(value, roots)
    if isinstance(value, Mapping):
        return {name: parse_tree(inner, roots) for name, inner in value.items()}
    if isinstance(value, list):
        return [parse_tree(inner, roots) for inner in value]
    return value


def fill_tree(tree: Any, values: Values) -> Any:
    """The JSON a tree stands for: a member or a place whose value is missing is left out."""
    if isinstance(tree, Template):
        return tree.value(values)
    if isinstance(tree, Mapping):
        filled = {name: fill_tree(inner, values) for name, inner in tree.items()}
        return {name: value for name, value in filled.items() if value is not MISSING}
    if isinstance(tree, list):
        return [value for value in (fill_tree(inner, values) for inner in tree) if value is not MISSING]
    return tree


def holes_in(tree: Any) -> Iterator[Hole]:
    """Every hole of a tree."""
    if isinstance(tree, Template):
        yield from tree.holes
    elif isinstance(tree, Mapping):
        for inner in tree.values():
            yield from holes_in(inner)
    elif isinstance(tree, list):
        for inner in tree:
            yield from holes_in(inner)
