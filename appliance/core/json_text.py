"""Strict parsing of JSON from requests, with a depth limit."""

import json
import math
import re
from itertools import chain
from typing import Any

from pydantic_core import from_json

from appliance.core.sentences import Sentence

from .errors import InvalidJson, PayloadTooLarge

_LARGE_EXPONENT = re.compile(rb"[eE]\+?0*[1-9]\d\d")
_ALL_DIGITS = bytes(0x30 if 0x30 <= each <= 0x39 else each for each in range(256))
_MANY_DIGITS = b"0" * 200

# A string; an unterminated one extends to the end of the body, because otherwise matching would retry at every quote.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_EMPTY = re.compile(rb"\[\]|\{\}")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SIGNS = (b'":', b" :", b"\t:", b"\n:", b"\r:")
"""A member's colon follows its name or white space."""


def load_json(raw: bytes, max_depth: int) -> Any:
    """Parse JSON text; InvalidJson says where it is invalid, PayloadTooLarge that it is nested too deeply."""
    try:
        data = from_json(raw, allow_inf_nan=False)
    except ValueError as error:  # The parser also raises this at some hundred levels of nesting.
        if raw.count(b"[") + raw.count(b"{") > max_depth and not _fits(raw, max_depth) and _depth(raw) > max_depth:
            raise _too_deep(max_depth) from error
        raise InvalidJson(Sentence("the body is not JSON: %(error)s", error=error)) from error
    members, depth = _measure(data)
    if depth > max_depth:
        raise _too_deep(max_depth)
    _refuse_doubled(raw, members)
    if _LARGE_EXPONENT.search(raw) or _MANY_DIGITS in raw.translate(_ALL_DIGITS):  # True for every number above 1.8e308.
        _refuse_infinite(data)
    return data


def _too_deep(max_depth: int) -> PayloadTooLarge:
    return PayloadTooLarge(Sentence("the JSON is nested deeper than %(max_depth)s levels", max_depth=max_depth))


def refuse_doubled(raw: bytes, data: Any) -> None:
    """Raise InvalidJson when an object in this text has a member twice; `data` is the parsed text, with the last one.

    Other parsers use the first one, so that a policy and the system that acts on the body could see different values.
    """
    _refuse_doubled(raw, _measure(data)[0])


def _refuse_doubled(raw: bytes, members: int) -> None:
    """Raise InvalidJson for a duplicate member.

    There is none if the text has as many colons that can follow a name as it has members; it is parsed again only if it has
    more.
    """
    if b"\0" not in raw and sum(raw.count(sign) for sign in _SIGNS) == members:  # A NUL byte means UTF-16.
        return
    text = raw.decode(json.detect_encoding(raw))
    try:
        json.loads(text, object_pairs_hook=_unique, parse_int=str, parse_float=str)
    except _DoubledMember:
        _name_doubled(json.loads(text, object_pairs_hook=_Members.of, parse_int=str, parse_float=str))


class _DoubledMember(Exception):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _DoubledMember
    return members


def _name_doubled(data: Any) -> None:
    places: list[tuple[str, Any]] = [("", data)]
    while places:
        pointer, value = places.pop()
        if isinstance(value, _Members) and value.doubled is not None:
            at = f"{pointer}/{_escaped(value.doubled)}"
            raise InvalidJson(
                Sentence("the member %(name)s appears twice in one object; send it once", name=repr(value.doubled[:100])),
                pointer=at,
            )
        if isinstance(value, dict):
            places.extend((f"{pointer}/{_escaped(name)}", each) for name, each in value.items())
        elif isinstance(value, list):
            places.extend((f"{pointer}/{index}", each) for index, each in enumerate(value))


class _Members(dict[str, Any]):
    """An object that remembers its first duplicate member."""

    doubled: str | None = None

    @classmethod
    def of(cls, pairs: list[tuple[str, Any]]) -> "_Members":
        members = cls(pairs)
        if len(members) != len(pairs):
            seen = set[str]()
            for name, _ in pairs:
                if name in seen:
                    members.doubled = name
                    break
                seen.add(name)
        return members


def _measure(data: Any) -> tuple[int, int]:
    """The number of members in all objects, and the depth; counted level by level, which is fastest."""
    members = depth = 0
    level = [data] if type(data) is dict or type(data) is list else []
    while level:
        depth += 1
        objects = [each for each in level if type(each) is dict]
        members += sum(map(len, objects))
        lists = (each for each in level if type(each) is list)
        inner = chain.from_iterable(chain(map(dict.values, objects), lists))
        level = [each for each in inner if type(each) is dict or type(each) is list]
    return members, depth


def _escaped(name: str) -> str:
    return name[:200].replace("~", "~0").replace("/", "~1")


def _refuse_infinite(data: Any) -> None:
    """Raise InvalidJson for a number that is too large for a double, which the parser reads as infinity."""
    values = [data]
    while values:
        value = values.pop()
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidJson("the body contains a number above 1.8e308, which is too large; send it as a text")
        if isinstance(value, dict):
            values.extend(value.values())
        elif isinstance(value, list):
            values.extend(value)


def _fits(raw: bytes, max_depth: int) -> bool:
    """Whether the nesting is at most this deep, in a third of the time of `_depth`; False also if that would take longer."""
    brackets = _TEXT.sub(b"", raw).translate(None, _NO_BRACKETS)
    for _ in range(max_depth):
        if not brackets:
            return True
        left = _EMPTY.sub(b"", brackets)
        if len(left) > len(brackets) * 3 // 4:
            return False
        brackets = left
    return not brackets


def _depth(raw: bytes) -> int:
    """The maximum nesting of brackets outside strings."""
    depth = deepest = 0
    inside = escaped = False
    for byte in raw:
        if inside:
            inside = escaped or byte != 0x22
            escaped = byte == 0x5C and not escaped
        elif byte == 0x22:
            inside = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest
