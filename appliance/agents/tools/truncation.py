"""Keeps tool results within a maximum size by truncating the members that the tool allows."""

from collections.abc import Sequence
from typing import Any

from appliance.core.database import db
from appliance.core.errors import PayloadTooLarge
from appliance.core.sentences import Sentence

MOST_BYTES = 256 << 10
TRUNCATED = "truncated"


def size_of(value: Any) -> int:
    """The size of the value's JSON in bytes."""
    return len(db.dump_json(value).encode())


def truncate(result: dict[str, Any], long: Sequence[str], most: int = MOST_BYTES) -> dict[str, Any]:
    """Truncate the `long` members in turn until the result has at most `most` bytes; raises PayloadTooLarge if that fails.

    The member `truncated` lists what was cut.  An array loses its last elements and a text its end, as much as needed; any
    other member is removed.  A page with a next one is never truncated, since its cursor points past the lost items.
    """
    excess = size_of(result) - most
    if excess > 0 and "next_cursor" in result:
        raise PayloadTooLarge(
            Sentence("this page is larger than %(most)s KiB; use a smaller limit or fewer fields", most=most >> 10)
        )
    cut: list[str] = []
    for name in long:
        if excess <= 0:
            break
        if result.get(name) is None:
            continue
        cut.append(name)
        result = {**_shortened(result, name, excess + 100), TRUNCATED: cut}
        excess = size_of(result) - most
    if excess > 0:
        raise PayloadTooLarge(Sentence(
            "the result is larger than %(most)s KiB; use a narrower filter, fewer fields or a smaller limit",
            most=most >> 10,
        ))
    return result


def _shortened(result: dict[str, Any], name: str, excess: int) -> dict[str, Any]:
    value = result[name]
    if isinstance(value, list):
        return {**result, name: _first_of(value, excess)}
    if isinstance(value, str):
        return {**result, name: _prefix_of(value, size_of(value) - excess)}
    return {key: each for key, each in result.items() if key != name}


def _first_of(value: list[Any], excess: int) -> list[Any]:
    items = list(value)
    while items and excess > 0:
        excess -= size_of(items.pop()) + 1
    return items


def _prefix_of(text: str, most: int) -> str:
    """The longest prefix whose JSON has at most `most` bytes, found by binary search."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size_of(text[:middle]) <= most else (low, middle - 1)
    return text[:low]
