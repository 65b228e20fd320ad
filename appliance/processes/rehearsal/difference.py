"""Compares two JSON values; the result is a list of changes like JSON Patch (RFC 6902), with the old values added."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

MAX_CHANGES = 200


@dataclass(frozen=True)
class Change:
    """One change: `from_` is the recorded value of a remove or replace, `to` the new one of an add or replace."""

    op: Literal["add", "remove", "replace"]
    path: str
    from_: Any = None
    to: Any = None


def list_changes(recorded: Any, replayed: Any, most: int = MAX_CHANGES) -> list[Change]:
    """The changes that turn `recorded` into `replayed`, at most `most` of them; empty when they are the same JSON."""
    return list(islice(_changes(recorded, replayed, ""), most))


def is_same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: 1 equals 1.0 but, unlike in Python, not true."""
    return next(_changes(one, other, ""), None) is None


def _changes(old: Any, new: Any, path: str) -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _changes_of_objects(old, new, path)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _changes_of_lists(old, new, path)
    elif isinstance(old, bool) != isinstance(new, bool) or old != new:
        yield Change("replace", path, old, new)


def _changes_of_objects(old: dict[str, Any], new: dict[str, Any], path: str) -> Iterator[Change]:
    for name, value in old.items():
        at = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name in new:
            yield from _changes(value, new[name], at)
        else:
            yield Change("remove", at, value)
    for name, value in new.items():
        if name not in old:
            yield Change("add", f"{path}/{name.replace('~', '~0').replace('/', '~1')}", to=value)


def _changes_of_lists(old: list[Any], new: list[Any], path: str) -> Iterator[Change]:
    """Compares item by item; surplus items are removed from the end backwards, so that the indexes stay valid."""
    for index, (one, other) in enumerate(zip(old, new, strict=False)):
        yield from _changes(one, other, f"{path}/{index}")
    for index in reversed(range(len(new), len(old))):
        yield Change("remove", f"{path}/{index}", old[index])
    for index in range(len(old), len(new)):
        yield Change("add", f"{path}/{index}", to=new[index])
