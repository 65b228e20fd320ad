"""Refuses the database of an export that has not exactly the tables, columns and names that we write."""

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from appliance.core import migrations
from appliance.core.sentences import Sentence
from appliance.datapool import from_stored

from .copying import ENTITIES, FileSource, entity_statements
from .problems import BackupInvalid
from .snapshots import schema_number

SHA256 = re.compile(r"[0-9a-f]{64}")
_COLUMN = re.compile(r"c[0-9]+")


def check_shape(file: sqlite3.Connection) -> None:
    """BackupInvalid unless names from the file may stand in SQL and paths: whoever made it need not mean well."""
    for statement in ("PRAGMA trusted_schema=0", "PRAGMA cell_size_check=1"):
        file.execute(statement)
    _refuse("holds views or triggers", file.execute("SELECT 1 FROM sqlite_master WHERE type NOT IN ('table', 'index')").fetchone())
    with _expecting_ours(), closing(sqlite3.connect(":memory:")) as ours:
        for statement in migrations.statements_of_file(schema_number(file)):
            ours.execute(statement)
        _check_names(file)
        for statement in entity_statements(FileSource(file.execute), sqlite=True):
            ours.execute(statement)
        expected, found = _objects(ours), _objects(file)
        _refuse("holds other tables or indexes than ours", expected != found)
        for name in sorted(name for kind, name in expected if kind == "table"):
            _refuse(f"has a table {name} with other columns than ours", _columns(ours, name) != _columns(file, name))
    _check_rows(file)


def _check_names(file: sqlite3.Connection) -> None:
    for name, table, stored in file.execute("SELECT name, table_name, definition FROM collection"):
        columns = [field.column for field in from_stored(json.loads(stored)).fields]
        strange = not ENTITIES.fullmatch(table) or not all(_COLUMN.fullmatch(column) for column in columns)
        _refuse(f"has a collection {str(name)[:80]!r} with names that we do not make", strange)


def _check_rows(file: sqlite3.Connection) -> None:
    ((tenants,),) = file.execute("SELECT count(*) FROM tenant")
    _refuse("holds not exactly one tenant", tenants != 1)
    contents = file.execute("SELECT sha256, place, size FROM blob").fetchall()
    for sha256, place, size in contents:
        of_type = isinstance(sha256, str) and isinstance(place, str) and isinstance(size, int)
        _refuse("names contents as we do not", not of_type or not SHA256.fullmatch(sha256))
    _refuse("names a content twice", any(len(set(column)) < len(contents) for column in _turned(contents)[:2]))


def _turned(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return list(zip(*rows, strict=True))


def _objects(file: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Every table and index by kind and name: an index with what it is of, a virtual table with what makes it."""
    found = file.execute("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")
    return {
        (str(kind), str(name)): str(sql) if str(sql).upper().startswith("CREATE VIRTUAL") or kind == "index" else str(table)
        for kind, name, table, sql in found
    }


def _columns(file: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    """Name, type, whether it must be there, default, place in the key, whether it is computed."""
    return [tuple(row[1:]) for row in file.execute(f'PRAGMA table_xinfo("{table}")')]


@contextmanager
def _expecting_ours() -> Iterator[None]:
    """What cannot be read as ours is not ours."""
    try:
        yield
    except (sqlite3.Error, KeyError, ValueError, TypeError, AttributeError) as error:
        raise BackupInvalid(
            Sentence("the export is none that we write (%(error)s); do not use this file", error=f"{error!r:.200}")
        ) from error


def _refuse(what: str, found: object) -> None:
    if found:
        raise BackupInvalid(Sentence("the export %(what)s; do not use this file", what=what))
