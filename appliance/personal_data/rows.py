"""The rows of a table that name a person.  All names in this SQL are those of the register, never a caller's text."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from appliance.core.database import db
from appliance.core.scope import APPLIANCE, tenant_ids

from .kinds import Form, Table
from .subjects import Subject

PAGE = 1_000


def build_condition(table: Table, subject: Subject, tenant_id: str | None) -> tuple[str, tuple[Any, ...]] | None:
    """The SQL condition of the person's rows with its parameters, in one tenant or all; None if no column can name them."""
    parts: list[str] = []
    params: list[Any] = []
    for column, form in table.names.items():
        condition, values = _match(column, form, subject)
        if condition:
            parts.append(condition)
            params += values
    if not parts or (tenant_id is not None and not table.has_tenant):
        return None
    where = f"({' OR '.join(parts)})"
    return (where, tuple(params)) if tenant_id is None else (f"tenant_id = ? AND {where}", (tenant_id, *params))


def _match(column: str, form: Form, subject: Subject) -> tuple[str, Sequence[Any]]:
    if form is Form.ID and subject.user_id:
        return f"{column} IN (?, ?)", (subject.user_id, f"user:{subject.user_id}")
    if form is Form.LOGIN and subject.address:
        return f"lower({column}) = ?", (subject.address,)
    if form is Form.LISTED and subject.address:
        # `replace` compares as the update of an erasure does, with the same letters on both databases.
        texts = listed_texts(subject.address)
        listed = " OR ".join([f"replace({column}, ?, '') <> {column}"] * len(texts))
        return f"({listed})", texts
    if form is Form.KEY and subject.keys:
        return f"{column} IN ({', '.join('?' * len(subject.keys))})", subject.keys
    return "", ()


def listed_texts(login: str) -> tuple[str, ...]:
    """How JSON in a column contains the login: as a string of its own, or as `user:<login>`."""
    return db.dump_json(login), db.dump_json(f"user:{login}")


def count_by_tenant(table: Table, subject: Subject, tenant_id: str | None) -> dict[str, int]:
    """How many rows of the table name the person, by tenant; those that belong to no tenant under an empty name."""
    condition = build_condition(table, subject, tenant_id)
    if condition is None:
        return {}
    where, params = condition
    column = "coalesce(tenant_id, '')" if table.has_tenant else "''"
    sql = f"SELECT {column}, count(*) FROM {table.name} WHERE {where} GROUP BY 1"  # noqa: S608
    return {str(each): int(number) for each, number in db.rows(sql, params)}


def iterate(table: Table, subject: Subject, tenant_id: str | None) -> Iterator[tuple[Any, ...]]:
    """The exported columns of the rows that name the person; large tables are read in parts."""
    condition = build_condition(table, subject, tenant_id)
    if condition is None:
        return
    where, params = condition
    sql = f"SELECT {', '.join(table.exported)} FROM {table.name} WHERE "  # noqa: S608
    if not table.paged_by:
        yield from db.rows(f"{sql}{where} ORDER BY {table.exported[0]}", params)
        return
    index = table.exported.index(table.paged_by)
    for each in [tenant_id] if tenant_id is not None else [APPLIANCE, *tenant_ids()]:
        next_part, after = f"{sql}tenant_id = ?", tuple[Any, ...]()
        while part := db.rows(
            f"{next_part} AND {where} ORDER BY {table.paged_by} LIMIT {PAGE}", (each, *after, *params)
        ):
            yield from part
            if len(part) < PAGE:
                break
            next_part, after = f"{sql}tenant_id = ? AND {table.paged_by} > ?", (part[-1][index],)


def decode(column: str, value: Any) -> Any:
    """A column's value for an export: JSON in its parts, everything else as it is."""
    if isinstance(value, str) and value[:1] in ("{", "[") and column in JSON_COLUMNS:
        return json.loads(value)
    return value


JSON_COLUMNS = frozenset({
    "actions", "allowed_ips", "answer", "approvers", "attributes", "audience", "fields", "input", "output", "reviewers", "scopes",
    "told_to",
})  # fmt: skip
