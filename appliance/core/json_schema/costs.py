"""Estimates the cost of a JSON Schema: an upper bound of the work per value, by the value's depth in the validated document.

The unit is one keyword checked against one value, about 10 ns.  A subschema costs its own keywords plus those of everything it
applies to the same value (references, allOf, anyOf, …): a graph of references is counted as if it were written out, each
node once.  One level deeper, it costs what it applies to the members there.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

from .graph import UNEVALUATED, Graph, Node, TooLarge, order_of

# A subschema counts once for each path on which a value reaches it.  Real schemas stay below a thousand.
MOST_UNFOLDED = 100_000
# Chains of references for the same value use the thread's native stack.
MOST_HEIGHT = 500
# The number of levels computed: a schema that contains itself in several places grows with each.
_LEVELS = 24
_FORMAT, _HASHED, _COMPARED, _COMPARED_PART = 10, 4, 15, 10
# The maximum cost of comparing a value with an `enum`: about 2,800 objects of one member.  More belongs into a table.
MOST_COMPARED = 100_000
# An error contains the text of its keyword; this many bytes of it count as one more error.
_ERROR_BYTES = 200

Weigh = Callable[[Node], float]


@dataclass(frozen=True)
class Costs:
    """For a value at each depth: the `checks` to decide whether it is valid, and the `errors` built if it is not.

    The last figure applies to everything deeper.  `height`: the longest chain of subschemas applied to one value.
    `is_recursive`: the schema applies to values of any depth.  `multiplies`: the work is repeated for each member of an object.
    """

    checks: tuple[float, ...]
    errors: tuple[float, ...]
    height: int
    is_recursive: bool
    multiplies: bool

    @cached_property
    def most_checks(self) -> float:
        return max(self.checks)

    @cached_property
    def most_errors(self) -> float:
        return max(self.errors)


UNKNOWN = Costs((inf,), (inf,), MOST_HEIGHT, is_recursive=True, multiplies=True)


def estimate(graph: Graph, patterns: Mapping[str, int]) -> Costs:
    """The costs of a schema; UNKNOWN if a reference cannot be followed or refers back without descending into the value.

    TooLarge if the schema is too large once all references are written out.
    """
    _refuse_long_enums(graph.nodes)
    ordered = order_of(graph.nodes)
    if ordered is None:
        return UNKNOWN
    height = _refuse_unfolded(ordered)
    if not graph.is_whole:
        return UNKNOWN
    checks, is_recursive = _by_depth(ordered, lambda node: _checks_of(node, patterns), lambda node: _member_checks(node, patterns))
    errors, _ = _by_depth(ordered, _errors_of, _member_errors)
    if any(node.schema.get("uniqueItems") is True for node in ordered):
        hashed, _ = _by_depth(ordered, lambda node: _HASHED * (node.schema.get("uniqueItems") is True), lambda _: 0)
        # A list is hashed as a whole, including everything nested in it.
        below = list(itertools.accumulate(hashed))
        pairs = itertools.zip_longest(checks, below)
        checks = [(checks[-1] if one is None else one) + (below[-1] if other is None else other) for one, other in pairs]
    multiplies = any(_is_unevaluated(node) and node.same for node in ordered)
    return Costs(tuple(checks), tuple(errors), height, is_recursive, multiplies)


def _refuse_long_enums(nodes: Iterable[Node]) -> None:
    for node in nodes:
        if _enum_cost(node.schema.get("enum")) > MOST_COMPARED:
            raise TooLarge(
                f"the enum at {node.pointer} has too many objects, lists or values of mixed types, and every value is "
                "compared with each of them; use only strings or only numbers, or look the value up in a collection"
            )


def _refuse_unfolded(ordered: list[Node]) -> int:
    """The greatest height; TooLarge if too many subschemas, or too long a chain of them, apply to one value."""
    unfolded, heights = [0] * len(ordered), [0] * len(ordered)
    for node in ordered:
        unfolded[node.number] = 1 + sum(unfolded[each.number] for each in node.same)
        heights[node.number] = 1 + max((heights[each.number] for each in node.same), default=0)
        if unfolded[node.number] > MOST_UNFOLDED:
            raise TooLarge(
                f"with its references written out, the part at {node.pointer} applies more than {MOST_UNFOLDED:,} subschemas to "
                "one value; refer to the same definition from fewer alternatives (anyOf, oneOf, allOf)"
            )
        if heights[node.number] > MOST_HEIGHT:
            raise TooLarge(
                f"at {node.pointer}, more than {MOST_HEIGHT} references and combinations are chained for one value; "
                "write the definitions out"
            )
    return max(heights)


def _by_depth(ordered: list[Node], own: Weigh, of_member: Weigh) -> tuple[list[float], bool]:
    """The weight of the root at each depth, and whether it is unbounded."""
    below = [0.0] * len(ordered)
    levels: list[float] = []
    inner = [
        (node.number, _numbers(node.same), _numbers(node.either), _numbers(node.each), 3 if _is_unevaluated(node) else 1)
        for node in ordered
        if node.same or node.either or node.each
    ]
    for level in range(_LEVELS):
        now = [0.0] * len(ordered)
        if level < 2:
            for node in ordered:
                now[node.number] = own(node) if level == 0 else of_member(node)
        for number, same, either, each, factor in inner:
            total = now[number]
            for other in same:
                total += now[other]
            if level:
                for other in each:
                    total += below[other]
                if either:
                    total += max([below[other] for other in either])
            now[number] = total * factor
        levels.append(now[0])
        if level > 1 and now == below:
            return levels, now[0] > 0
        below = now
    return [*levels, inf], True


def _numbers(nodes: list[Node]) -> list[int]:
    return [node.number for node in nodes]


def _is_unevaluated(node: Node) -> bool:
    """Whether the library repeats the node's checks to find out which members were evaluated."""
    return any(name in node.schema for name in UNEVALUATED)


