"""Conditions on a list of ids, written as SQL text: peewee takes longer for each id than the databases."""

from collections.abc import Sequence

from peewee import SQL

from . import db


def is_listed(column: str, ids: Sequence[object]) -> SQL:
    """The condition that a column has one of these values; it is never true without any."""
    places = ", ".join("?" * len(ids)) or "NULL"
    return SQL(db.database.obj.statement(f"{column} IN ({places})"), tuple(ids))
