"""A YAML 1.2 parser: `on`, `no` and dates are texts; duplicate keys and alias bombs are rejected."""

import math
import re
from collections.abc import Hashable
from typing import Any

import yaml
from yaml._yaml import CParser
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from appliance.core import yaml_events

MAX_BYTES = 1 << 20
MAX_NODES = 200_000
MAX_ALIASES = 64
MAX_DEPTH = 64


class YamlInvalid(Exception):
    """The text is not valid YAML, or exceeds a limit; `line` and `column` count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.message = message
        self.line = line
        self.column = column


class _Loader(Composer, CParser, SafeConstructor, Resolver):
    """A SafeLoader with the core schema of YAML 1.2 (section 10.3.2), limits, and libyaml's parser, which is ten times as fast."""

    max_aliases = MAX_ALIASES

    def __init__(self, stream: str) -> None:
        CParser.__init__(self, stream)
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)
        self.nodes = 0
        self.aliases = 0
        self.depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()
        if self.check_event(yaml.AliasEvent):
            self.aliases += 1
        self.nodes += 1
        self.depth += 1
        if self.aliases > self.max_aliases or self.nodes > MAX_NODES:
            raise _at(event.start_mark, "the document is too large or uses too many aliases")
        if self.depth > MAX_DEPTH:
            raise _at(event.start_mark, f"the document is nested deeper than {MAX_DEPTH} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _at(key.start_mark, "a key must be a string, not a list or mapping")
            if key.value in keys:
                raise _at(key.start_mark, f"the key {key.value!r} appears twice")
            keys.add(key.value)
        return {
            str(self.construct_object(k, deep=True)) if not isinstance(k.value, str) else k.value: self.construct_object(
                v, deep=deep
            )
            for k, v in node.value
        }


def _at(mark: Any, message: str) -> YamlInvalid:
    return YamlInvalid(message, mark.line + 1, mark.column + 1)


def _construct_map(loader: Any, node: yaml.MappingNode) -> Any:
    data: dict[Hashable, Any] = {}
    yield data
    data.update(loader.construct_mapping(node, deep=True))


_CORE_SCHEMA = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+0123456789."),
)
_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in _CORE_SCHEMA:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


def _construct_int(loader: Any, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node)
    try:
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    except ValueError as error:
        raise _at(node.start_mark, f"{text[:40]!r} is not a number") from error


def _construct_float(loader: Any, node: yaml.ScalarNode) -> float:
    number = float(loader.construct_scalar(node))
    if not math.isfinite(number):
        raise _at(node.start_mark, f"{node.value[:40]!r} is too large for a number; put it in quotes to make it a text")
    return number


def _construct_other(loader: Any, suffix: str, node: yaml.Node) -> Any:
    raise _at(node.start_mark, f"the tag !{suffix} is not allowed")


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
_Loader.add_constructor("tag:yaml.org,2002:map", _construct_map)
for _tag in ("timestamp", "set", "omap", "pairs", "binary"):
    _Loader.yaml_constructors.pop(f"tag:yaml.org,2002:{_tag}", None)
_Loader.add_multi_constructor("!", _construct_other)
_Loader.add_multi_constructor("tag:", _construct_other)


class _TextLoader(_Loader):
    """Loads every scalar as the text in the document, and rejects aliases."""

    max_aliases = 0


_TextLoader.yaml_implicit_resolvers = {}


def load(text: str) -> Any:
    """Parse a text with one document into dicts, lists and scalars; keys are texts.  YamlInvalid."""
    return load_with_lines(text)[0]


def load_texts(text: str) -> tuple[Any, dict[str, int]]:
    """Like `load_with_lines`, but every scalar is the text in the document (`1.10` stays `1.10`), and aliases are rejected."""
    return _load(text, _TextLoader)


def load_with_lines(text: str) -> tuple[Any, dict[str, int]]:
    """The document, and the line (from 1) on which the value at each JSON pointer starts."""
    return _load(text, _Loader)


def find_position(text: str, pointer: str, line: int, column: int) -> tuple[int, int] | None:
    """Map a line and column inside the text at `pointer` to a line and column of the document, all counted from 1.

    For a folded text, the result is its start; None when there is no text at the pointer.  YamlInvalid when the document
    cannot be parsed.
    """
    node = _compose(text)
    for token in pointer.split("/")[1:]:
        node = _child(node, token.replace("~1", "/").replace("~0", "~"))
    if not isinstance(node, yaml.ScalarNode):
        return None
    lines, start = text.splitlines(), node.start_mark
    if node.style == "|":
        return start.line + 1 + line, _first_indent(lines[start.line + 1 :]) - _first_indent(node.value.splitlines()) + column
    if node.style == ">":
        return start.line + 2, _first_indent(lines[start.line + 1 :]) + 1
    if node.style in ('"', "'"):
        return _find_between_quotes(lines, (start.line, start.column), line, column)
    is_whole = line == 1 and lines[start.line][start.column :].startswith(node.value)
    return start.line + 1, start.column + (column if is_whole else 1)


def _first_indent(lines: list[str]) -> int:
    """The number of spaces before the first line that is not blank."""
    first = next((each for each in lines if each.strip()), "")
    return len(first) - len(first.lstrip(" "))


_ESCAPE_LENGTH = {"x": 4, "u": 6, "U": 10}


