"""Changes and deletes many rows in many short writes, so that nobody waits long for the writer; others read and write in between.

Whoever is interrupted has done a part of it, and whoever repeats it does the rest.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import peewee

from appliance.core import clock
from appliance.core.database import db

GOAL_SECONDS = 0.02
"""How long a write should last."""
FEWEST, MOST = 20, 2_000


@dataclass(frozen=True)
class Permission:
    """The right to change rows: `check` is called in each write before it changes any, and if it returns False nothing is changed
    any more; `record` is called at its end, with the number of all rows deleted so far."""

    check: Callable[[], bool]
    record: Callable[[int], None] = lambda _: None


@dataclass(frozen=True)
class Rows:
    """The rows of a table that match a condition, which an index should find; names and condition are never a caller's text.

    `forget` is called in each write before rows are deleted, with a condition that only these match, and its values.
    """

    table: str
    where: str
    params: tuple[Any, ...] = ()
    forget: Callable[[str, tuple[Any, ...]], None] | None = None


def delete_each(permission: Permission, each: Iterable[Rows], total: int) -> int:
    """Delete all of these rows, one kind after the other; returns `total`, what was deleted before, with their number."""
    for rows in each:
        if has_rows(rows):
            total = delete(permission, rows, total)
    return total


def has_rows(rows: Rows) -> bool:
    """Whether any row matches."""
    return bool(db.rows(f'SELECT 1 FROM "{rows.table}" WHERE {rows.where} LIMIT 1', rows.params))  # noqa: S608  names of our own


def delete(permission: Permission, rows: Rows, total: int) -> int:
    """Delete the rows; returns how many have been deleted with these, of the total before.  Ends where others refer to a row."""
    size, number = FEWEST, _number_of(rows.table)
    while True:
        try:
            deleted, took = db.write(partial(delete_some, permission, rows, number, size, total), is_shared=True)
        except peewee.IntegrityError:
            return total
        if not deleted:
            return total
        total += deleted
        size = next_size(size, took)


def change(permission: Permission, rows: Rows, assignments: str, values: Sequence[Any], total: int) -> None:
    """Change the rows by SQL assignments with these values, until none matches any more; `total` rows were deleted before."""
    size, number = FEWEST, _number_of(rows.table)
    while has_rows(rows):
        sql = f'UPDATE "{rows.table}" SET {assignments} WHERE {_choose(rows, number)}'  # noqa: S608  names of our own
        work = partial(change_some, permission, sql, (*values, *rows.params, size), total)
        changed, took = db.write(work, is_shared=True)
        if not changed:
            return
        size = next_size(size, took)


def next_size(size: int, took: float) -> int:
    """How many rows the next write changes, so that it takes about the goal."""
    return min(max(round(size * min(GOAL_SECONDS / max(took, 1e-4), 2.0)), FEWEST), MOST)


def _number_of(table: str) -> str:
    """What identifies a row of a table; a few on SQLite have only their primary key."""
    if not db.is_sqlite():
        return "ctid"
    if not db.rows("SELECT 1 FROM pragma_table_list WHERE name = ? AND wr", (table,)):
        return "rowid"
    keys = db.rows("SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", (table,))
    return f"({', '.join(name for (name,) in keys)})"


def _some(rows: Rows, number: str) -> str:
    return f'SELECT {number.strip("()")} FROM "{rows.table}" WHERE {rows.where} LIMIT ?'  # noqa: S608  names of our own


def _choose(rows: Rows, number: str) -> str:
    some = _some(rows, number)
    return f"ctid = ANY(ARRAY({some}))" if number == "ctid" else f"{number} IN ({some})"


def change_some(permission: Permission, sql: str, values: tuple[Any, ...], total: int) -> tuple[int, float]:
    """Inside a write: change some rows; returns how many, and the seconds it took."""
    began = clock.monotonic()
    if not permission.check():
        return 0, 0.0
    changed = db.execute(sql, values)
    if changed:
        permission.record(total)
    return changed, clock.monotonic() - began


def delete_some(permission: Permission, rows: Rows, number: str, most: int, total: int) -> tuple[int, float]:
    """Inside a write: delete up to `most` rows, with what finds them in searches; returns how many, and the seconds it took."""
    began, values = clock.monotonic(), (*rows.params, most)
    if not permission.check():  # another process has done it all, and what is there now may be new
        return 0, 0.0
    if number == "rowid":  # the same rows for each statement
        values = tuple(row[0] for row in db.rows(_some(rows, number), values))
        chosen = f"rowid IN ({', '.join('?' * len(values))})"
    else:
        chosen = _choose(rows, number)
    if rows.forget is not None:
        rows.forget(chosen, values)
    deleted = db.execute(f'DELETE FROM "{rows.table}" WHERE {chosen}', values)  # noqa: S608  names of our own
    if deleted:
        permission.record(total + deleted)
    return deleted, clock.monotonic() - began
