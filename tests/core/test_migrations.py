"""The schema moves forward in whole steps, also when it is killed in the middle."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from appliance.core import migrations
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid
from tests.core.conftest import committed

KILLED = """
import os, sys
from appliance.core import migrations
from appliance.core.database import db
db.open_database("sqlite:///" + sys.argv[1])
done = 0
execute = db.execute
def counting(sql, params=()):
    global done
    done += 1
    if done == int(sys.argv[2]):
        os.kill(os.getpid(), 9)
    return execute(sql, params)
db.execute = counting
migrations.migrate()
db.close_database()
"""
TABLES = "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"


def schema_of(path: Path) -> list[str]:
    return committed(path, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The schema of a database that was created without interruption."""
    path = tmp_path_factory.mktemp("fresh") / "gos.db"
    db.open_database(f"sqlite:///{path}")
    migrations.migrate()
    db.close_database()
    return schema_of(path)


def test_an_empty_database_gets_every_migration_once(tmp_path: Path) -> None:
    db.open_database(f"sqlite:///{tmp_path}/gos.db")
    try:
        assert migrations.pending() == len(migrations.all_migrations())
        names = [f"{m.number:04d}_{m.name}" for m in migrations.all_migrations()]
        assert migrations.migrate() == names
        assert (migrations.migrate(), migrations.pending()) == ([], 0)
    finally:
        db.close_database()


@pytest.mark.parametrize("statement", [1, 2, 3, 7, 16, 25])
def test_a_kill_leaves_whole_steps_and_the_next_start_continues(
    tmp_path: Path, fresh: list[str], statement: int
) -> None:
    path = tmp_path / "gos.db"
    command = [sys.executable, "-c", KILLED, str(path), str(statement)]
    assert subprocess.run(command, check=False).returncode == -9
    done = committed(path, "SELECT number FROM migration ORDER BY number") if "migration" in committed(path, TABLES) else []
    assert done == list(range(1, len(done) + 1))
    expected = {"migration"} if done or statement > 1 else set()
    for migration in migrations.all_migrations()[: len(done)]:
        expected |= {s.split()[2] for s in migration.statements if s.lstrip().startswith("CREATE TABLE")}
    tables = committed(path, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    assert set(tables) == expected
    db.open_database(f"sqlite:///{path}")
    migrations.migrate()
    db.close_database()
    assert schema_of(path) == fresh


def test_a_newer_database_is_refused(database: Path) -> None:
    db.write(lambda: db.execute("INSERT INTO migration VALUES (9999, 'future', 0)"))
    with pytest.raises(ConfigInvalid, match="install the newer release"):
        migrations.migrate()


def test_every_tenant_table_goes_with_its_tenant(database: Path) -> None:
    tables = [row[0] for row in db.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]
    columns = {table: {row[1] for row in db.rows(f"PRAGMA table_info({table})")} for table in tables}
    with_tenant = [table for table in tables if "tenant_id" in columns[table]]
    assert len(with_tenant) >= 10
    for table in with_tenant:
        keys = db.rows(f"PRAGMA foreign_key_list({table})")
        assert any(row[3] == "tenant_id" and row[6] == "CASCADE" for row in keys), table


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without a schema."""
    cluster = None if request.param == "sqlite" else request.getfixturevalue("cluster")
    return f"sqlite:///{tmp_path}/gos.db" if cluster is None else str(cluster.make_database())


def test_approvals_survive_the_rebuild_of_their_table(new_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    every = migrations.all_migrations()
    db.open_database(new_url)
    try:
        with monkeypatch.context() as before:
            before.setattr(migrations, "all_migrations", lambda: every[: names_of(every).index("action_approvals")])
            migrations.migrate()
        for sql in OLD_REQUEST:
            db.write(partial(db.execute, sql))
        migrations.migrate()
        rows = db.rows("SELECT title, status, execution_id, requested_by, needed, asked_by, action_digest FROM approval")
        assert rows == [("Ship?", "pending", "exe_1", "key:k", 1, "", None)]
        db.write(lambda: db.execute("INSERT INTO approval_vote VALUES ('one', 'apr_1', 'usr_1', 'ann', 'approve', '', 1)"))
        db.write(lambda: db.execute("DELETE FROM execution"))
        assert db.rows("SELECT 1 FROM approval UNION ALL SELECT 1 FROM approval_vote") == []
    finally:
        db.close_database()


def names_of(every: list[migrations.Migration]) -> list[str]:
    return [migration.name for migration in every]


OLD_REQUEST = (
    "INSERT INTO tenant (id, name, kind, created_at) VALUES ('one', 'One', 'standard', 1)",
    """INSERT INTO process (tenant_id, id, name, definition, files, draft_digest, created_at, updated_at)
       VALUES ('one', 'p', 'P', '{}', '{}', '', 1, 1)""",
    """INSERT INTO execution (tenant_id, id, process_id, version, status, input, priority, created_at, enqueued_at, active_ms,
       lease_until, fence, claims, cancel_requested, actor, request_id)
       VALUES ('one', 'exe_1', 'p', 1, 'running', '{}', 0, 1, 1, 0, 0, 0, 0, 0, 'system', '')""",
    """INSERT INTO approval (tenant_id, id, kind, title, reason, choices, approvers, digest, status, execution_id, process_id,
       step, path, iteration, host_call, attempt, requested_by, created_at, comment) VALUES ('one', 'apr_1', 'approval',
       'Ship?', '', '[]', '[]', 'd', 'pending', 'exe_1', 'p', 's', 's', '', 0, 1, 'key:k', 1, '')""",
)


def test_keys_whose_writes_by_mcp_are_on_record_become_agent_keys(new_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    every = migrations.all_migrations()
    db.open_database(new_url)
    try:
        with monkeypatch.context() as before:
            before.setattr(migrations, "all_migrations", lambda: every[: names_of(every).index("key_kind")])
            migrations.migrate()
        for sql in OLD_KEYS:
            db.write(partial(db.execute, sql))
        migrations.migrate()
        rows = db.rows("SELECT id, kind FROM api_key ORDER BY id")
        assert rows == [("key_a", "agent"), ("key_b", "service"), ("key_c", "service")]
    finally:
        db.close_database()


OLD_KEY = """INSERT INTO api_key (id, tenant_id, digest, name, environment, prefix, last4, scopes, created_at, expires_at,
    rate_requests, rate_window_s, allowed_ips, created_by)
    VALUES ('key_$', 'one', '$', 'K', 'live', 'p', 'l', '[]', 1, 2, 1, 1, '[]', 'system')"""
OLD_ENTRY = "INSERT INTO audit_entry (tenant_id, seq, at, actor, action, subject, fields, previous_hash, hash) VALUES "
OLD_KEYS = (
    "INSERT INTO tenant (id, name, kind, created_at) VALUES ('one', 'One', 'standard', 1)",
    *(OLD_KEY.replace("$", letter) for letter in "abc"),
    OLD_ENTRY + """('one', 1, 1, 'key:key_a', 'policy.require_approval', 's', '{"via":"mcp"}', '', '1')""",
    OLD_ENTRY + """('one', 2, 1, 'key:key_b', 'policy.deny', 's', '{"via":"rest"}', '', '2')""",
    OLD_ENTRY + """('one', 3, 1, 'key:key_c', 'note.made', 's', '{"via":"mcp"}', '', '3')""",
)
