"""Statements: named values found in SQL text, and the few statements that are built from tables, rows and keys.

Values are never part of a statement's text here.  Names of tables and columns are quoted by the rule of SQL: the quote
in them is doubled.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.connectors.contract import ConfigError

# Text in which a colon means nothing: literals, quoted names, comments, dollar quotes, casts.
_SKIPPED = re.compile(
    r"""'(?:[^'\\]|''|\\.)*' | "(?:[^"\\]|""|\\.)*" | `[^`]*`
      | --[^\n]* | \#[^\n]* | /\*.*?\*/
      | \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$
      | ::""",
    re.VERBOSE | re.DOTALL,
)
_STANDARD_SKIPPED = re.compile(
    r"""(?:[eE]'(?:[^'\\]|''|\\.)*') | '(?:[^']|'')*' | "(?:[^"]|"")*"
      | --[^\n]* | /\*.*?\*/
      | \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$
      | ::""",
    re.VERBOSE | re.DOTALL,
)
_NAME = re.compile(r"(?<![\w:]):([A-Za-z_]\w*)")


@dataclass(frozen=True)
class Statement:
    """SQL text cut at its values: `parts[0] value[0] parts[1] value[1] … parts[n]`."""

    parts: tuple[str, ...]
    values: tuple[Any, ...]

    def text(self, placeholder: Callable[[int, Any], str]) -> str:
        """The text with what `placeholder(index, value)` says in the place of each value."""
        pieces = [self.parts[0]]
        for index, (value, part) in enumerate(zip(self.values, self.parts[1:], strict=True)):
            pieces += (placeholder(index, value), part)
        return "".join(pieces)


def parse(sql: str, params: Mapping[str, Any], *, backslashes: bool) -> Statement:
    """The statement with a value for each `:name`; ConfigError for a name without value and for a value nobody names.

    `backslashes`: whether a backslash escapes in every literal (MySQL), or only in E'…' (PostgreSQL).
    """
    skipped = _SKIPPED if backslashes else _STANDARD_SKIPPED
    parts: list[str] = [""]
    values: list[Any] = []
    used: set[str] = set()
    at = 0
    while at < len(sql):
        if (quoted := skipped.match(sql, at)) is not None:
            parts[-1] += quoted.group()
            at = quoted.end()
        elif (named := _NAME.match(sql, at)) is not None:
            name = named.group(1)
            if name not in params:
                raise ConfigError(f"The statement names :{name}, and `params` has no value of that name.")
            used.add(name)
            values.append(params[name])
            parts.append("")
            at = named.end()
        else:
            parts[-1] += sql[at]
            at += 1
    if extra := sorted(set(params) - used):
        raise ConfigError(f"`params` has {extra[0]!r}, which the statement does not name as :{extra[0]}.")
    return Statement(tuple(parts), tuple(values))


class Builder:
    """Makes statements for one way of quoting names."""

    def __init__(self, quote: str) -> None:
        self._quote = quote

    def name(self, name: str) -> str:
        """A quoted name; ConfigError for one that no server can have."""
        if "\0" in name:
            raise ConfigError("A name of a table or column cannot contain a NUL.")
        return f"{self._quote}{name.replace(self._quote, self._quote * 2)}{self._quote}"

    def table(self, name: str) -> str:
        """A quoted table, with its schema before a dot."""
        return ".".join(self.name(part) for part in name.split("."))

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], end: str = "") -> Statement:
        """INSERT of rows that all have these columns; `end` is what follows."""
        names = ", ".join(self.name(column) for column in columns)
        parts = [f"INSERT INTO {self.table(table)} ({names}) VALUES ("]  # noqa: S608 - names are quoted
        values: list[Any] = []
        for row in rows:
            for column in columns:
                values.append(row[column])
                parts.append(", ")
            parts[-1] = "), ("
        parts[-1] = f"){end}"
        return Statement(tuple(parts), tuple(values))

    def update(self, table: str, values: Mapping[str, Any], where: Mapping[str, Any]) -> Statement:
        """UPDATE of the rows that have the values of `where`."""
        condition = self._where(where)
        parts = [f"UPDATE {self.table(table)} SET "]  # noqa: S608 - names are quoted
        for column in values:
            parts[-1] += f"{self.name(column)} = "
            parts.append(", ")
        parts[-1] = condition.parts[0]
        return Statement((*parts, *condition.parts[1:]), (*values.values(), *condition.values))

    def delete(self, table: str, where: Mapping[str, Any]) -> Statement:
        """DELETE of the rows that have the values of `where`."""
        condition = self._where(where)
        begin = f"DELETE FROM {self.table(table)}{condition.parts[0]}"  # noqa: S608 - names are quoted
        return Statement((begin, *condition.parts[1:]), condition.values)

    def _where(self, where: Mapping[str, Any]) -> Statement:
        parts = [" WHERE "]
        values: list[Any] = []
        for index, (column, value) in enumerate(where.items()):
            parts[-1] += " AND " if index else ""
            if value is None:
                parts[-1] += f"{self.name(column)} IS NULL"
            else:
                parts[-1] += f"{self.name(column)} = "
                values.append(value)
                parts.append("")
        return Statement(tuple(parts), tuple(values))


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns of all rows; ConfigError when a row has others than the first."""
    columns = list(rows[0])
    for index, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            raise ConfigError(f"Row {index} has other columns than the first one; give every row the same columns.")
    return columns
