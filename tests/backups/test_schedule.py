"""Automatic backups: made when due, kept as configured, and reported by `gos doctor`."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from appliance.backups import backup_folder, backup_jobs, backup_runner, schedule
from appliance.backups.backup_folder import BackupResult, list_backups, temporary_folder
from appliance.backups.backup_runner import Progress
from appliance.backups.problems import BackupInvalid, Stopped
from appliance.backups.schedule import findings, get_status
from appliance.backups.snapshots import open_snapshot
from appliance.backups.verification import verify_backup
from appliance.blobs import Places
from appliance.core import clock
from appliance.core.config import load_config
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid, Conflict
from tests.backups.backup_processes import BackupProcess
from tests.backups.conftest import PASSPHRASE, World, make_world

HOUR = 3_600_000


@pytest.fixture
def scheduled(tmp_path: Path) -> World:
    world = make_world(tmp_path / "data")
    backup = replace(world.config.backup, to=str(tmp_path / "backups"), every="1h", keep=2, passphrase=PASSPHRASE)
    return World(replace(world.config, backup=backup))


def test_a_backup_is_made_when_due_and_old_ones_are_deleted(scheduled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(scheduled.config.backup.to)
    with scheduled.opened():
        own = BackupProcess(scheduled.config, scheduled.places)
        first = own.run_due()
        assert first is not None
        assert (first.problem, first.encrypted) == (None, True)
        assert verify_backup(Path(first.path), PASSPHRASE)["tables"]["tenant"] == 1
        assert own.run_due() is None
        for hours in (1, 2, 3):
            _leave_partial_files(folder, next(iter(folder.glob("*.gosb"))))
            monkeypatch.setattr(clock, "now_ms", lambda at=first.at + hours * HOUR + hours: at)
            assert own.run_due() is not None
        assert len(list_backups(scheduled.config)) == 2
        assert len(list(folder.iterdir())) == 2
        state = get_status(scheduled.config)
    assert state.last is not None
    assert state.next_at == state.files[0].made_at + HOUR
    texts = dict(findings(scheduled.config))
    assert "is complete" in texts["ok"]


def _leave_partial_files(folder: Path, backup_file: Path) -> None:
    """The files left by a process that was killed during a backup; the kernel has released its lock."""
    folder_of_backup = folder / f".gos-making-{backup_file.stem.rpartition('-')[2]}-0a1b2c3d"
    folder_of_backup.mkdir()
    (folder_of_backup / "lock").touch()
    (folder_of_backup / f".{backup_file.name}.partial").write_bytes(b"a part of it")


def test_appliances_that_share_a_folder_keep_their_own_backups(
    scheduled: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_world(tmp_path / "neighbour")
    other = World(replace(other.config, backup=scheduled.config.backup))
    names: dict[str, list[str]] = {"backed": [], "other": []}
    for _ in range(3):
        for name, world in (("backed", scheduled), ("other", other)):
            with world.opened():
                done = BackupProcess(world.config, world.places).run_due()
            assert done is not None, "the neighbour's newest is no backup of ours"
            assert done.problem is None
            names[name].append(Path(done.path).name)
        later(monkeypatch, 1)
    for name, world in (("backed", scheduled), ("other", other)):
        assert [backup.name for backup in list_backups(world.config)] == names[name][:0:-1]
    assert {path.name for path in Path(scheduled.config.backup.to).iterdir()} == {*names["backed"][1:], *names["other"][1:]}


def test_unfinished_backups_of_others_are_left_alone(scheduled: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another appliance's, the same installation's on another machine, and a `gos backup` by cron; old ones are orphaned."""
    folder = Path(scheduled.config.backup.to)
    folder.mkdir()
    names = (".gos-backup-x1", ".gos-nightly.gosb.ab12.partial", f".gos-making-ins_{'0' * 24}-00000000")
    by_hand = [folder / name for name in names]
    for path in by_hand:
        path.mkdir()
        (path / "gos.db").touch()
    with scheduled.opened():
        with temporary_folder(scheduled.config) as temporary:
            assert BackupProcess(scheduled.config, scheduled.places).run_due() is not None
            assert temporary.is_dir()
        assert all((path / "gos.db").exists() for path in by_hand)
        assert not temporary.exists()
        later(monkeypatch, 8 * 24)
        assert BackupProcess(scheduled.config, scheduled.places).run_due() is not None
    assert [path for path in folder.iterdir() if path.suffix != ".gosb"] == []


