"""Whatever is written, checkpointed and begun again, each recorded moment is restored exactly, and damage is refused."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event

import pytest

from appliance.backups.points import archives, chains, merging, segments, stores
from appliance.backups.points import shipping as shipping_module
from appliance.backups.problems import BackupInvalid
from appliance.core import clock
from appliance.core.database import db
from tests.backups.conftest import World, digests, make_world
from tests.backups.points.worlds import point_world, restore_point, shipping, wait_for_shipment
from tests.processes.world import wait_until


@pytest.fixture
def source(tmp_path: Path) -> World:
    (tmp_path / "points").mkdir()
    return point_world(tmp_path / "data", str(tmp_path / "points"))


def segments_of(source: World) -> list[Path]:
    return sorted(Path(source.config.backup.points_to).rglob("*.segment"))


def change(chance: Random, number: int) -> None:
    """Insert, change or delete rows, a few or many."""
    kind = chance.choice(["few", "few", "few", "many", "delete"])
    if kind == "delete":
        db.write(lambda: db.execute("DELETE FROM task WHERE id % 3 = 0"))
        return
    rows = [chance.randbytes(chance.choice([50, 5000, 60_000])) for _ in range(3 if kind == "few" else 60)]

    def insert() -> None:
        for row in rows:
            db.execute("INSERT INTO task (queue, data, priority) VALUES ('none', ?, ?)", (row, number))

    db.write(insert)


@pytest.mark.parametrize("seed", [1, 2])
def test_each_recorded_moment_is_restored(source: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The log begins again often, and another process makes checkpoints at any time."""
    monkeypatch.setattr(chains, "RESTART_FRAMES", 30)
    chance, moments = Random(seed), list[tuple[int, dict[str, str]]]()  # noqa: S311  repeatable
    with source.opened():
        source.fill()
        with closing(sqlite3.connect(source.config.data / "gos.db", timeout=0)) as other, shipping(source) as shipper:
            for round_number in range(8):
                for _ in range(chance.randrange(1, 6)):
                    change(chance, round_number)
                    other.execute(f"PRAGMA wal_checkpoint({chance.choice(['PASSIVE', 'RESTART', 'TRUNCATE'])})")
                moments.append((wait_for_shipment(shipper), digests()))
    epochs = {path.name.split("-")[1] for path in segments_of(source)}
    assert len(epochs) > 2, "the log has begun again"
    for number, (moment, expected) in enumerate(moments):
        target = make_world(tmp_path / f"restored-{number}")
        restore_point(source, target, moment)
        with target.opened():
            assert digests() == expected


def test_the_log_does_not_grow_without_end(source: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "RESTART_FRAMES", 30)
    chance = Random(5)  # noqa: S311  repeatable
    with source.opened():
        source.fill()
        with shipping(source) as shipper:
            for number in range(12):
                change(chance, number)
                wait_for_shipment(shipper)
            log = source.config.data / "gos.db-wal"
            assert log.stat().st_size < 8 << 20
        assert len({path.name.split("-")[1] for path in segments_of(source)}) > 2


