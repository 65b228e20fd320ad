"""What the regular expressions of a schema cost: to compile, and for each character that they are held against."""

from collections.abc import Iterable

import jsonschema_rs

# A pattern of a few characters may stand for megabytes of program (the library refuses more than 10 MiB), and nothing else
# runs while it is compiled: 60 ms for the largest.  Names in any script are that large, so a few may be.
MOST_PATTERNS, MOST_LARGE_PATTERNS = 200, 10
# Bytes of program, and what five characters then cost at most, in units of `costs`; measured 3, 24 and 3,500 ns a character.
_SMALL, _SMALL_COST = jsonschema_rs.RegexOptions(size_limit=1 << 14), 3
_MEDIUM, _MEDIUM_COST = jsonschema_rs.RegexOptions(size_limit=1 << 20), 150
_LARGE_COST = 2_000


class TooManyPatterns(ValueError):
    """There are more patterns, or more large ones, than one schema may have."""


def costs_of(patterns: Iterable[str]) -> dict[str, int]:
    """The cost of each pattern for every five characters it is held against; TooManyPatterns."""
    costs: dict[str, int] = {}
    for pattern in patterns:
        if len(costs) >= MOST_PATTERNS:
            raise TooManyPatterns(f"it has more than {MOST_PATTERNS} patterns; use fewer")
        costs[pattern] = _cost_of(pattern)
        if sum(cost == _LARGE_COST for cost in costs.values()) > MOST_LARGE_PATTERNS:
            raise TooManyPatterns(f"more than {MOST_LARGE_PATTERNS} of its patterns are very large; repeat less in them")
    return costs


def _cost_of(pattern: str) -> int:
    for limit, cost in ((_SMALL, _SMALL_COST), (_MEDIUM, _MEDIUM_COST)):
        try:
            jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=limit)
        except (jsonschema_rs.ValidationError, ValueError):
            continue
        return cost
    return _LARGE_COST
