"""Checks that the database of an export has exactly the tables, columns and names that exports are created with."""

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from appliance import migrations
from appliance.core.sentences import Sentence
from appliance.datapool import from_stored

from .copying import ENTITIES, FileSource, entity_statements
from .problems import BackupInvalid
from .snapshots import schema_number

SHA256 = re.compile(r"[0-9a-f]{64}")
_COLUMN = re.compile(r"c[0-9]+")


def check_schema(file: sqlite3.Connection) -> None:
    """Raises BackupInvalid unless all names in the file are safe for SQL and paths, since the file may be malicious."""
    for statement in ("PRAGMA trusted_schema=0", "PRAGMA cell_size_check=1"):
        file.execute(statement)
    others = file.execute("SELECT 1 FROM sqlite_master WHERE type NOT IN ('table', 'index')").fetchone()
    _refuse_if("contains views or triggers", others)
    with _invalid_structure(), closing(sqlite3.connect(":memory:")) as ours:
        for statement in migrations.statements_of_file(schema_number(file)):
            ours.execute(statement)
        _check_names(file)
        for statement in entity_statements(FileSource(file.execute), sqlite=True):
            ours.execute(statement)
        expected, actual = _objects(ours), _objects(file)
        _refuse_if("contains unexpected tables or indexes", expected != actual)
        for name in sorted(name for kind, name in expected if kind == "table"):
            _refuse_if(f"has a table {name} with unexpected columns", _columns(ours, name) != _columns(file, name))
    _check_rows(file)


def _check_names(file: sqlite3.Connection) -> None:
    for name, table, stored in file.execute("SELECT name, table_name, definition FROM collection"):
        columns = [field.column for field in from_stored(json.loads(stored)).fields]
        strange = not ENTITIES.fullmatch(table) or not all(_COLUMN.fullmatch(column) for column in columns)
        _refuse_if(f"has a collection {str(name)[:80]!r} with invalid names", strange)


def _check_rows(file: sqlite3.Connection) -> None:
    ((tenants,),) = file.execute("SELECT count(*) FROM tenant")
    _refuse_if("does not contain exactly one tenant", tenants != 1)
    contents = file.execute("SELECT sha256, place, size FROM blob").fetchall()
    for sha256, place, size in contents:
        of_type = isinstance(sha256, str) and isinstance(place, str) and isinstance(size, int)
        _refuse_if("has contents with invalid names", not of_type or not SHA256.fullmatch(sha256))
    _refuse_if("lists a content twice", any(len(set(column)) < len(contents) for column in _transpose(contents)[:2]))


def _transpose(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return list(zip(*rows, strict=True))


def _objects(file: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Every table and index by kind and name, with the SQL of an index or virtual table, else the table's name."""
    rows = file.execute("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")
    return {
        (str(kind), str(name)): str(sql) if str(sql).upper().startswith("CREATE VIRTUAL") or kind == "index" else str(table)
        for kind, name, table, sql in rows
    }


def _columns(file: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    """The columns: name, type, not null, default, position in the primary key, hidden or generated."""
    return [tuple(row[1:]) for row in file.execute(f'PRAGMA table_xinfo("{table}")')]


@contextmanager
def _invalid_structure() -> Iterator[None]:
    """Raises BackupInvalid for errors while reading a file with an unexpected structure."""
    try:
        yield
    except (sqlite3.Error, KeyError, ValueError, TypeError, AttributeError) as error:
        raise BackupInvalid(
            Sentence("the structure of the export is invalid (%(error)s); do not use this file", error=f"{error!r:.200}")
        ) from error


def _refuse_if(what: str, problem: object) -> None:
    if problem:
        raise BackupInvalid(Sentence("the export %(what)s; do not use this file", what=what))
