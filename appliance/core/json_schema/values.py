"""Estimates the work to validate a value: an upper bound, computed in a fraction of that work."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from pydantic_core import to_json

from .costs import Costs

# The minimum size of a member of an array or object as JSON, including its comma or brackets.
BYTES_A_VALUE = 2
# This many characters of a string are about as much work as one value.
_CHARACTERS = 5
# No real input is nested deeper; JSON serializers stop at a few hundred levels.
MOST_DEPTH = 1_000
# Native stack: nesting depth of the value times the chain of subschemas.  The library needs about 400 bytes for each, and a
# thread's stack has 8 MiB; measured, 20,000 are too many.
MOST_NESTED = 4_000
# The number of values counted one by one before giving up.
_MOST_VISITED = 50_000


@dataclass(frozen=True)
class Work:
    """Upper bounds of `checks` and `errors`; `is_shallow`: the check fits the native stack of any thread."""

    checks: float
    errors: float
    is_shallow: bool = True


TOO_MUCH = Work(inf, inf, is_shallow=False)


def as_json(value: Any) -> bytes | None:
    """The value as JSON; None if it is nested too deeply or contains something JSON cannot represent."""
    try:
        return to_json(value)
    except (ValueError, RecursionError):
        return None


def quick_work(size: int, costs: Costs) -> Work:
    """The work, estimated only from the size of the value as JSON."""
    count = size / BYTES_A_VALUE
    factor = count if costs.multiplies else 1
    return Work(costs.most_checks * count * factor, costs.most_errors * count, not costs.is_recursive)


def exact_work(value: Any, costs: Costs) -> Work:
    """The work, from the number of values at each depth; TOO_MUCH for a value too large to count."""
    level: list[Any] = [value]
    checks = errors = 0.0
    visited, depth, widest = 0, 0, 1
    deepest = len(costs.checks) if not costs.is_recursive else MOST_DEPTH
    while level and depth <= deepest:
        visited += len(level)
        if visited > _MOST_VISITED:
            return TOO_MUCH
        count, following = _look_at(level)
        checks += count * costs.checks[min(depth, len(costs.checks) - 1)] if level else 0
        errors += len(level) * costs.errors[min(depth, len(costs.errors) - 1)]
        widest = max(widest, len(following))
        level, depth = following, depth + 1
    is_shallow = (depth + 1) * (costs.height + 1) <= MOST_NESTED and not (level and costs.is_recursive)
    return Work(checks * (widest if costs.multiplies else 1), errors, is_shallow)


def _look_at(level: Iterable[Any]) -> tuple[float, list[Any]]:
    """The number of values, counting five characters of a string as one more, and the members of all of them."""
    count: float = 0
    following: list[Any] = []
    for value in level:
        count += 1
        if isinstance(value, str):
            count += len(value) / _CHARACTERS
        elif isinstance(value, Mapping):
            following += value.values()
            count += sum(map(len, map(str, value))) / _CHARACTERS
        elif isinstance(value, list | tuple):
            following += value
    return count, following
