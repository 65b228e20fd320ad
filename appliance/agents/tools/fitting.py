"""Results of a bounded size: what is too long is cut where the tool allows it, and said to be."""

from collections.abc import Sequence
from typing import Any

from appliance.core.database import db
from appliance.core.errors import PayloadTooLarge
from appliance.core.sentences import Sentence

MOST_BYTES = 256 << 10
TRUNCATED = "truncated"


def size_of(value: Any) -> int:
    """The bytes of its JSON."""
    return len(db.dump_json(value).encode())


def fit(result: dict[str, Any], long: Sequence[str], most: int = MOST_BYTES) -> dict[str, Any]:
    """The result, its `long` members cut in turn until it has at most `most` bytes; PayloadTooLarge when that is not enough.

    `truncated` names the members that were cut.  An array loses its last elements and a text its end, as much as is needed;
    anything else goes altogether.  A page that has a next one is never cut: its cursor points behind what would be lost.
    """
    excess = size_of(result) - most
    if excess > 0 and "next_cursor" in result:
        raise PayloadTooLarge(
            Sentence("this page has more than %(most)s KiB; ask for it again with a smaller limit or fewer fields", most=most >> 10)
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
            "the answer has more than %(most)s KiB; ask for less: a narrower filter, fewer fields or a smaller limit",
            most=most >> 10,
        ))
    return result


def _shortened(result: dict[str, Any], name: str, excess: int) -> dict[str, Any]:
    value = result[name]
    if isinstance(value, list):
        return {**result, name: _first_of(value, excess)}
    if isinstance(value, str):
        return {**result, name: _beginning_of(value, size_of(value) - excess)}
    return {key: each for key, each in result.items() if key != name}


def _first_of(value: list[Any], excess: int) -> list[Any]:
    kept = list(value)
    while kept and excess > 0:
        excess -= size_of(kept.pop()) + 1
    return kept


def _beginning_of(text: str, most: int) -> str:
    """The longest beginning whose JSON has at most `most` bytes, found by halving."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size_of(text[:middle]) <= most else (low, middle - 1)
    return text[:low]
