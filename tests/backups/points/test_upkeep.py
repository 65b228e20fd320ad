"""The files of the data folder are shipped too, and `gos doctor` says how it stands, also when nothing can be shipped."""

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.backups.points import PointShipper, bases, findings
from appliance.backups.points import shipping as shipping_module
from appliance.core import clock
from appliance.core.config import load_config
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid
from tests.backups.conftest import World, digests, make_world
from tests.backups.points.worlds import point_world, restore_point, shipping, wait_for_shipment
from tests.processes.world import wait_until


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "points"
    folder.mkdir()
    return folder


@pytest.fixture
def source(tmp_path: Path, place: Path) -> World:
    return point_world(tmp_path / "data", str(place), points_for="2d")


def base_at(shipper: PointShipper, moment: int) -> None:
    wait_until(lambda: shipper.status.base_at >= moment, 60)


def test_the_files_of_the_data_folder_are_restored(source: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping_module, "FILES_SECONDS", 0.1)
    with source.opened():
        source.fill()
        with shipping(source) as shipper:
            before = wait_for_shipment(shipper)
            (source.config.data / "config.yaml").write_text("console: {language: de}\n")
            base_at(shipper, before)
            after = wait_for_shipment(shipper)
    for moment, is_there in ((before, False), (after, True)):
        target = make_world(tmp_path / str(moment))
        restore_point(source, target, moment)
        assert (target.config.data / "config.yaml").exists() is is_there


def test_doctor_says_what_to_do(source: World, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    off = World(replace(source.config, backup=replace(source.config.backup, points_to="")))
    assert [level for level, _ in findings(off.config)] == ["note"]
    monkeypatch.setattr(shipping_module, "RETRY_SECONDS", 0.1)
    with source.opened():
        source.fill()
        ((level, text), *_) = findings(source.config)
        assert (level, text) == (
            "note", f"no point can be restored from {place} yet; the first base is made when the appliance runs"
        )
        with shipping(source) as shipper:
            wait_for_shipment(shipper)
            assert [level for level, _ in findings(source.config)] == ["ok", "note"]
            away = tmp_path / "away"
            place.rename(away)
            db.write(lambda: db.execute("INSERT INTO task (queue, data, priority) VALUES ('none', x'00', 1)"))
            wait_until(lambda: shipper.status.problem, 30)
            ((level, text), *_) = findings(source.config)
            assert level == "FAIL"
            assert f"the folder {place} does not exist; create it, or mount its disk; the last point in" in text
            away.rename(place)
            moment, expected = wait_for_shipment(shipper), digests()
            assert shipper.status.problem == ""
    target = make_world(tmp_path / "restored")
    restore_point(source, target, moment)
    with target.opened():
        assert digests() == expected, "what could not be shipped at first is there"


def test_a_base_that_does_not_fit_the_disk_is_not_begun(source: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log begins again all the same, and what a killed process has left of a base is deleted."""
    monkeypatch.setattr(bases, "_SPARE_BYTES", 1 << 60)
    left = source.config.data / "points" / "base-0123abcd"
    with source.opened():
        source.fill()
        left.mkdir(parents=True)
        (left / "lock").touch()
        shipper = PointShipper(source.config, source.places)
        shipper.start()
        try:
            wait_until(lambda: shipper.status.problem, 30)
        finally:
            shipper.stop()
        assert "MiB are free, of which 1099511627776 MiB must stay" in shipper.status.problem
        assert next(findings(source.config))[0] == "FAIL"
        assert not list((source.config.data / "points").glob("base-*"))
        ((busy, frames, done),) = db.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        assert (busy, frames, done) == (0, 0, 0), "nothing holds the log any more"


def test_too_much_that_waits_ends_the_chain_and_frees_the_log(
    source: World, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping_module, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(shipping_module, "MOST_HELD_BYTES", 100_000)
    with source.opened():
        source.fill()
        with shipping(source) as shipper:
            wait_for_shipment(shipper)
            chains = {path.parent.name for path in place.rglob("*.segment")}
            away = tmp_path / "away"
            place.rename(away)
            content = b"x" * 300_000
            db.write(lambda: db.execute("INSERT INTO task (queue, data, priority) VALUES ('none', ?, 1)", (content,)))
            wait_until(lambda: shipper._chain is None, 30)
            away.rename(place)
            before = clock.now_ms()
            base_at(shipper, before)
            moment, expected = wait_for_shipment(shipper), digests()
        assert len({path.parent.name for path in place.rglob("*.segment")}) > len(chains)
    target = make_world(tmp_path / "restored")
    restore_point(source, target, moment)
    with target.opened():
        assert digests() == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backup.points_to": "points"}, "backup.points_to must be the absolute path of a folder"),
        ({"backup.points_to": "s3://X"}, "backup.points_to must be written as s3://bucket/prefix"),
        ({"backup.points_to": "/mnt/points", "backup.points_for": "5m"}, "backup.points_for must be at least one hour"),
        ({"backup.points_to": "/mnt/points", "storage.database": "postgresql://localhost/gos"}, "archive that of PostgreSQL"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigInvalid, match=message):
        load_config(environment={}, flags={"storage.data": str(tmp_path), **settings})


def test_nothing_goes_to_a_bucket_without_a_passphrase(tmp_path: Path) -> None:
    source = point_world(tmp_path / "data", "s3://nobody/points", "")
    with source.opened():
        source.fill()
        shipper = PointShipper(source.config, source.places)
        shipper.start()
        try:
            wait_until(lambda: shipper.status.problem, 30)
        finally:
            shipper.stop()
    assert "must be encrypted" in shipper.status.problem
    assert next(findings(source.config))[0] == "FAIL"


def test_doctor_says_what_an_earlier_database_of_postgresql_would_miss(tmp_path: Path) -> None:
    flags = {"storage.data": str(tmp_path), "storage.database": "postgresql://localhost/gos"}
    ((level, text),) = findings(load_config(environment={}, flags=flags))
    assert (level, "set blobs.keep_deleted to as long as its log is kept" in text) == ("note", True)
    assert list(findings(load_config(environment={}, flags=flags | {"blobs.keep_deleted": "8d"}))) == []