def _find_between_quotes(lines: list[str], start: tuple[int, int], line: int, column: int) -> tuple[int, int]:
    """The position of a line and column of a quoted text, whose opening quote is at `start` (from 0).

    A line break inside quotes stands for a space, for as many line breaks as there are blank lines, or for nothing after a
    backslash.
    """
    row, at = start
    quote, at = lines[row][at], at + 1
    passed, ahead = 1, column - 1  # The current line of the text, and the characters left before the column on its line.
    while passed < line or (passed == line and ahead > 0):
        rest = lines[row][at:]
        if not rest.strip() or (rest == "\\" and quote == '"'):
            end = row
            row = next(number for number in range(end + 1, len(lines)) if lines[number].strip())
            at, breaks = _first_indent([lines[row]]), row - end - 1
            if breaks and passed + breaks > line:  # The position is on a line that ends here, or behind its end.
                return (end + 1, len(lines[end]) + 1) if passed == line else (end + 2 + line - passed, 1)
            passed += breaks
            ahead -= passed == line and not breaks and rest != "\\"
        elif rest[0] == quote and not (quote == "'" and rest[1:2] == "'"):
            break
        elif rest[:2] == "\\n" and quote == '"':
            if passed == line:
                break
            passed, at = passed + 1, at + 2
        else:
            is_escape = rest[0] == "\\" and quote == '"'
            at += _ESCAPE_LENGTH.get(rest[1], 2) if is_escape else 2 if rest[0] == quote else 1
            ahead -= passed == line
    return row + 1, at + 1


def _compose(text: str) -> yaml.Node | None:
    try:
        loader = _Loader(text)
    except yaml.YAMLError as error:
        raise _from_yaml(error) from error
    try:
        return loader.get_single_node()
    except yaml.YAMLError as error:
        raise _from_yaml(error) from error
    finally:
        loader.dispose()


def _child(node: yaml.Node | None, name: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == name), None)
    if isinstance(node, yaml.SequenceNode) and name.isdecimal() and int(name) < len(node.value):
        child: yaml.Node = node.value[int(name)]
        return child
    return None


def _load(text: str, kind: type[_Loader]) -> tuple[Any, dict[str, int]]:
    if len(text) > MAX_BYTES:
        raise YamlInvalid(f"the document is larger than {MAX_BYTES >> 20} MiB", 1, 1)
    plain = yaml_events.read(text, kind.yaml_implicit_resolvers, max_nodes=MAX_NODES, max_depth=MAX_DEPTH)
    if plain is not None:
        return plain
    try:
        loader = kind(text)
    except yaml.YAMLError as error:
        raise _from_yaml(error) from error
    try:
        node = loader.get_single_node()
        data = None if node is None else loader.construct_document(node)
        lines: dict[str, int] = {}
        if node is not None:
            _record_lines(node, "", lines, 0)
        return data, lines
    except yaml.YAMLError as error:
        raise _from_yaml(error) from error
    except RecursionError as error:
        raise YamlInvalid("an alias in the document refers to a value that contains it", 1, 1) from error
    finally:
        loader.dispose()


def _from_yaml(error: yaml.YAMLError) -> YamlInvalid:
    mark = getattr(error, "problem_mark", None)
    message = getattr(error, "problem", None) or "the text is not YAML"
    if message.startswith("mapping values are not allowed"):
        message += "; put a value that contains a colon and a space in quotes"
    return YamlInvalid(message, mark.line + 1 if mark else 1, mark.column + 1 if mark else 1)


def _record_lines(node: yaml.Node, pointer: str, lines: dict[str, int], depth: int) -> None:
    if len(lines) > MAX_NODES or depth > MAX_DEPTH:
        raise _at(node.start_mark, "the document is too large when its aliases are expanded")
    lines[pointer] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            step = str(key.value).replace("~", "~0").replace("/", "~1")
            _record_lines(value, f"{pointer}/{step}", lines, depth + 1)
            lines[f"{pointer}/{step}"] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _record_lines(value, f"{pointer}/{index}", lines, depth + 1)


def dump(value: Any) -> str:
    """Serialize a value as YAML that `load` reads back identically; words that YAML 1.1 reads as booleans or dates are quoted."""
    text = _dump(value, _Dumper)
    return _write_readably(value, text) if "\\U" in text else text


def _write_readably(value: Any, text: str) -> str:
    """The YAML of a value with emoji, for which `text` has escapes; `text` itself if the other one would be read wrongly."""
    readable = _dump(value, _ReadableDumper)
    try:
        return readable if _dump(load(readable), _Dumper) == text else text
    except YamlInvalid:
        return text


def _dump(value: Any, kind: type[yaml.SafeDumper | yaml.CSafeDumper]) -> str:
    return str(yaml.dump(value, Dumper=kind, sort_keys=False, allow_unicode=True, default_flow_style=False, width=110))


class _NoAliases:
    def ignore_aliases(self, data: Any) -> bool:
        return True


class _Dumper(_NoAliases, yaml.CSafeDumper):
    """Quotes texts by the rules of YAML 1.1 too, for compatibility with older parsers."""


class _ReadableDumper(_NoAliases, yaml.SafeDumper):
    """Writes characters beyond U+FFFF as they are, ten times as slowly; texts with some control characters go wrong."""


for _kind in (_Dumper, _ReadableDumper):
    for _tag, _pattern, _first in _CORE_SCHEMA:
        _kind.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first))
