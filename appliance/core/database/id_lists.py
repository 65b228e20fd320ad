"""Conditions on a list of ids, written as SQL text: peewee takes longer for each id than the databases."""

from collections.abc import Sequence
from typing import Any

from peewee import SQL

from . import db


def is_listed(column: str, ids: Sequence[object]) -> SQL:
    """The condition that a column has one of these values; it is never true without any."""
    places = ", ".join("?" * len(ids)) or "NULL"
    return _Listed(db.database.obj.statement(f"{column} IN ({places})"), tuple(ids))


class _Listed(SQL):  # type: ignore[misc]  # peewee carries no types
    """SQL whose parameters are neither models nor parts of queries, which `SQL` would find out for each of them."""

    def __sql__(self, ctx: Any) -> Any:
        ctx._values.extend(self.params)
        return ctx.literal(self.sql)
