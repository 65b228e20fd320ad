"""`gos upgrade` of a PostgreSQL database: all migrations are one transaction of the server."""

import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest

from appliance import migrations
from appliance.app.store import open_store
from appliance.core.config import Config, load_config
from appliance.core.database import db
from appliance.core.errors import Conflict
from appliance.migrations import development, last_number
from appliance.upgrade import journal as journals
from appliance.upgrade import rehearse, roll_back, upgrade
from appliance.upgrade.problems import UpgradeFailed
from appliance.upgrade.swapping import migrate_compared
from tests.forking import Forked
from tests.store.cluster import Cluster
from tests.upgrade.old_data import Steps, make_old_data, migrate_until, roll_back_until
from tests.upgrade.test_command import break_migration, leftovers, state_of
from tests.upgrade.test_kills import read_state
from tests.upgrade.test_upgrade import opened


@pytest.fixture
def old(tmp_path: Path, cluster: Cluster) -> Config:
    return make_old_data(tmp_path / "data", cluster.make_database())


def migrated_copy(config: Config, cluster: Cluster) -> Any:
    """The state of a copy that was migrated one by one."""
    url = cluster.copy_database(config.database_url)
    with opened(url):
        migrations.migrate()
        state = read_state()
    cluster.drop_database(url)
    return state


def test_it_is_rehearsed_in_a_file_and_upgraded_at_once(old: Config, cluster: Cluster) -> None:
    former, new, steps = state_of(old), migrated_copy(old, cluster), Steps()
    assert rehearse(old, steps.options()).from_number == development.LAST
    assert state_of(old) == former
    assert upgrade(old, steps.options()).is_changed
    assert steps.names()[-2:] == ["swap", "done"]
    assert state_of(old) == new
    assert roll_back(old, steps.report, lose_changes=False).state == "rolled_back"
    assert state_of(old) == former
    assert leftovers(old) == ["journal.json", "lock"]
    assert upgrade(old, steps.options()).is_changed
    assert state_of(old) == new


def test_a_use_by_another_machine_is_noticed(old: Config, tmp_path: Path) -> None:
    """Its data folder has another journal, but the database is the same."""
    former = state_of(old)
    upgrade(old, Steps().options())
    shutil.copytree(old.data, tmp_path / "other", ignore=shutil.ignore_patterns("upgrade"))
    other = load_config(environment={}, flags={"storage.data": str(tmp_path / "other"), "storage.database": old.database_url})
    open_store(other)
    db.close_database()
    with pytest.raises(Conflict, match="has used the database since the upgrade"):
        roll_back(old, Steps().report, lose_changes=False)
    roll_back(old, Steps().report, lose_changes=True)
    assert state_of(old) == former


def test_a_roll_back_gives_out_no_number_again(old: Config) -> None:
    """Numbers of rows that were deleted before the upgrade are used up: followers and cursors have seen them."""
    sequence = "pg_get_serial_sequence('log_line', 'id')"
    with opened(old.database_url):
        db.write(lambda: db.rows(f"SELECT setval({sequence}, 4711)"))
    upgrade(old, Steps().options())
    roll_back(old, Steps().report, lose_changes=False)
    with opened(old.database_url):
        assert db.write(lambda: db.rows(f"SELECT nextval({sequence})")) == [(4712,)]


def test_a_roll_back_of_another_database_is_refused(old: Config) -> None:
    upgrade(old, Steps().options())
    with opened(old.database_url):
        db.write(lambda: db.execute("DELETE FROM migration WHERE number = ?", (last_number(),)))
        other = read_state()
    with pytest.raises(UpgradeFailed, match=rf"the database has migration {last_number() - 1} and not {last_number()}"):
        roll_back(old, Steps().report, lose_changes=True)
    assert state_of(old) == other


