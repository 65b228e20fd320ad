"""The appliance backs itself up when that is due, keeps what it was told to, and says how it stands."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from appliance.backups import schedule
from appliance.backups.checking import verify_backup
from appliance.backups.problems import BackupInvalid, Stopped
from appliance.backups.schedule import Schedule, findings, list_kept, standing
from appliance.backups.snapshots import opened_snapshot
from appliance.blobs.service import Places
from appliance.core import clock, db
from appliance.core.config import load_config
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
            (folder / f".gos-{hours}.partial").write_bytes(b"of a killed process")
            monkeypatch.setattr(clock, "now_ms", lambda at=first.at + hours * HOUR + hours: at)
            assert own.run_due() is not None
        assert len(list_kept(backed.config)) == 2
        assert len(list(folder.iterdir())) == 2
        state = standing(backed.config)
    assert state.last is not None
    assert state.next_at == state.kept[0].made_at + HOUR
    told = dict(findings(backed.config))
    assert "is whole" in told["ok"]


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
        later = clock.now_ms() + schedule.AGAIN_MS + 1
        monkeypatch.setattr(clock, "now_ms", lambda: later)
        again = own.run_due()
    assert again is not None
    assert again.problem is None


def later(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    at = clock.now_ms() + hours * HOUR + 1
    monkeypatch.setattr(clock, "now_ms", lambda: at)


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
    assert "refers to one that is not there" in str(failed.problem)
    assert {path.name for path in folder.iterdir()} == good
    assert "FAIL" in dict(findings(backed.config))


def test_one_that_lacks_contents_takes_no_other_away(backed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older ones may hold what it lacks."""
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
    assert len(list_kept(backed.config)) == 3


class _BrokenPlaces:
    """Contents that fail in a way nobody thought of."""

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
    """Contents whose first reading comes just as the appliance is told to stop."""

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
    assert standing(backed.config).last is None


@pytest.mark.parametrize("stage", ["checking", "database"])
def test_a_stop_gives_up_what_is_being_read_again_too(backed: World, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    with backed.opened():
        backed.fill()
        own = Schedule(backed.config, backed.places)
        tell = own._tell

        def stop_then(at: str, done: int, of: int) -> None:
            tell(at, done, of)
            if at == stage:
                own.stop()

        monkeypatch.setattr(own, "_tell", stop_then)
        assert own.run_due() is None
        assert own.progress is None
    assert list(Path(backed.config.backup.to).iterdir()) == []
    assert standing(backed.config).last is None


def test_a_long_look_at_the_database_is_given_up(backed: World, tmp_path: Path) -> None:
    """Whether it is whole is one statement, which may take minutes."""
    path = tmp_path / "long.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE t (n)")
    counting = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT count(*) FROM n"
    with pytest.raises(Stopped), opened_snapshot(path, lambda: True) as file:
        file.execute(counting)


def test_one_is_made_when_it_is_asked_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the data folder where no other is configured, sealed with the passphrase that was given."""
    stages = []
    with world.opened():
        world.fill()
        own = Schedule(world.config, world.places)
        with pytest.raises(BackupInvalid, match="at least 12 characters"):
            own.ask("short")
        assert own.run_due() is None
        own.ask(PASSPHRASE)
        with pytest.raises(Conflict, match="being made already"):
            own.ask(PASSPHRASE)
        assert "stage='asked'" in repr(own.progress)
        tell = own._tell

        def listen(stage: str, done: int, of: int) -> None:
            tell(stage, done, of)
            if (now := own.progress) is not None:
                stages.append((now.stage, now.done, now.of))

        monkeypatch.setattr(own, "_tell", listen)
        made = own.run_due()
        assert made is not None
        assert made.problem is None
        assert own.progress is None
        assert own.run_due() is None
    assert stages == [("database", 0, 0), ("contents", 1, 2), ("contents", 2, 2), ("checking", 1, 2), ("checking", 2, 2)]
    (kept,) = list_kept(world.config)
    assert kept.is_sealed
    assert Path(made.path) == world.config.data / "backups" / kept.name
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
