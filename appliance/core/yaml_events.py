"""Reads valid YAML without anchors and tags from the events of libyaml's parser, in a third of the time that nodes take."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml
from yaml._yaml import CParser

Resolvers = Mapping[str | None, Sequence[tuple[str, Any]]]
"""The tags of plain scalars with their patterns, by the first character of the scalar."""


def read(text: str, resolvers: Resolvers, *, max_nodes: int, max_depth: int) -> tuple[Any, dict[str, int]] | None:
    """The document and its lines as `yaml12.load_with_lines` answers them; None if it is invalid, too large, or not plain.

    What is wrong with it, if anything, has to be found by another reader.
    """
    reader = _Reader(text, resolvers, max_nodes, max_depth)
    try:
        return reader.read()
    except (_NotPlain, yaml.YAMLError):
        return None


class _NotPlain(Exception):
    """The document has something that this reader leaves to another."""


class _Reader:
    def __init__(self, text: str, resolvers: Resolvers, max_nodes: int, max_depth: int) -> None:
        self._text = text
        self._resolvers = resolvers
        self._nodes_left, self._max_depth = max_nodes, max_depth
        self._lines: dict[str, int] = {}
        self._next: Callable[[], Any]

    def read(self) -> tuple[Any, dict[str, int]]:
        self._next = CParser(self._text).get_event
        self._next()  # the start of the stream
        if type(self._next()) is yaml.StreamEndEvent:
            return None, {}
        value = self._read(self._next(), "", 1)
        self._next()  # the end of the document
        if type(self._next()) is not yaml.StreamEndEvent:
            raise _NotPlain
        return value, self._lines

    def _read(self, event: Any, pointer: str, depth: int) -> Any:
        """The value that begins with this event."""
        self._nodes_left -= 1
        if type(event) is yaml.AliasEvent or event.anchor is not None or event.tag is not None:
            raise _NotPlain
        if depth > self._max_depth or self._nodes_left < 0:
            raise _NotPlain
        self._lines[pointer] = event.start_mark.line + 1
        if type(event) is yaml.ScalarEvent:
            return self._resolve(event.value) if event.implicit[0] else event.value
        return (self._read_mapping if type(event) is yaml.MappingStartEvent else self._read_sequence)(pointer, depth + 1)

    def _read_mapping(self, pointer: str, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while type(key := self._next()) is yaml.ScalarEvent:
            name = key.value
            if name in values or key.anchor is not None or key.tag is not None:
                raise _NotPlain
            self._nodes_left -= 1
            mark: Any = key.start_mark
            at = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            values[name] = self._read(self._next(), at, depth)
            self._lines[at] = mark.line + 1
        if type(key) is not yaml.MappingEndEvent:
            raise _NotPlain
        return values

    def _read_sequence(self, pointer: str, depth: int) -> list[Any]:
        values: list[Any] = []
        while type(event := self._next()) is not yaml.SequenceEndEvent:
            values.append(self._read(event, f"{pointer}/{len(values)}", depth))
        return values

    def _resolve(self, text: str) -> Any:
        for tag, pattern in self._resolvers.get(text[:1], ()):
            if pattern.match(text):
                return _CONVERT[tag](text)
        return text


def _to_int(text: str) -> int:
    try:
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    except ValueError as error:  # it has thousands of digits
        raise _NotPlain from error


def _to_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _NotPlain
    return number


_CONVERT: Mapping[str, Callable[[str], Any]] = {
    "tag:yaml.org,2002:bool": lambda text: text.lower() == "true", "tag:yaml.org,2002:null": lambda _text: None,
    "tag:yaml.org,2002:int": _to_int, "tag:yaml.org,2002:float": _to_float,
}  # fmt: skip
