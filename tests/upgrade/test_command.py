"""`gos upgrade`: tried on a copy, swapped in one transaction, and rolled back."""

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from appliance import cli
from appliance.app.parts import make_places
from appliance.app.store import open_store
from appliance.backups.rehearsal import servers
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.database.presence import Presence
from appliance.core.errors import ApplianceError, Conflict, StorageFull
from appliance.migrations import BASELINE, last_number, sequence, upgrading
from appliance.tenants import service
from appliance.upgrade import UpgradeOptions, checks, delete_expired_copy, findings, finish, rehearse, roll_back, upgrade
from appliance.upgrade.journal import copy_of, read_journal, upgrade_lock
from appliance.upgrade.problems import UpgradeFailed
from tests.upgrade.old_data import Steps, make_old_data
from tests.upgrade.test_kills import read_state
from tests.upgrade.test_upgrade import opened

LEDGER = list(range(BASELINE, last_number() + 1))


@pytest.fixture
def old(tmp_path: Path) -> Config:
    return make_old_data(tmp_path / "data")


def hash_of(config: Config) -> str:
    return hashlib.sha256((config.data / "gos.db").read_bytes()).hexdigest()


def state_of(config: Config) -> Any:
    with opened(config.database_url):
        return read_state()


def use(config: Config) -> None:
    """Start this release on the data, and write."""
    open_store(config)
    try:
        service.create_tenant("later", "Later")
    finally:
        db.close_database()


def leftovers(config: Config) -> list[str]:
    """What is in the folders of rehearsals and upgrades."""
    paths = [*(config.data / "rehearsals").glob("*"), *(config.data / "upgrade").glob("*")]
    return sorted(path.name for path in paths)


# -- the way that goes well


def test_it_is_rehearsed_while_the_former_release_runs(old: Config) -> None:
    before, steps = hash_of(old), Steps()
    presence = Presence(old.data / "workers")
    with closing(sqlite3.connect(old.data / "gos.db")) as other:
        other.execute("SELECT count(*) FROM execution").fetchone()
        result = rehearse(old, steps.options())
    presence.close()
    assert steps.names() == ["check", "copy", "migrate", "compare", "start", "rehearsed"]
    assert (result.from_number, result.to_number, result.is_changed) == (75, last_number(), False)
    assert result.rows > 200
    assert result.down_ms >= result.migrate_ms + result.start_ms > 0
    assert (hash_of(old), leftovers(old)) == (before, [])


def test_it_is_upgraded_rolled_back_and_upgraded_again(old: Config) -> None:
    former, steps = state_of(old), Steps()
    result = upgrade(old, steps.options())
    assert steps.names() == ["check", "copy", "migrate", "compare", "start", "swap", "done"]
    assert (result.is_changed, len(result.migrations)) == (True, last_number() - BASELINE)
    new = state_of(old)
    assert new[0] == LEDGER
    assert leftovers(old) == ["before.db", "journal.json", "lock"]
    assert roll_back(old, steps.report, lose_changes=False).state == "rolled_back"
    assert state_of(old) == former
    assert leftovers(old) == ["journal.json", "lock"]
    upgrade(old, steps.options())
    assert state_of(old)[1:] == new[1:]
    use(old)
    with opened(old.database_url):
        assert db.rows("SELECT id, status FROM execution") != []


def test_data_of_this_release_stay_as_they_are(old: Config) -> None:
    use(old)
    before, steps = hash_of(old), Steps()
    assert not upgrade(old, steps.options()).is_changed
    assert steps.names() == ["check", "done"]
    assert hash_of(old) == before


