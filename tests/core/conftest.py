"""A migrated database of its own for each test that asks for one."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from appliance.core.database import db
from tests.store.opening import open_migrated


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    """The path of the open database; it has the table `note (text)` besides the product's."""
    path = tmp_path / "gos.db"
    open_migrated(f"sqlite:///{path}")
    db.write(lambda: db.execute("CREATE TABLE note (text TEXT NOT NULL)"))
    yield path
    db.close_database()


def committed(path: Path, sql: str = "SELECT text FROM note ORDER BY rowid") -> list[Any]:
    """The first column of what another process would read right now."""
    with closing(sqlite3.connect(path)) as other:
        return [row[0] for row in other.execute(sql)]


def note(text: str) -> int:
    """Insert a text; to be called inside a write."""
    return db.execute("INSERT INTO note VALUES (?)", (text,))
