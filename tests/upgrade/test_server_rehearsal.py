"""The rehearsal of `gos upgrade` on a PostgreSQL server: in a schema beside the one of the appliance, which goes on meanwhile."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from appliance import cli
from appliance.core.config import Config, load_config
from appliance.core.database.advisory_locks import WRITER_LOCK
from appliance.core.database.schema_copies import SchemaCopy
from appliance.core.database.throw_away_schemas import create_schema, name_schema, open_session, url_in
from appliance.migrations import development, last_number
from appliance.upgrade import UpgradeOptions, finish, rehearse, upgrade
from appliance.upgrade.problems import UpgradeFailed
from tests.backups.rehearsal.test_trials import processes_of
from tests.forking import Forked
from tests.processes.world import wait_until
from tests.store.cluster import Cluster
from tests.upgrade.killing import BEFORE, watch_server
from tests.upgrade.old_data import Steps, make_old_data
from tests.upgrade.test_command import break_migration, leftovers, state_of
from tests.upgrade.test_kills import read_state
from tests.upgrade.test_upgrade import opened

STEPS = ["check", "copy", "migrate", "compare", "start"]
ON_SQLITE_ONLY = "UPDATE tenant SET name = name WHERE rowid > 0"


@pytest.fixture
def old(tmp_path: Path, cluster: Cluster) -> Config:
    return make_old_data(tmp_path / "data", cluster.make_database())


def ask_server(config: Config, sql: str, *params: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(config.database_url, autocommit=True) as other:
        return other.execute(sql.encode(), params or None).fetchall()


def schemas(config: Config) -> list[str]:
    rows = ask_server(config, "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema)' ORDER BY 1")
    return [str(name) for (name,) in rows if name != "public"]


class Watching(Steps):
    """The steps, and what the server has at each of them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.seen: dict[str, list[int]] = {}

    def report(self, step: str, text: str) -> None:
        super().report(step, text)
        for schema in schemas(self.config):
            ((number,),) = ask_server(self.config, f'SELECT max(number) FROM "{schema}".migration')  # noqa: S608
            self.seen.setdefault(step, []).append(number)


@contextmanager
def writing(config: Config) -> Iterator[None]:
    """Another process in the middle of a write, which keeps all other writes out, and has changed a row of each tenant."""
    with psycopg.connect(config.database_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (WRITER_LOCK,))
        other.execute("UPDATE tenant SET name = name")
        yield


# -- what it does


def test_it_is_rehearsed_on_the_server_while_the_appliance_writes(old: Config) -> None:
    former, steps = state_of(old), Watching(old)
    with writing(old):
        result = rehearse(old, steps.options())
    assert steps.names() == [*STEPS, "keep", "rehearsed"]
    assert steps.seen == {
        "copy": [development.LAST], **{step: [last_number()] for step in ("migrate", "compare", "start")}
    }, "the copy is migrated, compared and started, and then dropped"
    assert (result.from_number, result.to_number, result.is_changed) == (development.LAST, last_number(), False)
    assert result.rows > 200
    assert result.down_ms >= result.migrate_ms + result.start_ms > 0
    assert (schemas(old), leftovers(old)) == ([], [])
    assert state_of(old) == former