def test_the_command_prints_the_steps_and_its_result(old: Config, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--data", str(old.data), "upgrade", "--rehearse", "--json"]) == 0
    printed = capsys.readouterr()
    assert '"is_changed": false' in printed.out
    assert "the upgrade will stop the appliance for about" in printed.err
    assert cli.main(["--data", str(old.data), "upgrade", "--roll-back"]) == 1
    assert "there is no copy of a former database" in capsys.readouterr().err


# -- what ends it before anything has changed


def test_it_is_refused_while_an_appliance_or_a_command_uses_the_data(old: Config) -> None:
    before = hash_of(old)
    presence = Presence(old.data / "workers")
    with pytest.raises(Conflict, match=r"an appliance is running on .*: stop it, then run `gos upgrade` again"):
        upgrade(old, Steps().options())
    presence.close()
    with closing(sqlite3.connect(old.data / "gos.db")) as other:
        other.execute("SELECT count(*) FROM execution").fetchone()
        with pytest.raises(Conflict, match=r"another process uses .*gos\.db: stop the appliance"):
            upgrade(old, Steps().options())
    with upgrade_lock(old.data):
        with pytest.raises(Conflict, match="another `gos upgrade` works on this data folder"):
            upgrade(old, Steps().options())
        with pytest.raises(Conflict, match="`gos upgrade` works on this data folder; start the appliance when it is done"):
            open_store(old)
    assert hash_of(old) == before


def test_no_process_can_open_the_database_during_the_upgrade(old: Config) -> None:
    refused = []

    def report(step: str, _: str) -> None:
        if step in ("copy", "migrate", "start"):
            with closing(sqlite3.connect(old.data / "gos.db", timeout=0)) as other:
                try:
                    other.execute("SELECT count(*) FROM execution").fetchone()
                except sqlite3.OperationalError as error:
                    refused.append((step, str(error)))

    upgrade(old, UpgradeOptions(make_places, report))
    assert refused == [(step, "database is locked") for step in ("copy", "migrate", "start")]


def test_a_full_disk_is_noticed_before(old: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    before = hash_of(old)
    monkeypatch.setattr(checks, "SPARE_BYTES", 1 << 60)
    for command in (rehearse, upgrade):
        with pytest.raises(StorageFull, match=r"free space, then try again\. Nothing was changed"):
            command(old, Steps().options())
    assert hash_of(old) == before


def test_root_leaves_no_files_among_those_of_the_service(old: Config) -> None:
    """The tests run as root, or this process could not give a file away."""
    before = hash_of(old)
    os.chown(old.data / "gos.db", 65_000, 65_000)
    for command in (rehearse, upgrade):
        with pytest.raises(Conflict, match=r"gos\.db belongs to the user 65000, so run this command as that user"):
            command(old, Steps().options())
    with pytest.raises(Conflict, match="belongs to the user"):
        roll_back(old, Steps().report, lose_changes=False)
    assert (hash_of(old), leftovers(old)) == (before, [])
    assert not (old.data / "upgrade").exists()


def test_a_foreign_master_key_is_refused(old: Config) -> None:
    before = hash_of(old)
    (old.data / "key").write_text("A" * 43 + "=\n")
    for command in (rehearse, upgrade):
        with pytest.raises(ApplianceError, match="which opens nothing in this database"):
            command(old, Steps().options())
    assert hash_of(old) == before


BROKEN = {
    "INSERT INTO absent VALUES (1)": "the migrations of a copy failed: OperationalError: no such table: absent",
    "DELETE FROM document WHERE tenant_id = 'demo'": r"the table document has 0 rows of the tenant demo .*, and had \d+ before",
}
"""A further statement of a migration, and why it is refused."""


def break_migration(monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """Let the last but one migration of this release end with a further statement."""
    real = sequence.statements

    def statements(number: int, *, is_sqlite: bool) -> Iterator[str]:
        yield from real(number, is_sqlite=is_sqlite)
        if number == last_number() - 1:
            yield statement

    monkeypatch.setattr(upgrading, "statements", statements)


@pytest.mark.parametrize("statement", BROKEN)
def test_a_broken_migration_changes_nothing(old: Config, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    before, steps = hash_of(old), Steps()
    break_migration(monkeypatch, statement)
    with pytest.raises(UpgradeFailed, match=BROKEN[statement]):
        rehearse(old, steps.options())
    with pytest.raises(UpgradeFailed, match=BROKEN[statement]):
        upgrade(old, steps.options())
    assert steps[-1] == ("failed", "nothing was changed: start the former release")
    assert (hash_of(old), leftovers(old)) == (before, ["journal.json", "lock"])
    journal = read_journal(old.data)
    assert journal is not None
    assert (journal.state, journal.copy_sha256) == ("failed", "")


def test_a_migration_that_fails_only_on_the_database_itself_is_undone(old: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """All before it too, although the copy of the former database is not needed for that."""
    former, steps = state_of(old), Steps()
    real, calls = sequence.statements, []

    def statements(number: int, *, is_sqlite: bool) -> Iterator[str]:
        calls.append(number)
        yield from real(number, is_sqlite=is_sqlite)
        if calls.count(last_number() - 1) == 2:
            yield "INSERT INTO absent VALUES (1)"

    monkeypatch.setattr(upgrading, "statements", statements)
    with pytest.raises(UpgradeFailed, match=r"the migrations of the database failed, and all of them were undone: .*absent"):
        upgrade(old, steps.options())
    assert steps[-1] == ("settle", "the last upgrade ended before it changed the database, which is the former one")
    assert state_of(old) == former
    monkeypatch.undo()
    assert upgrade(old, steps.options()).is_changed


def test_a_release_that_does_not_start_changes_nothing(old: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    before = hash_of(old)
    monkeypatch.setattr(servers, "write_config", lambda *of: of[1].write_text('{"server": {"prot": 1}}'))
    with pytest.raises(UpgradeFailed, match=r"does not start on the copy: .*unknown setting 'server.prot'"):
        upgrade(old, Steps().options())
    assert (hash_of(old), leftovers(old)) == (before, ["journal.json", "lock"])


def test_damage_that_was_there_before_needs_a_decision(old: Config) -> None:
    before = hash_of(old)
    for path in (old.data / "blobs" / "demo").rglob("*"):
        if path.is_file():
            path.write_bytes(b"x" * path.stat().st_size)
    steps = Steps()
    for command in (rehearse, upgrade):
        with pytest.raises(UpgradeFailed, match=r"a content of the tenant demo is damaged .* add --despite-problems"):
            command(old, steps.options())
    assert hash_of(old) == before
    assert upgrade(old, steps.options(despite_problems=True)).problems != ()
    assert state_of(old)[0] == LEDGER


# -- back again, until when


def test_a_roll_back_after_the_first_use_needs_a_flag(old: Config) -> None:
    former, steps = state_of(old), Steps()
    upgrade(old, steps.options())
    use(old)
    with pytest.raises(Conflict, match=r"loses what was written. Add --lose-changes"):
        roll_back(old, steps.report, lose_changes=False)
    with opened(old.database_url):
        assert ("later",) in db.rows("SELECT id FROM tenant")
    roll_back(old, steps.report, lose_changes=True)
    assert state_of(old) == former


def test_reading_commands_are_no_use(old: Config, capsys: pytest.CaptureFixture[str]) -> None:
    upgrade(old, Steps().options())
    assert cli.main(["--data", str(old.data), "backup", str(old.data / "x.gosb")]) == 0
    assert cli.main(["--data", str(old.data), "doctor"]) in (0, 1)
    assert "upgrade --finish` deletes it" in capsys.readouterr().out
    assert roll_back(old, Steps().report, lose_changes=False).state == "rolled_back"


def test_a_copy_that_was_changed_or_belongs_to_another_database_is_not_used(old: Config) -> None:
    upgrade(old, Steps().options())
    copy = copy_of(old.data).read_bytes()
    copy_of(old.data).write_bytes(copy[:-1] + b"x")
    with pytest.raises(UpgradeFailed, match="was changed or damaged since the upgrade, so nothing was rolled back"):
        roll_back(old, Steps().report, lose_changes=False)
    copy_of(old.data).write_bytes(copy)
    (old.data / "gos.db").write_bytes(copy)  # the former database was put back by hand, and used
    with opened(old.database_url):
        db.write(lambda: db.execute("UPDATE tenant SET name = 'Changed'"))
    with pytest.raises(UpgradeFailed, match="the database has migration 75 and not"):
        roll_back(old, Steps().report, lose_changes=False)
    with opened(old.database_url):
        assert db.rows("SELECT name FROM tenant") == [("Changed",)]


def test_the_copy_is_deleted_on_request_or_72_hours_after_the_first_use(old: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps()
    upgrade(old, steps.options())
    assert [level for level, _ in findings(old)] == ["note"]
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now + 1000 * 3_600_000)
    delete_expired_copy(old)
    assert copy_of(old.data).exists(), "this release has not used the database yet"
    use(old)
    delete_expired_copy(old)
    assert copy_of(old.data).exists()
    monkeypatch.setattr(clock, "now_ms", lambda: now + 1073 * 3_600_000)
    delete_expired_copy(old)
    assert not copy_of(old.data).exists()
    assert list(findings(old)) == []
    with pytest.raises(UpgradeFailed, match="there is no copy of a former database"):
        roll_back(old, steps.report, lose_changes=True)


def test_finish_deletes_the_copy(old: Config) -> None:
    steps = Steps()
    assert not finish(old, steps.report)
    upgrade(old, steps.options())
    assert finish(old, steps.report)
    assert not copy_of(old.data).exists()
