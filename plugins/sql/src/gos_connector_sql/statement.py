"""SQL statements: parses named placeholders, and builds INSERT, UPDATE and DELETE from tables, rows and keys.

Values never become part of a statement's text. Table and column names are quoted, and quotes in them are doubled.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.connectors.contract import ConfigError, split_at_names

# Text in which a colon starts no placeholder: literals, quoted names, comments, dollar quotes, casts.
_OPAQUE = re.compile(
    r"""'(?:[^'\\]|''|\\.)*' | "(?:[^"\\]|""|\\.)*" | `[^`]*`
      | --[^\n]* | \#[^\n]* | /\*.*?\*/
      | \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$
      | ::""",
    re.VERBOSE | re.DOTALL,
)
_STANDARD_OPAQUE = re.compile(
    r"""(?:[eE]'(?:[^'\\]|''|\\.)*') | '(?:[^']|'')*' | "(?:[^"]|"")*"
      | --[^\n]* | /\*.*?\*/
      | \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$
      | ::""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Statement:
    """SQL text split at its values: `parts[0] values[0] parts[1] values[1] … parts[n]`."""

    parts: tuple[str, ...]
    values: tuple[Any, ...]

    def text(self, placeholder: Callable[[int, Any], str]) -> str:
        """The text with `placeholder(index, value)` in place of each value."""
        pieces = [self.parts[0]]
        for index, (value, part) in enumerate(zip(self.values, self.parts[1:], strict=True)):
            pieces += (placeholder(index, value), part)
        return "".join(pieces)


def parse(sql: str, params: Mapping[str, Any], *, backslashes: bool) -> Statement:
    """The statement with a value for each `:name`; ConfigError for a name without a value and for an unused value.

    `backslashes`: whether a backslash escapes in every literal (MySQL), or only in E'…' (PostgreSQL).
    """
    parts, values = split_at_names(sql, params, _OPAQUE if backslashes else _STANDARD_OPAQUE)
    return Statement(tuple(parts), tuple(value for _, value in values))


class Builder:
    """Builds statements; `quote` is the character that quotes names."""

    def __init__(self, quote: str) -> None:
        self._quote = quote

    def name(self, name: str) -> str:
        """The quoted name; ConfigError when it contains a NUL character."""
        if "\0" in name:
            raise ConfigError("The name of a table or column contains a NUL character, which is not allowed.")
        return f"{self._quote}{name.replace(self._quote, self._quote * 2)}{self._quote}"

    def table(self, name: str) -> str:
        """The quoted table name; a schema before a dot is quoted separately."""
        return ".".join(self.name(part) for part in name.split("."))

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], end: str = "") -> Statement:
        """INSERT of rows that all have these columns; `end` is appended to the statement."""
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
        """UPDATE of the rows that match `where`."""
        condition = self._where(where)
        parts = [f"UPDATE {self.table(table)} SET "]  # noqa: S608 - names are quoted
        for column in values:
            parts[-1] += f"{self.name(column)} = "
            parts.append(", ")
        parts[-1] = condition.parts[0]
        return Statement((*parts, *condition.parts[1:]), (*values.values(), *condition.values))

    def delete(self, table: str, where: Mapping[str, Any]) -> Statement:
        """DELETE of the rows that match `where`."""
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


def common_columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns of all rows; ConfigError when a row has other columns than the first one."""
    columns = list(rows[0])
    for index, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            raise ConfigError(f"Row {index} has other columns than the first one; give every row the same columns.")
    return columns