def test_the_release_that_is_started_tells_a_running_appliance_nothing(old: Config) -> None:
    """Its notices have a channel of their own, and its locks other numbers: nobody counts it as a server."""
    counts: list[int] = []

    def report(step: str, _: str) -> None:
        if step == "start":
            counts.extend(n for (n,) in ask_server(old, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN gos'"))

    with psycopg.connect(old.database_url, autocommit=True) as other:
        other.execute("LISTEN gos")
        rehearse(old, UpgradeOptions(Steps().options().places_of, report))
        assert list(other.notifies(timeout=0)) == []
    assert counts == [1], "only this connection"


@pytest.mark.parametrize("command", [rehearse, upgrade])
def test_what_only_sqlite_understands_is_noticed(old: Config, monkeypatch: pytest.MonkeyPatch, command: Any) -> None:
    former = state_of(old)
    break_migration(monkeypatch, ON_SQLITE_ONLY)
    with pytest.raises(UpgradeFailed, match=r"the migrations of a copy failed: .*rowid"):
        command(old, Steps().options())
    assert (state_of(old), schemas(old)) == (former, [])


def test_lost_rows_are_noticed(old: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    break_migration(monkeypatch, "DELETE FROM document WHERE tenant_id = 'demo'")
    with pytest.raises(UpgradeFailed, match=r"the table document has 0 rows of the tenant demo .*, and had \d+ before"):
        rehearse(old, Steps().options())
    assert schemas(old) == []


def test_in_a_file_nothing_of_the_server_is_rehearsed(old: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    former, steps = state_of(old), Watching(old)
    break_migration(monkeypatch, ON_SQLITE_ONLY)
    rehearse(old, steps.options(in_file=True))
    assert (steps.names(), steps.seen) == ([*STEPS, "rehearsed"], {})
    with pytest.raises(UpgradeFailed, match=r"the migrations of the database failed, and all of them were undone: .*rowid"):
        upgrade(old, Steps().options(in_file=True))
    assert state_of(old) == former


def test_a_schema_that_the_url_names_is_copied(tmp_path: Path, cluster: Cluster) -> None:
    """Its name, and the URL's, need quotes; the copy leaves its sequences alone."""
    url = cluster.make_database()
    name = url.removeprefix("postgresql://gos@/").partition("?")[0]
    cluster.execute('CREATE SCHEMA "own-Tables"', name)
    config = make_old_data(tmp_path / "data", f"{url}&options=-c%20search_path%3D%22own-Tables%22&application_name=a%20b")
    last = ask_server(config, "SELECT schemaname, sequencename, last_value FROM pg_sequences ORDER BY 1, 2")
    assert {schema for schema, *_ in last} == {"own-Tables"}
    assert rehearse(config, Steps().options()).rows > 200
    assert ask_server(config, "SELECT schemaname, sequencename, last_value FROM pg_sequences ORDER BY 1, 2") == last


def test_the_copy_is_as_the_original(old: Config) -> None:
    """All rows and columns, constraints and indexes by their names, and sequences that go on with the same numbers."""
    upgrade(old, Steps().options())
    schema = name_schema()
    url = url_in(old.database_url, "", schema)
    with open_session(old.database_url) as reader, open_session(url) as writer:
        create_schema(writer, schema)
        SchemaCopy(reader, writer, "public", schema).make()
        copied = [describe(each) for each in (reader, writer)]
    assert copied[0] == copied[1]
    assert len(copied[0]["constraints"]) > 100 < len(copied[0]["indexes"])
    with opened(url):
        state = read_state()
    assert normal(state, schema) == normal(state_of(old), "public")


def describe(session: Any) -> dict[str, list[tuple[Any, ...]]]:
    queries = {
        "constraints": "SELECT t.relname, c.conname, pg_get_constraintdef(c.oid) FROM pg_constraint c "
        "JOIN pg_class t ON t.oid = c.conrelid WHERE t.relnamespace = current_schema()::regnamespace ORDER BY 1, 2",
        "indexes": "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'i' ORDER BY 1",
        "sequences": "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = current_schema() ORDER BY 1",
        "owners": "SELECT pg_get_serial_sequence(quote_ident(table_name), column_name)::regclass::text FROM "
        "information_schema.columns WHERE table_schema = current_schema() AND column_default LIKE 'nextval(%' ORDER BY 1",
    }
    return {name: session.execute(sql).fetchall() for name, sql in queries.items()}


def normal(state: tuple[Any, ...], schema: str) -> str:
    return repr(state).replace(f"{schema}.", "")


# -- what stays when it is killed


def rehearse_until(data: str, url: str, words: str, number: int) -> int:
    """Rehearse; die before a statement to the server with these words, the one of this number, counted from 0."""
    left = number

    def is_last(sql: str) -> bool:
        nonlocal left
        left -= words in sql
        return left < 0

    watch_server(is_last, BEFORE)
    config = load_config(environment={}, flags={"storage.data": data, "storage.database": url})
    rehearse(config, Steps().options())
    return 0


def nobody_else(config: Config) -> None:
    """Wait until the server has noticed the end of all other sessions."""
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    wait_until(lambda: ask_server(config, sessions) == [(0,)], seconds=60)


@pytest.mark.parametrize(("words", "number", "is_left"), [
    ("COMMENT ON SCHEMA", 0, False), ("INCLUDING DEFAULTS", 0, True), ("INCLUDING DEFAULTS", 40, True), ("FOREIGN KEY", 50, True),
    ("INSERT INTO migration", 5, True), ("DROP TABLE", 30, True), ("DROP SCHEMA", 0, True),
])  # fmt: skip
def test_a_kill_changes_nothing_and_the_next_run_drops_the_copy(
    old: Config, tmp_path: Path, words: str, number: int, *, is_left: bool
) -> None:
    former, arguments = state_of(old), (str(old.data), old.database_url, words, number)
    code = Forked(rehearse_until, *arguments, log=tmp_path / "log").wait(120)
    assert code == -9, (tmp_path / "log").read_text()
    nobody_else(old)
    assert (len(schemas(old)), state_of(old)) == (is_left, former)
    steps = Steps()
    if number == 40:
        rehearse(old, steps.options())
        assert steps.names() == ["clean up", *STEPS, "keep", "rehearsed"]
    else:
        finish(old, steps.report)
        assert steps.names() == ["clean up"] * is_left
    assert (schemas(old), state_of(old)) == ([], former)


def test_a_kill_while_this_release_starts_leaves_no_process(old: Config, tmp_path: Path) -> None:
    former, rehearsals = state_of(old), old.data / "rehearsals"
    process = Forked(rehearse_until, str(old.data), old.database_url, "no such words", 0, log=tmp_path / "log")
    wait_until(lambda: bool(list(rehearsals.glob("*/serve.log")) and processes_of(rehearsals)), seconds=120)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    wait_until(lambda: processes_of(rehearsals) == [], seconds=60)
    nobody_else(old)
    assert len(schemas(old)) == 1
    assert not finish(old, Steps().report)
    assert (schemas(old), state_of(old)) == ([], former)


def test_nothing_is_dropped_that_is_not_marked_or_is_in_use(old: Config) -> None:
    names = {"gos_rehearsal_a": "A copy that is thrown away, made by gos: gos_rehearsal_b", "gos_rehearsal_c": "", "other": ""}
    with psycopg.connect(old.database_url, autocommit=True) as other:
        for name, comment in names.items():
            statements = f"CREATE SCHEMA {name}; COMMENT ON SCHEMA {name} IS '{comment}'; CREATE TABLE {name}.kept (n INT)"
            other.execute(statements.encode())
        other.execute("CREATE SCHEMA mine; COMMENT ON SCHEMA mine IS 'A copy that is thrown away, made by gos: mine'")
    inside: list[list[str]] = []

    def report(step: str, _: str) -> None:
        if step == "start":
            finish(old, Steps().report)  # of another process
            inside.append(schemas(old))

    with_file = UpgradeOptions(Steps().options().places_of, report)
    rehearse(old, with_file)
    assert len(inside[0]) == len(names) + 2, "the copy of the rehearsal that goes on is there too"
    assert schemas(old) == sorted([*names, "mine"])


# -- what the role may not, and what the server has no room for


@pytest.fixture
def unprivileged(tmp_path: Path, cluster: Cluster) -> Config:
    """Data in a database of which the role is not the owner."""
    url = cluster.make_database()
    name = url.removeprefix("postgresql://gos@/").partition("?")[0]
    cluster.execute("DO $$ BEGIN CREATE ROLE \"gos-app\" LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    cluster.execute('GRANT CREATE ON SCHEMA public TO "gos-app"', name)
    return make_old_data(tmp_path / "data", url.replace("gos@", "gos-app@"))


def test_a_role_without_the_right_gets_the_statement_that_grants_it(
    unprivileged: Config, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    config = unprivileged
    former = state_of(config)
    ((name,),) = ask_server(config, "SELECT current_database()")
    statement = f'GRANT CREATE ON DATABASE {name} TO "gos-app"'
    for words in (["--rehearse"], []):
        environment = ["--data", str(config.data), "upgrade", *words]
        assert cli.main(["--config", str(write_settings(config)), *environment]) == 1
        printed = capsys.readouterr().err
        assert f"run `{statement};`, or add --rehearse-in-file" in printed
        assert "Nothing was changed" in printed
    assert (state_of(config), schemas(config)) == (former, [])
    assert cli.main(["--config", str(write_settings(config)), "upgrade", "--rehearse", "--rehearse-in-file"]) == 0
    cluster.execute(statement)
    assert upgrade(config, Steps().options()).is_changed
    assert schemas(config) == []


def write_settings(config: Config) -> Path:
    path = config.data / "settings.yaml"
    path.write_text(f"storage:\n  data: {config.data}\n  database: {config.database_url}\n")
    return path


def test_a_server_without_space_changes_nothing(old: Config) -> None:
    """The server itself answers so, for the last tables; what was copied is dropped."""
    former = state_of(old)
    with psycopg.connect(old.database_url, autocommit=True) as other:
        other.execute("""CREATE FUNCTION full_disk() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
            IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE object_identity ~ '^gos_rehearsal_[^.]+[.]tenant$') THEN
                RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
            END IF; END $$""")
        other.execute("CREATE EVENT TRIGGER full_disk ON ddl_command_end EXECUTE FUNCTION full_disk()")
    with pytest.raises(UpgradeFailed, match=r"could not be copied: the disk of the database server is full .*--rehearse-in-file"):
        rehearse(old, Steps().options())
    with psycopg.connect(old.database_url, autocommit=True) as other:
        other.execute("DROP EVENT TRIGGER full_disk; DROP FUNCTION full_disk")
    assert (schemas(old), leftovers(old), state_of(old)) == ([], [], former)
