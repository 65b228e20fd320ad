"""Migrations keep stored data of any shape on both databases."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core import migrations
from appliance.core.database import db

MIGRATION = 54
ERRORS = {
    "plain": {"code": "step_failed", "step": "greet", "message": "no"},
    "nothing": {"code": "step_failed", "step": "greet", "message": "a \0\0 b"},
    "half": {"code": "step_failed", "step": "greet", "message": "\ud800 \udc00"},
    "written": {"code": "step_failed", "step": "greet", "message": 'the text \\u0000 and C:\\ and "\\\0"'},
}


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """A database without a schema is open."""
    is_file = request.param == "sqlite"
    db.open_database(f"sqlite:///{tmp_path}/gos.db" if is_file else request.getfixturevalue("cluster").make_database())
    yield
    db.close_database()


@pytest.mark.usefixtures("empty_store")
def test_stored_errors_get_code_and_step_whatever_their_message() -> None:
    """Runs the statements of the migration itself over a table with the columns that it reads."""

    def fill() -> None:
        db.execute("CREATE TABLE execution (id TEXT, error TEXT, failure_code TEXT, failed_step TEXT)")
        for name, error in [*((name, json.dumps(error)) for name, error in ERRORS.items()), ("none", None)]:
            db.execute("INSERT INTO execution (id, error) VALUES (?, ?)", (name, error))
        for statement in migrations.all_migrations()[MIGRATION - 1].more[db.is_sqlite()]:
            db.execute(statement.format())

    db.write(fill)
    columns = {row[0]: tuple(row[1:]) for row in db.rows("SELECT id, failure_code, failed_step FROM execution")}
    assert columns == {**dict.fromkeys(ERRORS, ("step_failed", "greet")), "none": (None, None)}
