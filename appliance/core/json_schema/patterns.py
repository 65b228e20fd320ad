"""Estimates the cost of a schema's regular expressions: to compile, and per character they are matched against."""

from collections.abc import Iterable

import jsonschema_rs

# A pattern of a few characters may compile to megabytes (the library refuses more than 10 MiB), which blocks every other
# thread: 60 ms for the largest.  A class such as "a letter of any script" is that large, so a few are allowed.
MOST_PATTERNS, MOST_LARGE_PATTERNS = 200, 10
# Compiled size, and the maximum cost of five characters in units of `costs`; measured 3, 24 and 3,500 ns per character.
_SMALL, _SMALL_COST = jsonschema_rs.RegexOptions(size_limit=1 << 14), 3
_MEDIUM, _MEDIUM_COST = jsonschema_rs.RegexOptions(size_limit=1 << 20), 150
_LARGE_COST = 2_000


class TooManyPatterns(ValueError):
    """A schema has too many patterns, or too many large ones."""


def costs_of(patterns: Iterable[str]) -> dict[str, int]:
    """The cost of each pattern per five characters matched; TooManyPatterns."""
    costs: dict[str, int] = {}
    for pattern in patterns:
        if len(costs) >= MOST_PATTERNS:
            raise TooManyPatterns(f"it has more than {MOST_PATTERNS} patterns; use fewer")
        costs[pattern] = _cost_of(pattern)
        if sum(cost == _LARGE_COST for cost in costs.values()) > MOST_LARGE_PATTERNS:
            raise TooManyPatterns(f"more than {MOST_LARGE_PATTERNS} of its patterns are very large; use fewer repetitions in them")
    return costs


def _cost_of(pattern: str) -> int:
    for limit, cost in ((_SMALL, _SMALL_COST), (_MEDIUM, _MEDIUM_COST)):
        try:
            jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=limit)
        except (jsonschema_rs.ValidationError, ValueError):
            continue
        return cost
    return _LARGE_COST