def _checks_of(node: Node, patterns: Mapping[str, int]) -> float:
    schema = node.schema
    cost: float = 1 + len(schema)
    for name in ("properties", "required", "patternProperties", "prefixItems"):
        cost += _size(schema.get(name))
    if isinstance(dependent := schema.get("dependentRequired"), dict):
        cost += sum(1 + _size(names) for names in dependent.values())
    if isinstance(pattern := schema.get("pattern"), str):
        cost += patterns.get(pattern, 0)
    if "format" in schema:
        cost += _FORMAT
    return cost + _enum_cost(schema.get("enum")) + _enum_cost([schema["const"]] if "const" in schema else None)


def _enum_cost(values: Any) -> float:
    """The cost of an `enum`: only strings or only numbers are looked up, anything else is compared one by one."""
    if not isinstance(values, list | tuple):
        return 0
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1 and not kinds & {dict, list}:
        return 2
    return _COMPARED * len(values) + _COMPARED_PART * sum(_parts(value) for value in values if isinstance(value, dict | list))


def _parts(value: Any) -> int:
    count, pending = 0, [value]
    while pending:
        part = pending.pop()
        count += 1
        pending += part.values() if isinstance(part, dict) else part if isinstance(part, list | tuple) else ()
    return count


def _member_checks(node: Node, patterns: Mapping[str, int]) -> float:
    """The cost of matching a member's name against every pattern."""
    pattern_properties = node.schema.get("patternProperties")
    return sum(patterns.get(pattern, 0) for pattern in pattern_properties) if isinstance(pattern_properties, dict) else 0


def _errors_of(node: Node) -> float:
    schema = node.schema
    count: float = 1 + len(schema) + _size(schema.get("required"))
    return count + sum(_text_size(schema[name]) for name in ("enum", "const", "pattern") if name in schema) / _ERROR_BYTES


def _member_errors(node: Node) -> float:
    """The errors per member: each unexpected member is an error of its own."""
    return sum(node.schema.get(name) is False for name in ("additionalProperties", *UNEVALUATED)) + ("propertyNames" in node.schema)


def _text_size(value: Any) -> int:
    size, pending = 0, [value]
    while pending:
        part = pending.pop()
        size += len(part) if isinstance(part, str) else 8
        if isinstance(part, dict):
            pending += [*part, *part.values()]
        elif isinstance(part, list | tuple):
            pending += part
    return size


def _size(value: Any) -> int:
    return len(value) if isinstance(value, dict | list | tuple) else 0


__all__ = ["MOST_COMPARED", "MOST_UNFOLDED", "UNKNOWN", "Costs", "TooLarge", "estimate"]
