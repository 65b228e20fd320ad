"""Rows of two people in every table of the register, written beside the appliance because most have no parents."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from appliance.core.database import db
from appliance.personal_data import KINDS, Form, Table

SECRET = "must-not-be-exported"
FIRST, SECOND = "acme", "globex"


@dataclass(frozen=True)
class Human:
    """Whom rows name; `key` is the id of an API key of theirs."""

    user_id: str
    login: str
    key: str


@dataclass(frozen=True)
class Column:
    """A column of a table that must have a value."""

    name: str
    kind: str


def list_columns(table: str) -> list[Column]:
    """All columns of a table, with the types of either database."""
    if db.is_sqlite():
        return [Column(str(row[1]), str(row[2]).lower()) for row in db.rows(f'PRAGMA table_info("{table}")')]
    sql = (
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = ? "
        "ORDER BY ordinal_position"
    )
    return [Column(str(name), str(kind)) for name, kind in db.rows(sql, (table,))]


def _value(column: Column, table: Table, human: Human, number: int) -> Any:
    form = table.names.get(column.name)
    if form is Form.ID:
        return human.user_id if column.name in ("user_id", "id", "changed_by") else f"user:{human.user_id}"
    if form is Form.KEY:
        return human.key
    if form is Form.LOGIN or column.name in table.copies:
        return human.login
    if form is Form.LISTED:
        return json.dumps([[human.user_id, human.login], f"user:{human.login}", ["usr_third", "third@example.com"]])
    return {"tenant_id": FIRST, "user_name": human.login}.get(column.name) or _filler(column, number)


def _filler(column: Column, number: int) -> Any:
    if column.kind in ("bytea", "blob"):
        return f"{SECRET}-{number}".encode()
    if column.kind == "boolean":
        return False
    if column.kind in ("text", "character varying"):
        is_json = column.name in ("definition", "fields", "attributes", "scopes", "limits", "details", "actions", "input", "output")
        return "{}" if is_json else f"{SECRET}-{number}" if is_secret(column.name) else f"x{number}"
    return number


def is_secret(name: str) -> bool:
    """Whether a column of this name has something that no export may contain."""
    return any(part in name for part in ("digest", "hash", "sealed", "token", "secret", "public_key", "credential"))


def fill(url: str, humans: list[Human]) -> None:
    """Insert a row for each person into each table of the register that the accounts themselves do not fill."""
    filled = ("deleted_person", "audit_entry")
    tables = [table for kind in KINDS for table in kind.tables if not table.with_account and table.name not in filled]
    rows = list(_rows(tables, humans))
    if db.is_sqlite():
        connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"))
    else:
        connection = psycopg.connect(url)
        connection.execute("SET session_replication_role = replica")  # without foreign keys, as SQLite by default
    for table, row in rows:
        marks = ", ".join(["?" if db.is_sqlite() else "%s"] * len(row))
        names = ", ".join(f'"{name}"' for name in row)
        connection.execute(f'INSERT INTO "{table}" ({names}) VALUES ({marks})', tuple(row.values()))  # noqa: S608
    connection.commit()
    connection.close()


def _rows(tables: list[Table], humans: list[Human]) -> Iterator[tuple[str, dict[str, Any]]]:
    number = 1_000
    for table in tables:
        columns = list_columns(table.name)
        for human in humans:
            number += 1
            row = {each.name: _value(each, table, human, number) for each in columns}
            if table.name == "api_key":
                row["id"] = human.key
            yield table.name, row


def read_all(table: str) -> list[dict[str, Any]]:
    """Every row of a table, in a fixed order."""
    names = [each.name for each in list_columns(table)]
    listed = ", ".join(f'"{name}"' for name in names)
    listed_rows = [dict(zip(names, row, strict=True)) for row in db.rows(f'SELECT {listed} FROM "{table}"')]  # noqa: S608
    return sorted(listed_rows, key=str)


def list_tables() -> list[str]:
    """The tables of the database, without those of a search index."""
    if db.is_sqlite():
        names = [str(row[0]) for row in db.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
    else:
        names = [str(row[0]) for row in db.rows("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")]
    return sorted(name for name in names if "_index" not in name and not name.startswith("sqlite_"))
