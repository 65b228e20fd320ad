"""A condition as a peewee expression that every dialect answers alike."""

import operator as op
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peewee import SQL, NodeList, Select, fn

from appliance.conditions.tree import AllOf, AnyOf, Compare, Condition, Inside, Never, fold, refuse_placeholders, unfold


@dataclass(frozen=True)
class Related:
    """The table a reference leads to: its key and what its fields are stored in."""

    source: Any
    key: Any
    columns: Mapping[str, "Column"]


@dataclass(frozen=True)
class Column:
    """Where a field is stored: a peewee column (or expression); `related` for a reference."""

    node: Any
    related: Callable[[], Related] | None = None


def compile_condition(condition: Condition, columns: Mapping[str, Column]) -> Any:
    """The WHERE expression of a bound condition that was parsed with the fields of these columns."""
    match condition:
        case AllOf(parts):
            return all_of([compile_condition(part, columns) for part in parts])
        case AnyOf(parts):
            return any_of([compile_condition(part, columns) for part in parts])
        case Inside(name, negated, inner):
            return _inside(columns[name], negated, inner)
        case Compare(name, operator, value):
            refuse_placeholders(value)
            return _COMPARISONS[operator](columns[name].node, value)
        case Never():
            return SQL("1 = 0")


def all_of(nodes: Sequence[Any]) -> Any:
    """Every one of the expressions, side by side: SQLite's parser refuses a hundred inside each other."""
    return _joined(nodes, " AND ", "1 = 1")


def any_of(nodes: Sequence[Any]) -> Any:
    """At least one of the expressions, side by side."""
    return _joined(nodes, " OR ", "1 = 0")


def _joined(nodes: Sequence[Any], glue: str, empty: str) -> Any:
    if len(nodes) < 2:
        return nodes[0] if nodes else SQL(empty)
    return NodeList([NodeList((each,), parens=True) for each in nodes], glue=glue, parens=True)


def _inside(column: Column, negated: bool, inner: Condition) -> Any:
    if column.related is None:
        raise TypeError("nothing lies inside this column")
    related = column.related()
    keys = Select([related.source], [related.key]).where(compile_condition(inner, related.columns))
    return column.node.is_null() | column.node.not_in(keys) if negated else column.node.in_(keys)


def _contains(node: Any, value: str) -> Any:
    """Removing the text changes the whole: exact, case-sensitive and without LIKE's dialects."""
    return fn.REPLACE(node, value, "") != node if value else node.is_null(False)


def _icontains(node: Any, value: str) -> Any:
    """ASCII is folded by LOWER; beyond it only the characters that occur in the value matter."""
    needle = fold(value)
    folded = fn.LOWER(node)
    for character in sorted(set(needle)):
        other = None if character.isascii() else unfold(character)
        if other is not None:
            folded = fn.REPLACE(folded, other, character)
    return _contains(folded, needle)


def _starts_with(node: Any, value: str) -> Any:
    """A range of code points, which an index can answer."""
    after = _after_prefix(value)
    reached = node >= value
    return reached & (node < after) if after else reached


def _after_prefix(prefix: str) -> str:
    """The smallest text beyond every text with this prefix; empty when there is none."""
    for end in range(len(prefix), 0, -1):
        last = ord(prefix[end - 1])
        if last < 0x10FFFF:
            following = 0xE000 if last == 0xD7FF else last + 1
            return prefix[: end - 1] + chr(following)
    return ""


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "_eq": op.eq,
    "_neq": lambda node, value: (node != value) | node.is_null(),
    "_lt": op.lt,
    "_lte": op.le,
    "_gt": op.gt,
    "_gte": op.ge,
    "_in": lambda node, values: node.in_(list(values)) if values else SQL("1 = 0"),
    "_nin": lambda node, values: node.not_in(list(values)) | node.is_null() if values else SQL("1 = 1"),
    "_null": lambda node, wanted: node.is_null(wanted),
    "_contains": _contains,
    "_icontains": _icontains,
    "_starts_with": _starts_with,
    "_between": lambda node, limits: (node >= limits[0]) & (node <= limits[1]),
}
