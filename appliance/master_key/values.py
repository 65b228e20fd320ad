"""Sealed values of all tables: reads those that the current key has not sealed, in the order of their keys."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from appliance.core.crypto import SealedColumn, Sealer
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid

_PAGE = 200


@dataclass(frozen=True)
class SealedRow:
    """A row whose value the current key has not sealed: its primary key, what it is bound to, and the size of the value."""

    column: SealedColumn
    key: tuple[Any, ...]
    context: str
    size: int

    def read(self) -> Any:
        """The stored value; None if it has gone."""
        rows = db.rows(f"SELECT {self.column.column} FROM {self.column.table} WHERE {self._is_row}", self.key)  # noqa: S608
        return rows[0][0] if rows else None

    def replace(self, stored: Any, value: Any) -> bool:
        """Inside a write: store the value, if what it replaces is still there."""
        name = self.column.column
        sql = f"UPDATE {self.column.table} SET {name} = ? WHERE {self._is_row} AND {name} = ?"  # noqa: S608  our own names
        return db.execute(sql, (value, *self.key, stored)) == 1

    @property
    def _is_row(self) -> str:
        return " AND ".join(f"{name} = ?" for name in self.column.key)


def list_rows(column: SealedColumn, current: str, after: tuple[Any, ...] = (), most: int = _PAGE) -> list[SealedRow]:
    """Up to `most` rows with values that the key `current` has not sealed, after the one with the primary key `after`."""
    condition, value = column.condition(current)
    keys, count = ", ".join(column.key), len(column.key)
    beyond = f" AND ({keys}) > ({', '.join('?' * count)})" if after else ""
    names = ", ".join((*column.key, *column.more, f"length({column.column})"))
    rows = db.rows(
        f"SELECT {names} FROM {column.table} WHERE {condition}{beyond} ORDER BY {keys} LIMIT ?",  # noqa: S608  our own names
        (value, *after, most),
    )
    values = (*column.key, *column.more)
    return [
        SealedRow(column, tuple(row[:count]), column.context(dict(zip(values, row, strict=False))), int(row[-1])) for row in rows
    ]


def iter_rows(column: SealedColumn, current: str) -> Iterator[SealedRow]:
    """All such rows of a column, a page at a time."""
    after: tuple[Any, ...] = ()
    while page := list_rows(column, current, after):
        yield from page
        after = page[-1].key


def find_opening_key(sealer: Sealer, row: SealedRow) -> str | None:
    """The id of the key that opens the value of a row; None if none does, or it has gone."""
    stored = row.read()
    try:
        return None if stored is None else sealer.open_with(row.column.read(stored), row.context)[1]
    except ConfigInvalid:
        return None
