"""Text templates: `{{ input.id }}` is a path into the values of a call, `{{ input.limit ?? 100 }}` has a fallback."""

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
    """The result of a path that leads nowhere, as distinct from null."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING

Values = Mapping[str, Any]
Escape = Callable[[str], str]


class TemplateInvalid(ValueError):
    """A placeholder that cannot be parsed; the message is a sentence."""


@dataclass(frozen=True)
class Placeholder:
    """One placeholder `{{ … }}`: the path to its value, and the fallback when there is none."""

    root: str
    steps: tuple[str | int, ...]
    fallback: Any = MISSING

    def __str__(self) -> str:
        return self.root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.steps)

    def find(self, values: Values) -> Any:
        """Return the value, the fallback, or MISSING."""
        value = follow(values.get(self.root, MISSING), self.steps)
        return self.fallback if value is MISSING else value


@dataclass(frozen=True)
class Template:
    """A parsed text: literal parts and placeholders."""

    parts: tuple[str | Placeholder, ...]

    @property
    def holes(self) -> Iterator[Placeholder]:
        return (part for part in self.parts if isinstance(part, Placeholder))

    def value(self, values: Values) -> Any:
        """Return the value itself when the text is a single placeholder, otherwise a string; MISSING when a value is missing."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Placeholder):
            return self.parts[0].find(values)
        return self.text(values, lambda text: text)

    def text(self, values: Values, escape: Escape) -> str | Missing:
        """Return the text with each value passed through `escape`; MISSING when a value is missing or null."""
        pieces = []
        for part in self.parts:
            if isinstance(part, str):
                pieces.append(part)
                continue
            value = part.find(values)
            if value is MISSING or value is None:
                return MISSING
            pieces.append(escape(text_of(value, str(part))))
        return "".join(pieces)


def follow(value: Any, steps: tuple[str | int, ...]) -> Any:
    """Return the value at a path, MISSING when there is none."""
    for step in steps:
        exists = (
            step in value if isinstance(value, Mapping) else isinstance(value, list) and isinstance(step, int) and step < len(value)
        )
        if not exists:
            return MISSING
        value = value[step]
    return value


def text_of(value: Any, name: str) -> str:
    """Format a scalar for a URL, a header or a form; ConfigError for a list or an object."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(f"{name} must be a text, a number or true or false, to stand in the middle of a text.")


def parse_path(text: str) -> tuple[str | int, ...]:
    """Parse a path such as `data.items[0]["odd name"]` into steps; the empty path is the whole value."""
    whole = text if text[:1] in ("", "[") else f".{text}"
    if not _is_path(whole):
        raise TemplateInvalid(f'{text[:80]!r} is no path; write members and places like data.items[0]["odd name"]')
    return _steps(whole)


def parse_template(text: str, roots: Collection[str]) -> Template:
    """Parse a template; TemplateInvalid for a placeholder that is not a path starting at one of `roots`."""
    parts: list[str | Placeholder] = []
    end = 0
    for match in _HOLE.finditer(text):
        parts += [text[end : match.start()]] if match.start() > end else []
        parts.append(_placeholder(match[1], roots))
        end = match.end()
    parts += [text[end:]] if end < len(text) or not parts else []
    if any(isinstance(part, str) and ("{{" in part or "}}" in part) for part in parts):
        raise TemplateInvalid("a {{ without its }} (or the other way round)")
    return Template(tuple(parts))


def _placeholder(text: str, roots: Collection[str]) -> Placeholder:
    path, mark, written = text.partition("??")
    path = path.strip()
    root = _ROOT.match(path)
    rest = path[root.end() :] if root else ""
    if root is None or not _is_path(rest):
        raise TemplateInvalid(f"{{{{ {path[:80]} }}}} is no path; write for example {{{{ input.id }}}}")
    if root[0] not in roots:
        raise TemplateInvalid(f"{{{{ {path[:80]} }}}}: there is no {root[0]} here; there is {', '.join(sorted(roots))}")
    return Placeholder(root[0], _steps(rest), _fallback(written) if mark else MISSING)


def _is_path(text: str) -> bool:
    return "".join(match[0] for match in _STEP.finditer(text)) == text


def _steps(text: str) -> tuple[str | int, ...]:
    return tuple(int(place) if place else name or quoted for name, place, quoted in _STEP.findall(text))


def _fallback(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise TemplateInvalid(f"{text.strip()[:80]!r} after ?? is no JSON value; write for example ?? 100") from error


def parse_tree(value: Any, roots: Collection[str]) -> Any:
    """Return JSON with every string replaced by a Template."""
    if isinstance(value, str):
        return parse_template(value, roots)
    if isinstance(value, Mapping):
        return {name: parse_tree(inner, roots) for name, inner in value.items()}
    if isinstance(value, list):
        return [parse_tree(inner, roots) for inner in value]
    return value


def fill_tree(tree: Any, values: Values) -> Any:
    """Fill a tree of templates; members and items whose value is missing are omitted."""
    if isinstance(tree, Template):
        return tree.value(values)
    if isinstance(tree, Mapping):
        filled = {name: fill_tree(inner, values) for name, inner in tree.items()}
        return {name: value for name, value in filled.items() if value is not MISSING}
    if isinstance(tree, list):
        return [value for value in (fill_tree(inner, values) for inner in tree) if value is not MISSING]
    return tree


def placeholders_in(tree: Any) -> Iterator[Placeholder]:
    """Yield every placeholder of a tree."""
    if isinstance(tree, Template):
        yield from tree.holes
    elif isinstance(tree, Mapping):
        for inner in tree.values():
            yield from placeholders_in(inner)
    elif isinstance(tree, list):
        for inner in tree:
            yield from placeholders_in(inner)
