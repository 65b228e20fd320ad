"""What `gos doctor` says about a PostgreSQL server: what killed rehearsals have left, and whether it has room for all locks."""

import re
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import psycopg
import pytest

from appliance.app.findings import database_server
from appliance.app.findings.checks import name_findings
from appliance.app.findings.database_server import leftover_findings, lock_findings, server_findings
from appliance.cli import main
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.database.throw_away_schemas import create_schema, name_schema, open_session, sharing
from tests.backups.conftest import World, make_world
from tests.store.cluster import Cluster

SKIPPED = ("sandbox", "contents", "connectors")


@pytest.fixture
def on_server(tmp_path: Path, cluster: Cluster) -> Iterator[World]:
    world = make_world(tmp_path / "data", cluster.make_database())
    with world.opened():
        world.fill()
        yield world


def leave_copy(config: Config) -> str:
    """What a rehearsal leaves whose process was killed."""
    schema = name_schema()
    with open_session(config.database_url) as session:
        create_schema(session, schema)
        session.execute(f'CREATE TABLE "{schema}".tenant (id TEXT)'.encode())
    return schema


def run(*arguments: str) -> int:
    try:
        main(list(arguments))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_a_copy_that_a_killed_rehearsal_left_is_named_with_the_command_that_drops_it(
    on_server: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = on_server.config
    monkeypatch.setenv("GOS_STORAGE_DATABASE", config.database_url)
    assert list(leftover_findings(config)) == []
    schema = leave_copy(config)
    ((level, text),) = leftover_findings(config)
    assert (level, f"the schema {schema} on the database server" in text) == ("note", True)
    findings = list(name_findings(config, lambda _: nullcontext(), SKIPPED))
    assert ("database-server", (level, text)) in findings, "doctor and GET /appliance/health say it"
    command = re.search(r"run `gos ([^`]*)`", text)
    assert command is not None
    db.close_database()
    assert run("--data", str(config.data), *command[1].split()) == 0, capsys.readouterr()
    assert list(leftover_findings(config)) == []
    db.open_database(config.database_url)


def test_a_copy_that_is_in_use_or_not_marked_is_not_named(on_server: World) -> None:
    config, schema = on_server.config, name_schema()
    with psycopg.connect(config.database_url, autocommit=True) as other:
        other.execute("CREATE SCHEMA gos_rehearsal_by_hand")
    with open_session(config.database_url) as session, sharing(session, schema):
        create_schema(session, schema)
        assert list(leftover_findings(config)) == []
    assert [schema in text for _, text in leftover_findings(config)] == [True]


def test_a_server_that_cannot_be_asked_is_a_note(on_server: World, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = make_world(on_server.config.data, "postgresql://nobody@127.0.0.1:1/gos").config
    ((level, text),) = leftover_findings(closed)
    assert (level, text.startswith("could not look up")) == ("note", True)


def test_a_server_without_room_for_the_locks_is_told_with_the_setting_that_is_enough(
    on_server: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((level, text),) = lock_findings()
    assert (level, "can lock all" in text) == ("ok", True)
    each, sessions = database_server.read_settings()
    assert each * sessions >= 6_400
    for start in range(0, 200, 50):
        statements = [f"CREATE TABLE more_{number} (id TEXT PRIMARY KEY)" for number in range(start, start + 50)]
        db.write(partial(list, map(db.execute, statements)))
    ((level, text),) = lock_findings()
    assert level == "note", text
    assert "before the next upgrade" in text
    (advised,) = re.findall(r"set max_locks_per_transaction to (\d+) in postgresql\.conf and restart the server", text)
    monkeypatch.setattr(database_server, "read_settings", lambda: (int(advised), sessions))
    assert [level for level, _ in lock_findings()] == ["ok"]
    monkeypatch.setattr(database_server, "read_settings", lambda: (int(advised) - 64, sessions))
    assert [level for level, _ in lock_findings()] == ["note"]
    monkeypatch.setattr(database_server, "read_settings", lambda: (5, sessions))
    ((level, text),) = lock_findings()
    assert (level, "but a backup locks" in text, f"set max_locks_per_transaction to {advised} " in text) == ("FAIL", True, True)


def test_nothing_is_said_about_a_file(tmp_path: Path) -> None:
    assert list(server_findings(make_world(tmp_path / "data").config, lambda _: nullcontext())) == []
