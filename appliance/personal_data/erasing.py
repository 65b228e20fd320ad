"""Erases a person: deletes what concerns only them, and replaces their login in what stays, by the register."""

from dataclasses import dataclass
from typing import Any

from appliance.core.database import db
from appliance.tenants import accounts

from . import rows, trails
from .kinds import Erasure, Form, Table
from .subjects import Subject
from .survey import Count, count_rows


@dataclass(frozen=True)
class Erased:
    """What an erasure did: `counts` as before it, and the pseudonym that stands for the login now."""

    pseudonym: str
    counts: tuple[Count, ...]

    def count(self, erasure: Erasure) -> int:
        """How many rows were deleted, pseudonymised or left as they are."""
        return sum(each.rows for each in self.counts if each.kind.erasure is erasure)


def erase(subject: Subject, actor: str, *, tenant_id: str | None = None, may_leave_ownerless: bool = False) -> Erased:
    """Erase the person in one write: all of it happens, or nothing.

    In one tenant, only what its visitors leave there.  Conflict if a tenant would have no enabled owner, unless that is allowed.
    """

    def write() -> Erased:
        counts = count_rows(subject, tenant_id)
        erased = Erased(subject.pseudonym, tuple(counts))
        fields = {each.value: erased.count(each) for each in Erasure}
        trails.record(counts, "person.erase", subject, actor, fields | {"pseudonym": subject.pseudonym})
        for each in counts:
            for table in each.kind.tables:
                _apply(table, each.kind.erasure, subject, tenant_id)
        if subject.user_id and tenant_id is None:
            accounts.erase_account(subject.user_id, subject.pseudonym, may_leave_ownerless=may_leave_ownerless)
        return erased

    return db.write(write)


def _apply(table: Table, erasure: Erasure, subject: Subject, tenant_id: str | None) -> None:
    """Inside a write: delete or pseudonymise the person's rows of a table."""
    condition = rows.build_condition(table, subject, tenant_id)
    if condition is None or table.with_account or erasure is Erasure.KEEP:
        return
    where, params = condition
    if erasure is Erasure.DELETE:
        db.execute(f"DELETE FROM {table.name} WHERE {where}", params)  # noqa: S608  names of the register
        return
    if (replacements := _replacements(table, subject)) is not None:
        assignments, values = replacements
        db.execute(f"UPDATE {table.name} SET {assignments} WHERE {where}", (*values, *params))  # noqa: S608


def _replacements(table: Table, subject: Subject) -> tuple[str, tuple[Any, ...]] | None:
    """The assignments that replace the login in a row, and nothing of others in it; None if it has ids only."""
    parts: list[str] = []
    values: list[Any] = []
    for column, form in table.names.items():
        if form is Form.LOGIN and subject.address:
            parts.append(f"{column} = CASE WHEN lower({column}) = ? THEN ? ELSE {column} END")
            values += (subject.address, subject.pseudonym)
        elif form is Form.LISTED and subject.address:
            (own, actor), (own_new, actor_new) = rows.listed_texts(subject.address), rows.listed_texts(subject.pseudonym)
            parts.append(f"{column} = replace(replace({column}, ?, ?), ?, ?)")
            values += (own, own_new, actor, actor_new)
    for column, id_column in table.copies.items():
        parts.append(f"{column} = CASE WHEN {id_column} IN (?, ?) THEN ? ELSE {column} END")
        values += (subject.user_id, subject.actor, subject.pseudonym)
    parts += [f"{column} = ''" for column in table.cleared]
    return (", ".join(parts), tuple(values)) if parts else None