def test_a_use_that_begins_during_the_roll_back_is_noticed(old: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(old, Steps().options())
    new, save = state_of(old), journals.save_journal

    def save_and_use(data: Path, journal: journals.Journal) -> None:
        save(data, journal)
        if journal.state == journals.ROLLING_BACK:
            with psycopg.connect(old.database_url) as other:  # as the start of this release on another machine
                other.execute("COMMENT ON TABLE migration IS NULL")

    monkeypatch.setattr(journals, "save_journal", save_and_use)
    with pytest.raises(UpgradeFailed, match="has used the database since the upgrade"):
        roll_back(old, Steps().report, lose_changes=False)
    assert state_of(old) == new


def test_a_roll_back_that_is_killed_at_any_statement_changes_nothing(old: Config, tmp_path: Path) -> None:
    former = state_of(old)
    upgrade(old, Steps().options())
    new = state_of(old)
    for number in (0, 3, 100, 400):
        code = Forked(roll_back_until, str(old.data), old.database_url, number, log=tmp_path / "log").wait(60)
        assert code == -9, (tmp_path / "log").read_text()
        with opened(old.database_url):
            db.write(lambda: db.rows("SELECT 1"))  # waits until the server has rolled back
        assert state_of(old) == new
    steps = Steps()
    roll_back(old, steps.report, lose_changes=False)
    assert steps.names() == ["settle", "rolled back"]
    assert state_of(old) == former


def test_a_roll_back_that_does_not_bring_every_row_changes_nothing(old: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(old, Steps().options())
    new = state_of(old)
    monkeypatch.setattr("appliance.backups.copying.insert_rows", lambda table, columns, rows: 0)
    with pytest.raises(UpgradeFailed, match="would not have all rows"):
        roll_back(old, Steps().report, lose_changes=False)
    monkeypatch.setattr("appliance.upgrade.servers.load_rows", lambda source: db.execute("INSERT INTO absent VALUES (1)"))
    with pytest.raises(UpgradeFailed, match=r"could not be put back: .*absent"):
        roll_back(old, Steps().report, lose_changes=False)
    monkeypatch.undo()
    assert state_of(old) == new
    roll_back(old, Steps().report, lose_changes=False)


@pytest.mark.parametrize(("statement", "why"), [
    ("INSERT INTO absent VALUES (1)", "absent"), ("DELETE FROM document WHERE tenant_id = 'demo'", "the table document has 0 rows"),
])  # fmt: skip
def test_a_broken_migration_changes_nothing(old: Config, monkeypatch: pytest.MonkeyPatch, statement: str, why: str) -> None:
    """Also if it fails on the server only, and not in the rehearsal."""
    former = state_of(old)
    break_migration(monkeypatch, statement)
    with pytest.raises(UpgradeFailed, match=why):
        upgrade(old, Steps().options())
    with opened(old.database_url), pytest.raises(Exception, match=why):
        migrate_compared()
    assert state_of(old) == former


def test_a_session_of_an_appliance_on_another_machine_is_noticed(old: Config) -> None:
    former = state_of(old)
    with psycopg.connect(old.database_url) as other:
        other.execute("SELECT pg_advisory_lock(4711)")
        with pytest.raises(Conflict, match="an appliance is running"):
            upgrade(old, Steps().options())
    assert state_of(old) == former


def test_a_kill_at_any_statement_leaves_the_former_or_the_new_database(old: Config, cluster: Cluster, tmp_path: Path) -> None:
    former, new, left = state_of(old), migrated_copy(old, cluster), []
    for number in (0, 1, 2, 5, 30, 60, 90, 1000):
        url = cluster.copy_database(old.database_url)
        code = Forked(migrate_until, url, number, log=tmp_path / "log").wait(60)
        assert code in (0, -9), (tmp_path / "log").read_text()
        with opened(url):
            db.write(lambda: db.rows("SELECT 1"))  # waits until the server has rolled back
            left.append(read_state())
        cluster.drop_database(url)
    assert left == [former] * (len(left) - 1) + [new]
    assert last_number() in new[0]
