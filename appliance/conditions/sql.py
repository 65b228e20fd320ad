"""Compiles a condition to a peewee expression that gives the same result on every database."""

import operator as op
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peewee import SQL, NodeList, Select, fn

from appliance.conditions.tree import AllOf, AnyOf, Compare, Condition, Inside, Never, check_bound, fold, unfold


@dataclass(frozen=True)
class Related:
    """The table a reference points to: its key and the columns of its fields."""

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
            return _compile_inside(columns[name], negated, inner)
        case Compare(name, operator, value):
            check_bound(value)
            return _COMPARISONS[operator](columns[name].node, value)
        case Never():
            return SQL("1 = 0")


def all_of(nodes: Sequence[Any]) -> Any:
    """The conjunction of the expressions, as a flat list because SQLite's parser limits nesting."""
    return _join(nodes, " AND ", "1 = 1")


def any_of(nodes: Sequence[Any]) -> Any:
    """The disjunction of the expressions, as a flat list for the same reason as in `all_of`."""
    return _join(nodes, " OR ", "1 = 0")


def _join(nodes: Sequence[Any], glue: str, empty: str) -> Any:
    if len(nodes) < 2:
        return nodes[0] if nodes else SQL(empty)
    return NodeList([NodeList((each,), parens=True) for each in nodes], glue=glue, parens=True)


def _compile_inside(column: Column, negated: bool, inner: Condition) -> Any:
    if column.related is None:
        raise TypeError("this column is not a reference")
    related = column.related()
    keys = Select([related.source], [related.key]).where(compile_condition(inner, related.columns))
    return column.node.is_null() | column.node.not_in(keys) if negated else column.node.in_(keys)


def _contains(node: Any, value: str) -> Any:
    """Whether removing the text changes the value; unlike LIKE, this is case-sensitive on every database."""
    return fn.REPLACE(node, value, "") != node if value else node.is_null(False)


def _icontains(node: Any, value: str) -> Any:
    """Case-insensitive `_contains`; LOWER folds ASCII, other characters are replaced only if the searched text has them."""
    needle = fold(value)
    folded = fn.LOWER(node)
    for character in sorted(set(needle)):
        other = None if character.isascii() else unfold(character)
        if other is not None:
            folded = fn.REPLACE(folded, other, character)
    return _contains(folded, needle)


def _starts_with(node: Any, value: str) -> Any:
    """A comparison by range of code points, which can use an index."""
    after = _after_prefix(value)
    is_from_prefix = node >= value
    return is_from_prefix & (node < after) if after else is_from_prefix


def _after_prefix(prefix: str) -> str:
    """The smallest text greater than every text with this prefix; empty if there is none."""
    for end in range(len(prefix), 0, -1):
        last = ord(prefix[end - 1])
        if last < 0x10FFFF:
            next_code = 0xE000 if last == 0xD7FF else last + 1
            return prefix[: end - 1] + chr(next_code)
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
    "_null": lambda node, is_null: node.is_null(is_null),
    "_contains": _contains,
    "_icontains": _icontains,
    "_starts_with": _starts_with,
    "_between": lambda node, limits: (node >= limits[0]) & (node <= limits[1]),
}