def test_backups_without_an_installation_id_are_not_deleted(scheduled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names from an earlier release; this installation's is the one recorded as the last backup."""
    folder = Path(scheduled.config.backup.to)
    folder.mkdir()
    old = [f"gos-2026010{day}T000000Z.gosb" for day in range(1, 6)]
    for name in old:
        (folder / name).write_bytes(b"the backup of whoever made it")
    with scheduled.opened():
        backup_folder.save_result(scheduled.config, BackupResult(0, str(folder / old[-1]), 1, 1, 0, True, None))
        assert [each.name for each in list_backups(scheduled.config)] == old[-1:]
        for _ in range(3):
            assert BackupProcess(scheduled.config, scheduled.places).run_due() is not None
            later(monkeypatch, 1)
    assert sorted(path.name for path in folder.iterdir() if "ins_" not in path.name) == old
    assert len(list_backups(scheduled.config)) == 2
    assert any("5 backups" in text and "names of an earlier release" in text for _, text in findings(scheduled.config))


def test_a_failed_backup_is_reported_and_retried(scheduled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(scheduled.config.backup.to)
    folder.write_text("a file is in the way")
    with scheduled.opened():
        own = BackupProcess(scheduled.config, scheduled.places)
        failed = own.run_due()
        assert failed is not None
        assert failed.problem is not None
        assert ("FAIL", True) in {(level, failed.problem in text) for level, text in findings(scheduled.config)}
        assert own.run_due() is None
        folder.unlink()
        later = clock.now_ms() + schedule.RETRY_MS + 1
        monkeypatch.setattr(clock, "now_ms", lambda: later)
        retried = own.run_due()
    assert retried is not None
    assert retried.problem is None


def later(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    at = clock.now_ms() + hours * HOUR + 1
    monkeypatch.setattr(clock, "now_ms", lambda: at)


def test_unreadable_files_in_the_folder_do_not_prevent_backups(scheduled: World) -> None:
    """A broken link, a folder, a file deleted at that moment: the next backup is made regardless."""
    folder = Path(scheduled.config.backup.to)
    folder.mkdir()
    with scheduled.opened():
        own = backup_folder.new_path(scheduled.config).name.partition("Z")[2]
        (folder / f"gos-20260101T000000Z{own}").symlink_to("/nowhere/there")
        (folder / f"gos-20260102T000000Z{own}").mkdir()
        result = BackupProcess(scheduled.config, scheduled.places).run_due()
    assert result is not None
    assert result.problem is None
    assert [each.name for each in list_backups(scheduled.config)] == [Path(result.path).name]
    assert "is complete" in dict(findings(scheduled.config))["ok"]


def test_an_unreadable_folder_is_reported(scheduled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, iterdir = Path(scheduled.config.backup.to), Path.iterdir
    folder.mkdir()

    def refuse(path: Path) -> Iterator[Path]:
        if path == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    monkeypatch.setattr(backup_folder, "delete_leftovers", lambda _: list(folder.iterdir()))
    monkeypatch.setattr(backup_runner, "delete_leftovers", lambda _: list(folder.iterdir()))
    with scheduled.opened():
        own = BackupProcess(scheduled.config, scheduled.places)
        own.request(PASSPHRASE)
        failed = own.run_due()
        assert backup_jobs.find_running() is None
    assert failed is not None
    assert "Permission denied" in str(failed.problem)
    assert "Permission denied" in dict(findings(scheduled.config))["FAIL"]


def test_a_deleted_backup_is_not_reported_as_complete(scheduled: World) -> None:
    with scheduled.opened():
        result = BackupProcess(scheduled.config, scheduled.places).run_due()
    assert result is not None
    Path(result.path).unlink()
    assert "is the disk mounted" in dict(findings(scheduled.config))["FAIL"]


def test_after_a_fast_clock_backups_continue_and_the_new_one_is_kept(
    scheduled: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock was a year ahead for a while: the backup made then counts as the oldest, whatever its name says."""
    now, folder = clock.now_ms(), Path(scheduled.config.backup.to)
    with scheduled.opened():
        own = BackupProcess(scheduled.config, scheduled.places)
        for _ in range(2):
            later(monkeypatch, 5 * 365 * 24)
            assert own.run_due() is not None
        future_names = {path.name for path in folder.iterdir()}
        for hours in (0, 1):
            at = now + hours * (HOUR + 1)
            monkeypatch.setattr(clock, "now_ms", lambda at=at: at)
            result = own.run_due()
            assert result is not None, "due again as soon as the clock is right"
            assert Path(result.path).exists(), "the one that was just made is kept"
            assert own.run_due() is None
    assert future_names.isdisjoint({path.name for path in folder.iterdir()})
    assert "is complete" in dict(findings(scheduled.config))["ok"]


def test_a_backup_that_failed_under_a_fast_clock_is_retried(scheduled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, now = Path(scheduled.config.backup.to), clock.now_ms()
    folder.write_text("a file is in the way")
    with scheduled.opened():
        own = BackupProcess(scheduled.config, scheduled.places)
        later(monkeypatch, 5 * 365 * 24)
        failed = own.run_due()
        assert failed is not None
        assert failed.problem is not None
        folder.unlink()
        monkeypatch.setattr(clock, "now_ms", lambda: now)
        retried = own.run_due()
    assert retried is not None
    assert retried.problem is None


def test_a_backup_that_cannot_be_restored_is_a_failure(scheduled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(scheduled.config.backup.to)
    with scheduled.opened():
        own = BackupProcess(scheduled.config, scheduled.places)
        for _ in range(2):
            assert own.run_due() is not None
            later(monkeypatch, 1)
        good = {path.name for path in folder.iterdir()}
        with closing(sqlite3.connect(scheduled.config.data / "gos.db")) as file, file:
            file.execute("INSERT INTO secret (tenant_id, name, sealed, updated_at) VALUES ('nobody', 'x', x'00', 0)")
        failed = own.run_due()
    assert failed is not None
    assert "refers to a missing row" in str(failed.problem)
    assert {path.name for path in folder.iterdir()} == good
    assert "FAIL" in dict(findings(scheduled.config))


def test_a_backup_with_missing_contents_deletes_no_older_one(scheduled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older backups may still have the missing contents."""
    with scheduled.opened():
        scope = scheduled.fill()
        own = BackupProcess(scheduled.config, scheduled.places)
        for _ in range(2):
            assert own.run_due() is not None
            later(monkeypatch, 1)
        ((place,),) = db.rows("SELECT place FROM blob WHERE tenant_id = ?", (scope.tenant_id,))
        (scheduled.config.data / "blobs" / place).unlink()
        result = own.run_due()
    assert result is not None
    assert "1 contents are damaged" in str(result.problem)
    assert len(list_backups(scheduled.config)) == 3


class _BrokenPlaces:
    """Contents that fail with an unexpected exception."""

    def read(self, place: str, start: int, end: int) -> Any:
        raise RuntimeError(f"nobody thought of {place[:7]} {start} {end > 0}")


def test_an_unexpected_exception_is_reported(scheduled: World) -> None:
    with scheduled.opened():
        scheduled.fill()
        failed = BackupProcess(scheduled.config, cast(Places, _BrokenPlaces())).run_due()
    assert failed is not None
    assert "RuntimeError: nobody thought of" in str(failed.problem)
    assert "nobody thought of" in dict(findings(scheduled.config))["FAIL"]
    assert list(Path(scheduled.config.backup.to).iterdir()) == []


class _StoppingPlaces:
    """Contents whose first read stops the schedule."""

    def __init__(self, world: World) -> None:
        self.places = world.places
        self.stop: Callable[[], None] = lambda: None

    def read(self, place: str, start: int, end: int) -> Any:
        self.stop()
        return self.places.read(place, start, end)


def test_a_stop_aborts_a_backup_and_leaves_nothing(scheduled: World) -> None:
    with scheduled.opened():
        scheduled.fill()
        places = _StoppingPlaces(scheduled)
        own = BackupProcess(scheduled.config, cast(Places, places))
        places.stop = own.begin_to_stop
        assert own.run_due() is None
    assert list(Path(scheduled.config.backup.to).iterdir()) == []
    assert get_status(scheduled.config).last is None


@pytest.mark.parametrize("stage", ["checking", "database"])
def test_a_stop_aborts_the_verification_too(scheduled: World, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    with scheduled.opened():
        scheduled.fill()
        own = BackupProcess(scheduled.config, scheduled.places)
        report = Progress.report

        def stop_then(self: Progress, at: str, done: int, of: int) -> None:
            report(self, at, done, of)
            if at == stage:
                own.begin_to_stop()

        monkeypatch.setattr(Progress, "report", stop_then)
        assert own.run_due() is None
        left = db.rows("SELECT state, owner, claims FROM backup_job")
        assert left == [("running", None, 0)], "whoever runs next makes it"
    assert list(Path(scheduled.config.backup.to).iterdir()) == []
    assert get_status(scheduled.config).last is None


def test_a_stop_interrupts_a_long_database_query(scheduled: World, tmp_path: Path) -> None:
    """The integrity check is one statement, which may take minutes."""
    path = tmp_path / "long.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE t (n)")
    counting = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT count(*) FROM n"
    with pytest.raises(Stopped), open_snapshot(path, lambda: True) as file:
        file.execute(counting)


def test_a_backup_is_made_on_request(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the data folder if no other is configured, encrypted with the given passphrase."""
    stages = []
    with world.opened():
        world.fill()
        own = BackupProcess(world.config, world.places)
        with pytest.raises(BackupInvalid, match="at least 12 characters"):
            own.request("short")
        assert own.run_due() is None
        own.request(PASSPHRASE)
        with pytest.raises(Conflict, match="already being made"):
            own.request(PASSPHRASE)
        assert backup_jobs.find_running() is not None
        report = Progress.report

        def listen(self: Progress, stage: str, done: int, of: int) -> None:
            report(self, stage, done, of)
            stages.append((stage, done, self.of))

        monkeypatch.setattr(Progress, "report", listen)
        result = own.run_due()
        assert result is not None
        assert result.problem is None
        assert backup_jobs.find_running() is None
        assert own.run_due() is None
    assert stages == [("database", 0, 0), ("contents", 1, 2), ("contents", 2, 2), ("checking", 1, 2), ("checking", 2, 2)]
    (only,) = list_backups(world.config)
    assert only.is_sealed
    assert Path(result.path) == world.config.data / "backups" / only.name
    assert verify_backup(Path(result.path), PASSPHRASE)["contents"]["count"] == 2


def test_without_a_folder_no_backup_is_made(world: World) -> None:
    with world.opened():
        assert BackupProcess(world.config, world.places).run_due() is None
    assert [level for level, _ in findings(world.config)] == ["note"]


@pytest.mark.parametrize(
    "flags",
    [{"backup.to": "relative"}, {"backup.to": "/b", "backup.every": "soon"}, {"backup.to": "/b", "backup.keep": 0}],
    ids=["folder", "every", "keep"],
)
def test_invalid_backup_settings_are_refused(flags: dict[str, object]) -> None:
    with pytest.raises(ConfigInvalid, match=r"backup\."):
        load_config(environment={}, flags=flags)