def test_a_large_transaction_is_there_whole_or_not_at_all(source: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its frames are in several segments."""
    monkeypatch.setattr(chains, "SEGMENT_BYTES", 100_000)
    monkeypatch.setattr(merging, "FANOUT", 1000)
    rows = [Random(7).randbytes(40_000) for _ in range(50)]  # noqa: S311  repeatable

    def insert() -> None:
        for row in rows:
            db.execute("INSERT INTO task (queue, data, priority) VALUES ('none', ?, 1)", (row,))

    with source.opened():
        source.fill()
        with shipping(source) as shipper:
            before, moment = digests(), wait_for_shipment(shipper)
            db.write(insert)
            after, later = digests(), wait_for_shipment(shipper)
    assert len(segments_of(source)) > 10
    expected = {moment: before, later: after}
    for segment in segments_of(source):
        time = int(segment.stem.rpartition("-")[2])
        expected |= {time: after, time - 1: before} if time > moment else {}
    for number, (each, digests_then) in enumerate(expected.items()):
        target = make_world(tmp_path / f"restored-{number}")
        restore_point(source, target, each)
        with target.opened():
            assert digests() == digests_then
    # Killed while its frames were shipped: the part that is there does not count.
    segments_of(source)[-1].unlink()
    target = make_world(tmp_path / "part")
    restore_point(source, target, None)
    with target.opened():
        assert digests() == before


@pytest.mark.writes_once(reason="it holds the writer")
def test_a_segment_waits_for_the_commit_in_progress(source: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its frames are in the log before its rows can be read, by which the contents are known that must be stored first."""
    entered, go = Event(), Event()

    def hold_writer() -> None:
        entered.set()
        go.wait(30)

    with source.opened():
        source.fill()
        with shipping(source) as shipper:
            monkeypatch.setattr(shipping_module, "FOLDER_SECONDS", 3600.0)
            wait_until(lambda: shipper._ship_at > clock.monotonic() + 60)
            change(Random(1), 1)  # noqa: S311  repeatable
            count = len(segments_of(source))
            future = db.submit(hold_writer)
            assert entered.wait(30)
            shipper._ship_at = 0.0
            wait_until(lambda: db.writer_depth() > 0)
            assert len(segments_of(source)) == count
            go.set()
            future.result()
            wait_until(lambda: len(segments_of(source)) > count)


def forge(source: World, path: Path) -> bytes:
    """The same segment with another mark, made by somebody who has the passphrase."""
    place = source.config.backup.points_to
    store = stores.open_point_store(source.config, place)
    ((installation, name),) = archives.find_archives(store)
    archive = archives.open_archive(store, installation, name, source.config.backup.passphrase)
    assert archive is not None
    stored = path.relative_to(place).as_posix()
    (segment,) = (each for chain in archives.list_chains(archive) for each in chain.segments if each.name == stored)
    ((_, content),) = segments.read_segments(archive, segment)
    marks = (*content.marks, segments.Mark(content.last, content.marks[-1].time + 1))
    return b"".join(archive.sealer.pack(stored, replace(content, marks=marks).pack()))


def damaged(source: World) -> Iterator[tuple[str, Path, bytes]]:
    """Ways to damage the middle segment, and what it was before."""
    segment = segments_of(source)[-2]
    content = segment.read_bytes()
    middle = len(content) // 2
    yield "changed", segment, content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    yield "shortened", segment, content[:-1]
    yield "exchanged", segment, segments_of(source)[-1].read_bytes()
    yield "forged", segment, forge(source, segment)


@pytest.mark.parametrize("passphrase", ["a passphrase of a test", ""], ids=["sealed", "open"])
def test_damaged_and_missing_segments_are_refused(tmp_path: Path, passphrase: str) -> None:
    (tmp_path / "points").mkdir()
    source = point_world(tmp_path / "data", str(tmp_path / "points"), passphrase)
    options = {"passphrase": passphrase or None, "key_file": source.config.data / "key"}
    chance = Random(3)  # noqa: S311  repeatable
    with source.opened():
        source.fill()
        with shipping(source) as shipper:
            for number in range(3):
                change(chance, number)
                moment = wait_for_shipment(shipper)
    target = make_world(tmp_path / "restored")
    for _, path, content in damaged(source):
        former = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(BackupInvalid, match="is damaged, was changed, or does not belong there; restore to a moment before it"):
            restore_point(source, target, moment, **options)
        path.write_bytes(former)
    removed = segments_of(source)[-2]
    former = removed.read_bytes()
    removed.unlink()
    with pytest.raises(BackupInvalid, match="a segment is missing before"):
        restore_point(source, target, moment, **options)
    assert not target.config.data.exists()
    removed.write_bytes(former)
    restore_point(source, target, moment, **options)


def test_another_passphrase_begins_another_archive(source: World, tmp_path: Path) -> None:
    with source.opened():
        source.fill()
        with shipping(source):
            pass
        other = point_world(source.config.data, source.config.backup.points_to, "another passphrase of a test")
        with shipping(other) as shipper:
            moment, expected = wait_for_shipment(shipper), digests()
    target = make_world(tmp_path / "restored")
    with pytest.raises(BackupInvalid, match="the passphrase is wrong"):
        restore_point(source, target, None, passphrase="a wrong passphrase")
    restore_point(source, target, moment, passphrase="another passphrase of a test")
    with target.opened():
        assert digests() == expected


def test_a_clock_that_is_set_back_begins_another_chain(source: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with source.opened():
        source.fill()
        with shipping(source) as shipper:
            change(Random(1), 1)  # noqa: S311  repeatable
            wait_for_shipment(shipper)
            first = {path.parent.name for path in segments_of(source)}
            behind = clock.now_ms
            monkeypatch.setattr(clock, "now_ms", lambda: behind() - 3_600_000)
            change(Random(2), 2)  # noqa: S311  repeatable
            wait_until(lambda: len({path.parent.name for path in segments_of(source)}) > len(first), 30)
