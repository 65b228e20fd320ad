"""Compiles a condition to SQL that gives the same result on every database.

The text is built directly, because a query builder takes longer to build it than the database to find the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.conditions.tree import AllOf, AnyOf, Compare, Condition, Inside, Never, check_bound, fold, unfold


@dataclass(frozen=True, slots=True)
class Sql:
    """A part of a statement; each `?` of its text stands for one of the parameters, in order."""

    text: str
    params: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Related:
    """The table a reference points to: `SELECT … FROM …` of its keys, and the columns of its fields."""

    select_keys: str
    columns: Mapping[str, "Column"]


@dataclass(frozen=True, slots=True)
class Column:
    """Where a field is stored: a column as SQL text (never a caller's); `related` for a reference."""

    sql: str
    related: Callable[[], Related] | None = None


def compile_condition(condition: Condition, columns: Mapping[str, Column]) -> Sql:
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
            return _COMPARISONS[operator](columns[name].sql, value)
        case Never():
            return Sql("1 = 0")


def all_of(parts: Sequence[Sql]) -> Sql:
    """The conjunction of the expressions, as a flat list because SQLite's parser limits nesting."""
    return _join(parts, ") AND (", "1 = 1")


def any_of(parts: Sequence[Sql]) -> Sql:
    """The disjunction of the expressions, as a flat list for the same reason as in `all_of`."""
    return _join(parts, ") OR (", "1 = 0")


def _join(parts: Sequence[Sql], glue: str, empty: str) -> Sql:
    if len(parts) < 2:
        return parts[0] if parts else Sql(empty)
    return Sql(f"(({glue.join([part.text for part in parts])}))", tuple(param for part in parts for param in part.params))


def _compile_inside(column: Column, negated: bool, inner: Condition) -> Sql:
    if column.related is None:
        raise TypeError("this column is not a reference")
    related = column.related()
    matching = compile_condition(inner, related.columns)
    keys = f"({related.select_keys} WHERE {matching.text})"
    if negated:
        return Sql(f"({column.sql} IS NULL OR {column.sql} NOT IN {keys})", matching.params)
    return Sql(f"{column.sql} IN {keys}", matching.params)


def _comparison(operator: str) -> Callable[[str, Any], Sql]:
    return lambda column, value: Sql(f"{column} {operator} ?", (value,))


def _contains(column: str, value: str) -> Sql:
    return _contains_text(Sql(column), value)


def _contains_text(text: Sql, value: str) -> Sql:
    """Whether removing the value changes the text; unlike LIKE, this is case-sensitive on every database."""
    if not value:
        return Sql(f"{text.text} IS NOT NULL", text.params)
    return Sql(f"REPLACE({text.text}, ?, '') <> {text.text}", (*text.params, value, *text.params))


def _icontains(column: str, value: str) -> Sql:
    """Case-insensitive `_contains`; LOWER folds ASCII, other characters are replaced only if the searched text has them."""
    needle = fold(value)
    folded = Sql(f"LOWER({column})")
    for character in sorted(set(needle)):
        other = None if character.isascii() else unfold(character)
        if other is not None:
            folded = Sql(f"REPLACE({folded.text}, ?, ?)", (*folded.params, other, character))
    return _contains_text(folded, needle)


def _starts_with(column: str, value: str) -> Sql:
    """A comparison by range of code points, which can use an index."""
    after = _after_prefix(value)
    return Sql(f"({column} >= ? AND {column} < ?)", (value, after)) if after else Sql(f"{column} >= ?", (value,))


def _after_prefix(prefix: str) -> str:
    """The smallest text greater than every text with this prefix; empty if there is none."""
    for end in range(len(prefix), 0, -1):
        last = ord(prefix[end - 1])
        if last < 0x10FFFF:
            next_code = 0xE000 if last == 0xD7FF else last + 1
            return prefix[: end - 1] + chr(next_code)
    return ""


def _is_in(column: str, values: Sequence[Any]) -> Sql:
    return Sql(f"{column} IN ({_placeholders(values)})", tuple(values)) if values else Sql("1 = 0")


def _is_not_in(column: str, values: Sequence[Any]) -> Sql:
    if not values:
        return Sql("1 = 1")
    return Sql(f"({column} NOT IN ({_placeholders(values)}) OR {column} IS NULL)", tuple(values))


def _placeholders(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


_COMPARISONS: dict[str, Callable[[str, Any], Sql]] = {
    "_eq": _comparison("="),
    "_neq": lambda column, value: Sql(f"({column} <> ? OR {column} IS NULL)", (value,)),
    "_lt": _comparison("<"),
    "_lte": _comparison("<="),
    "_gt": _comparison(">"),
    "_gte": _comparison(">="),
    "_in": _is_in,
    "_nin": _is_not_in,
    "_null": lambda column, is_null: Sql(f"{column} IS {'' if is_null else 'NOT '}NULL"),
    "_contains": _contains,
    "_icontains": _icontains,
    "_starts_with": _starts_with,
    "_between": lambda column, limits: Sql(f"({column} >= ? AND {column} <= ?)", tuple(limits)),
}
