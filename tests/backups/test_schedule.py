"""Automatic backups: made when due, kept as configured, and reported by `gos doctor`."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from appliance.backups import backup_folder, schedule
from appliance.backups.backup_folder import BackupResult, list_backups, temporary_folder
from appliance.backups.problems import BackupInvalid, Stopped
from appliance.backups.schedule import Schedule, findings, get_status
from appliance.backups.snapshots import open_snapshot
from appliance.backups.verification import verify_backup
from appliance.blobs import Places
from appliance.core import clock
from appliance.core.config import load_config
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid, Conflict
from tests.backups.conftest import PASSPHRASE, World, make_world

HOUR = 3_600_000


@pytest.fixture
def backed(tmp_path: Path) -> World:
    world = make_world(tmp_path / "data")
    backup = replace(world.config.backup, to=str(tmp_path / "backups"), every="1h", keep=2, passphrase=PASSPHRASE)
    return World(replace(world.config, backup=backup))


def test_one_is_made_when_it_is_due_and_old_ones_go(backed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(backed.config.backup.to)
    with backed.opened():
        own = Schedule(backed.config, backed.places)
        first = own.run_due()
        assert first is not None
        assert (first.problem, first.encrypted) == (None, True)
        assert verify_backup(Path(first.path), PASSPHRASE)["tables"]["tenant"] == 0
        assert own.run_due() is None
        for hours in (1, 2, 3):
            _killed(folder, next(iter(folder.glob("*.gosb"))))
            monkeypatch.setattr(clock, "now_ms", lambda at=first.at + hours * HOUR + hours: at)
            assert own.run_due() is not None
        assert len(list_backups(backed.config)) == 2
        assert len(list(folder.iterdir())) == 2
        state = get_status(backed.config)
    assert state.last is not None
    assert state.next_at == state.files[0].made_at + HOUR
    told = dict(findings(backed.config))
    assert "is complete" in told["ok"]


def _killed(folder: Path, made: Path) -> None:
    """The files left by a process that was killed during a backup; the kernel has released its lock."""
    room = folder / f".gos-making-{made.stem.rpartition('-')[2]}-0a1b2c3d"
    room.mkdir()
    (room / "lock").touch()
    (room / f".{made.name}.partial").write_bytes(b"a part of it")


def test_appliances_that_share_a_folder_keep_their_own(backed: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = make_world(tmp_path / "neighbour")
    other = World(replace(other.config, backup=backed.config.backup))
    made: dict[str, list[str]] = {"backed": [], "other": []}
    for _ in range(3):
        for name, world in (("backed", backed), ("other", other)):
            with world.opened():
                done = Schedule(world.config, world.places).run_due()
            assert done is not None, "the neighbour's newest is no backup of ours"
            assert done.problem is None
            made[name].append(Path(done.path).name)
        later(monkeypatch, 1)
    for name, world in (("backed", backed), ("other", other)):
        assert [kept.name for kept in list_backups(world.config)] == made[name][:0:-1]
    assert {path.name for path in Path(backed.config.backup.to).iterdir()} == {*made["backed"][1:], *made["other"][1:]}


def test_what_others_are_making_is_left_alone(backed: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another appliance's, the same installation's on another machine, and a `gos backup` by cron; old ones are orphaned."""
    folder = Path(backed.config.backup.to)
    folder.mkdir()
    names = (".gos-backup-x1", ".gos-nightly.gosb.ab12.partial", f".gos-making-ins_{'0' * 24}-00000000")
    by_hand = [folder / name for name in names]
    for path in by_hand:
        path.mkdir()
        (path / "gos.db").touch()
    with backed.opened():
        with temporary_folder(backed.config) as room:
            assert Schedule(backed.config, backed.places).run_due() is not None
            assert room.is_dir()
        assert all((path / "gos.db").exists() for path in by_hand)
        assert not room.exists()
        later(monkeypatch, 8 * 24)
        assert Schedule(backed.config, backed.places).run_due() is not None
    assert [path for path in folder.iterdir() if path.suffix != ".gosb"] == []


