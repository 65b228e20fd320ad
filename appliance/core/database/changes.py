"""Whether the database has changed, and when the first of its rows becomes due: what periodic jobs rest on."""

from typing import Any

from . import db


def read_state() -> object:
    """A value that stays equal as long as no process commits a change; one thread may call this and compare the values."""
    return db.database.obj.read_state()


def earliest(*queries: str, params: tuple[Any, ...] = ()) -> int | None:
    """The smallest number of all queries, of which each reads one value; None if all of these are NULL."""
    values = [value for query in queries for ((value,),) in [db.rows(query, params)] if value is not None]
    return min(map(int, values), default=None)


def zero_if_any(query: str) -> int | None:
    """0, a time in the past, if the query has a row, else None: for rows that are due as long as they exist."""
    return 0 if db.rows(f"{query} LIMIT 1") else None