def test_names_that_do_not_say_whose_they_are_are_not_deleted(backed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names from an earlier release; this installation's is the one recorded as the last backup."""
    folder = Path(backed.config.backup.to)
    folder.mkdir()
    old = [f"gos-2026010{day}T000000Z.gosb" for day in range(1, 6)]
    for name in old:
        (folder / name).write_bytes(b"the backup of whoever made it")
    with backed.opened():
        backup_folder.save_result(backed.config, BackupResult(0, str(folder / old[-1]), 1, 1, 0, True, None))
        assert [each.name for each in list_backups(backed.config)] == old[-1:]
        for _ in range(3):
            assert Schedule(backed.config, backed.places).run_due() is not None
            later(monkeypatch, 1)
    assert sorted(path.name for path in folder.iterdir() if "ins_" not in path.name) == old
    assert len(list_backups(backed.config)) == 2
    assert any("5 backups" in text and "names of an earlier release" in text for _, text in findings(backed.config))


def test_one_that_fails_is_told_and_tried_again_soon(backed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(backed.config.backup.to)
    folder.write_text("a file is in the way")
    with backed.opened():
        own = Schedule(backed.config, backed.places)
        failed = own.run_due()
        assert failed is not None
        assert failed.problem is not None
        assert ("FAIL", True) in {(level, failed.problem in text) for level, text in findings(backed.config)}
        assert own.run_due() is None
        folder.unlink()
        later = clock.now_ms() + schedule.RETRY_MS + 1
        monkeypatch.setattr(clock, "now_ms", lambda: later)
        again = own.run_due()
    assert again is not None
    assert again.problem is None


def later(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    at = clock.now_ms() + hours * HOUR + 1
    monkeypatch.setattr(clock, "now_ms", lambda: at)


def test_what_cannot_be_read_in_the_folder_does_not_end_backups(backed: World) -> None:
    """A broken link, a folder, a file deleted at that moment: the next backup is made regardless."""
    folder = Path(backed.config.backup.to)
    folder.mkdir()
    with backed.opened():
        own = backup_folder.new_path(backed.config).name.partition("Z")[2]
        (folder / f"gos-20260101T000000Z{own}").symlink_to("/nowhere/there")
        (folder / f"gos-20260102T000000Z{own}").mkdir()
        made = Schedule(backed.config, backed.places).run_due()
    assert made is not None
    assert made.problem is None
    assert [each.name for each in list_backups(backed.config)] == [Path(made.path).name]
    assert "is complete" in dict(findings(backed.config))["ok"]


def test_a_folder_that_may_not_be_read_is_told(backed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, iterdir = Path(backed.config.backup.to), Path.iterdir
    folder.mkdir()

    def refused(path: Path) -> Iterator[Path]:
        if path == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    monkeypatch.setattr(backup_folder, "delete_leftovers", lambda _: list(folder.iterdir()))
    monkeypatch.setattr(schedule, "delete_leftovers", lambda _: list(folder.iterdir()))
    with backed.opened():
        own = Schedule(backed.config, backed.places)
        own.request_now(PASSPHRASE)
        failed = own.run_due()
        assert own.progress is None
    assert failed is not None
    assert "Permission denied" in str(failed.problem)
    assert "Permission denied" in dict(findings(backed.config))["FAIL"]


def test_a_backup_that_is_gone_is_not_called_whole(backed: World) -> None:
    with backed.opened():
        made = Schedule(backed.config, backed.places).run_due()
    assert made is not None
    Path(made.path).unlink()
    assert "is the disk mounted" in dict(findings(backed.config))["FAIL"]


def test_a_clock_that_was_ahead_neither_stops_backups_nor_takes_the_new_one(
    backed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock was a year ahead for a while: the backup made then counts as the oldest, whatever its name says."""
    now, folder = clock.now_ms(), Path(backed.config.backup.to)
    with backed.opened():
        own = Schedule(backed.config, backed.places)
        for _ in range(2):
            later(monkeypatch, 5 * 365 * 24)
            assert own.run_due() is not None
        ahead = {path.name for path in folder.iterdir()}
        for hours in (0, 1):
            at = now + hours * (HOUR + 1)
            monkeypatch.setattr(clock, "now_ms", lambda at=at: at)
            made = own.run_due()
            assert made is not None, "due again as soon as the clock is right"
            assert Path(made.path).exists(), "the one that was just made is kept"
            assert own.run_due() is None
    assert ahead.isdisjoint({path.name for path in folder.iterdir()})
    assert "is complete" in dict(findings(backed.config))["ok"]


def test_one_that_failed_by_a_clock_that_was_ahead_is_tried_again(backed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, now = Path(backed.config.backup.to), clock.now_ms()
    folder.write_text("a file is in the way")
    with backed.opened():
        own = Schedule(backed.config, backed.places)
        later(monkeypatch, 5 * 365 * 24)
        failed = own.run_due()
        assert failed is not None
        assert failed.problem is not None
        folder.unlink()
        monkeypatch.setattr(clock, "now_ms", lambda: now)
        again = own.run_due()
    assert again is not None
    assert again.problem is None


def test_one_that_cannot_be_restored_is_none(backed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(backed.config.backup.to)
    with backed.opened():
        own = Schedule(backed.config, backed.places)
        for _ in range(2):
            assert own.run_due() is not None
            later(monkeypatch, 1)
        good = {path.name for path in folder.iterdir()}
        with closing(sqlite3.connect(backed.config.data / "gos.db")) as file, file:
            file.execute("INSERT INTO secret (tenant_id, name, sealed, updated_at) VALUES ('nobody', 'x', x'00', 0)")
        failed = own.run_due()
    assert failed is not None
    assert "refers to a missing row" in str(failed.problem)
    assert {path.name for path in folder.iterdir()} == good
    assert "FAIL" in dict(findings(backed.config))


def test_one_that_lacks_contents_takes_no_other_away(backed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older ones may contain what it lacks."""
    with backed.opened():
        scope = backed.fill()
        own = Schedule(backed.config, backed.places)
        for _ in range(2):
            assert own.run_due() is not None
            later(monkeypatch, 1)
        ((place,),) = db.rows("SELECT place FROM blob WHERE tenant_id = ?", (scope.tenant_id,))
        (backed.config.data / "blobs" / place).unlink()
        lacking = own.run_due()
    assert lacking is not None
    assert "1 contents are damaged" in str(lacking.problem)
    assert len(list_backups(backed.config)) == 3


class _BrokenPlaces:
    """Contents that fail with an unexpected exception."""

    def read(self, place: str, start: int, end: int) -> Any:
        raise RuntimeError(f"nobody thought of {place[:7]} {start} {end > 0}")


def test_what_nobody_thought_of_is_told_too(backed: World) -> None:
    with backed.opened():
        backed.fill()
        failed = Schedule(backed.config, cast(Places, _BrokenPlaces())).run_due()
    assert failed is not None
    assert "RuntimeError: nobody thought of" in str(failed.problem)
    assert "nobody thought of" in dict(findings(backed.config))["FAIL"]
    assert list(Path(backed.config.backup.to).iterdir()) == []


class _StoppingPlaces:
    """Contents first read just when the appliance is told to stop."""

    def __init__(self, world: World) -> None:
        self.places = world.places
        self.stop: Callable[[], None] = lambda: None

    def read(self, place: str, start: int, end: int) -> Any:
        self.stop()
        return self.places.read(place, start, end)


def test_a_stop_gives_up_and_leaves_nothing(backed: World) -> None:
    with backed.opened():
        backed.fill()
        places = _StoppingPlaces(backed)
        own = Schedule(backed.config, cast(Places, places))
        places.stop = own.stop
        assert own.run_due() is None
    assert list(Path(backed.config.backup.to).iterdir()) == []
    assert get_status(backed.config).last is None


@pytest.mark.parametrize("stage", ["checking", "database"])
def test_a_stop_gives_up_what_is_being_read_again_too(backed: World, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    with backed.opened():
        backed.fill()
        own = Schedule(backed.config, backed.places)
        tell = own._report

        def stop_then(at: str, done: int, of: int) -> None:
            tell(at, done, of)
            if at == stage:
                own.stop()

        monkeypatch.setattr(own, "_report", stop_then)
        assert own.run_due() is None
        assert own.progress is None
    assert list(Path(backed.config.backup.to).iterdir()) == []
    assert get_status(backed.config).last is None


def test_a_long_look_at_the_database_is_given_up(backed: World, tmp_path: Path) -> None:
    """The integrity check is one statement, which may take minutes."""
    path = tmp_path / "long.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE t (n)")
    counting = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT count(*) FROM n"
    with pytest.raises(Stopped), open_snapshot(path, lambda: True) as file:
        file.execute(counting)


def test_one_is_made_when_it_is_asked_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the data folder if no other is configured, encrypted with the given passphrase."""
    stages = []
    with world.opened():
        world.fill()
        own = Schedule(world.config, world.places)
        with pytest.raises(BackupInvalid, match="at least 12 characters"):
            own.request_now("short")
        assert own.run_due() is None
        own.request_now(PASSPHRASE)
        with pytest.raises(Conflict, match="already being made"):
            own.request_now(PASSPHRASE)
        assert "stage='asked'" in repr(own.progress)
        tell = own._report

        def listen(stage: str, done: int, of: int) -> None:
            tell(stage, done, of)
            if (now := own.progress) is not None:
                stages.append((now.stage, now.done, now.of))

        monkeypatch.setattr(own, "_report", listen)
        made = own.run_due()
        assert made is not None
        assert made.problem is None
        assert own.progress is None
        assert own.run_due() is None
    assert stages == [("database", 0, 0), ("contents", 1, 2), ("contents", 2, 2), ("checking", 1, 2), ("checking", 2, 2)]
    (only,) = list_backups(world.config)
    assert only.is_sealed
    assert Path(made.path) == world.config.data / "backups" / only.name
    assert verify_backup(Path(made.path), PASSPHRASE)["contents"]["count"] == 2


def test_without_a_folder_none_is_made(world: World) -> None:
    with world.opened():
        assert Schedule(world.config, world.places).run_due() is None
    assert [level for level, _ in findings(world.config)] == ["note"]


@pytest.mark.parametrize(
    "flags",
    [{"backup.to": "relative"}, {"backup.to": "/b", "backup.every": "soon"}, {"backup.to": "/b", "backup.keep": 0}],
    ids=["folder", "every", "keep"],
)
def test_settings_that_cannot_be_kept_are_refused(flags: dict[str, object]) -> None:
    with pytest.raises(ConfigInvalid, match=r"backup\."):
        load_config(environment={}, flags=flags)
