"""However often something is shipped, there are few files, and at any moment of a merge each moment can be restored."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import BinaryIO

import pytest

from appliance.backups.points import archives, merging, restoring, stores
from appliance.backups.points.archives import Archive, Segment
from appliance.backups.points.stores import PointStore, StoredFile
from appliance.backups.problems import BackupInvalid
from appliance.core.errors import NotFound
from tests.backups.conftest import World, digests, make_world
from tests.backups.points.test_chains import change
from tests.backups.points.worlds import bucket_point_world, point_world, restore_point, shipping, wait_for_shipment
from tests.processes.world import wait_until

FANOUT = 3


class Killed(BaseException):
    """The process ends here."""


@dataclass
class KilledStore:
    """A store whose process is killed right after its first change."""

    store: PointStore

    @property
    def address(self) -> str:
        return self.store.address

    def put(self, name: str, pieces: Iterable[bytes]) -> int:
        self.store.put(name, pieces)
        raise Killed

    def delete(self, name: str) -> None:
        self.store.delete(name)
        raise Killed

    def open(self, name: str) -> BinaryIO:
        return self.store.open(name)

    def has(self, name: str) -> bool:
        return self.store.has(name)

    def list(self, prefix: str = "") -> Iterator[StoredFile]:
        return self.store.list(prefix)

    def tidy(self, prefix: str) -> None:
        self.store.tidy(prefix)


@dataclass
class DamagingStore(KilledStore):
    """A store that does not keep what it gets, or cannot be reached any more once a file was stored."""

    is_unreachable: bool = False
    put_names: list[str] = field(default_factory=list)

    def put(self, name: str, pieces: Iterable[bytes]) -> int:
        content = b"".join(pieces)
        self.put_names.append(name)
        return self.store.put(name, [content[:-9], bytes(9)])

    def delete(self, name: str) -> None:
        self._reach()
        self.store.delete(name)

    def open(self, name: str) -> BinaryIO:
        self._reach()
        return self.store.open(name)

    def _reach(self) -> None:
        if self.is_unreachable and self.put_names:
            raise ConnectionResetError("the disk of the store is gone")


def is_killed(merge: Callable[[], object]) -> bool:
    try:
        merge()
    except Killed:
        return True
    return False


@pytest.fixture(params=["folder", "bucket"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "bucket":
        return bucket_point_world(tmp_path / "data", request.getfixturevalue("bucket"))
    (tmp_path / "points").mkdir()
    return point_world(tmp_path / "data", str(tmp_path / "points"))


def archive_of(source: World) -> Archive:
    place, passphrase = source.config.backup.points_to, source.config.backup.passphrase
    store = stores.open_point_store(source.config, place)
    ((installation, name),) = archives.find_archives(store)
    archive = archives.open_archive(store, installation, name, passphrase)
    assert archive is not None
    return archive


def contents_of(archive: Archive) -> list[str]:
    """Everything that a restore reads, in order."""
    (chain,) = archives.list_chains(archive)
    contents = restoring._read_from(archive, chain, 0)
    return [hashlib.sha256(repr((each.marks, each.epoch, each.first)).encode() + each.frames).hexdigest() for each in contents]


def ship(source: World, rounds: int) -> list[tuple[int, dict[str, str]]]:
    """Moments with the digests of every table."""
    chance, moments = Random(rounds), list[tuple[int, dict[str, str]]]()  # noqa: S311  repeatable
    with source.opened():
        source.fill()
        with shipping(source) as shipper:
            for number in range(rounds):
                change(chance, number)
                moments.append((wait_for_shipment(shipper), digests()))
    return moments


def restored(source: World, folder: Path, moment: int) -> dict[str, str]:
    target = make_world(folder)
    restore_point(source, target, moment)
    with target.opened():
        return digests()


def test_a_kill_anywhere_in_a_merge_loses_no_moment(source: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = ship(source, 10)
    archive = archive_of(source)
    expected = contents_of(archive)
    assert len(expected) >= 6
    (chain,) = archives.list_chains(archive)
    monkeypatch.setattr(merging, "MERGED_BYTES", sum(each.size for each in chain.segments) // 2)
    monkeypatch.setattr(merging, "FULL_BYTES", merging.MERGED_BYTES // 2)
    kills = 0
    while is_killed(lambda: merging.merge_finished(replace(archive, store=KilledStore(archive.store)), "", lambda: False)):
        assert contents_of(archive) == expected
        kills += 1
    assert kills > 4
    (chain,) = archives.list_chains(archive)
    assert chain.superseded == ()
    assert len(chain.segments) < len(expected)
    for moment, digests_then in (moments[0], moments[3], moments[-1]):
        assert restored(source, tmp_path / f"restored-{moment}", moment) == digests_then


def test_a_merged_file_that_was_stored_damaged_takes_nothing_away(source: World, caplog: pytest.LogCaptureFixture) -> None:
    """Neither at once, nor when the next start finds it beside the files that it was made of."""
    ship(source, 6)
    archive = archive_of(source)
    expected = contents_of(archive)
    store = DamagingStore(archive.store)
    assert merging.merge_finished(replace(archive, store=store), "", lambda: False) == 0
    assert len(store.put_names) == 1
    assert "is not merged" in caplog.text
    assert contents_of(archive) == expected
    (chain,) = archives.list_chains(archive)
    assert chain.superseded == ()
    # This time the store is gone before the file is read back.
    with pytest.raises(ConnectionResetError):
        merging.merge_finished(replace(archive, store=DamagingStore(archive.store, is_unreachable=True)), "", lambda: False)
    (chain,) = archives.list_chains(archive)
    assert len(chain.superseded) == len(expected)
    assert merging.merge_finished(archive, "", lambda: False) == 0
    assert "cannot be read, so what it was made of stays" in caplog.text
    assert contents_of(archive) == expected
    assert merging.merge_finished(archive, "", lambda: False) == len(expected) - 1
    assert contents_of(archive) == expected


def test_a_damaged_merged_file_stays_if_it_alone_has_a_part(source: World) -> None:
    ship(source, 6)
    archive = archive_of(source)
    with pytest.raises(ConnectionResetError):
        merging.merge_finished(replace(archive, store=DamagingStore(archive.store, is_unreachable=True)), "", lambda: False)
    (chain,) = archives.list_chains(archive)
    archive.store.delete(chain.superseded[0])
    assert merging.merge_finished(archive, "", lambda: False) == 0
    (after,) = archives.list_chains(archive)
    assert (after.segments, after.superseded) == (chain.segments, chain.superseded[1:])


def test_a_restore_goes_on_while_it_is_merged(source: World) -> None:
    """The files that it has listed are gone: it reads the merged one, and ends with an error if there is none."""
    ship(source, 6)
    archive = archive_of(source)
    (chain,) = archives.list_chains(archive)
    expected = [each.digest() for each in restoring._read_from(archive, chain, 0)]
    merged, purged = (restoring._read_from(archive, chain, 0) for _ in range(2))
    first = next(merged)
    next(purged)
    assert merging.merge_finished(archive, "", lambda: False) > 0
    assert [first.digest(), *(each.digest() for each in merged)] == expected
    for each in archives.list_chains(archive)[0].segments:
        archive.store.delete(each.name)
    with pytest.raises(NotFound, match="is missing in"):
        list(purged)


def test_what_is_shipped_is_merged_as_it_grows(source: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shipment for each change, and still few files; each moment is restored."""
    monkeypatch.setattr(merging, "FANOUT", FANOUT)
    moments = ship(source, 20)
    archive = archive_of(source)
    (chain,) = archives.list_chains(archive)
    shipped = chain.segments[-1].last_number + 1
    assert shipped >= 20
    assert max(each.level for each in chain.segments) >= 2
    assert len(chain.segments) < shipped / 2
    for moment, digests_then in moments[::6]:
        assert restored(source, tmp_path / f"restored-{moment}", moment) == digests_then
    # The next start merges the rest, and deletes what a killed process has left.
    monkeypatch.setattr(merging, "FANOUT", 1000)
    with source.opened(), shipping(source) as shipper:
        wait_until(lambda: shipper._chain.merger._is_begun, 30)  # type: ignore[union-attr]
    former = archives.list_chains(archive)[0]
    assert (len(former.segments), former.superseded) == (1, ())
    for moment, digests_then in moments[::9]:
        assert restored(source, tmp_path / f"again-{moment}", moment) == digests_then


@pytest.mark.parametrize("passphrase", ["a passphrase of a test", ""], ids=["sealed", "open"])
def test_a_damaged_file_is_not_merged_and_a_damaged_merged_one_is_refused(
    tmp_path: Path, passphrase: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "points").mkdir()
    source = point_world(tmp_path / "data", str(tmp_path / "points"), passphrase)
    ship(source, 4)
    archive = archive_of(source)
    first, second, *_ = sorted((tmp_path / "points").rglob("*.segment"))
    content = second.read_bytes()
    second.write_bytes(first.read_bytes())
    assert merging.merge_finished(archive, "", lambda: False) == 0
    assert "is damaged, was changed, or does not belong there" in caplog.text
    assert list((tmp_path / "points").rglob("*.merged")) == []
    second.write_bytes(content)
    assert merging.merge_finished(archive, "", lambda: False) > 0
    (merged,) = (tmp_path / "points").rglob("*.merged")
    content = merged.read_bytes()
    for damaged in (content[:-1], content[:200] + bytes([content[200] ^ 1]) + content[201:], content + b"x"):
        merged.write_bytes(damaged)
        with pytest.raises(BackupInvalid, match="is damaged, was changed, or does not belong there"):
            contents_of(archive)
    merged.write_bytes(content)
    assert contents_of(archive)


def make_segments(chance: Random, sizes: Callable[[], int]) -> Iterator[Segment]:
    for number in count():
        yield Segment(
            f"{number}", number, number, first_epoch=0, epoch=0, first=number + 1, last=number + 1, time=number, size=sizes(),
            level=0,
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_the_number_of_files_is_bounded(seed: int) -> None:
    """Two thirds of a day with a shipment each second, of which some are large; and what is merged is adjacent and fits."""
    chance = Random(seed)  # noqa: S311  repeatable
    large = chance.choice([0.0, 0.001, 0.05])

    def sizes() -> int:
        return chance.randrange(1 << 20, 8 << 20) if chance.random() < large else chance.randrange(400, 20_000)

    files, written, stored, most = list[Segment](), 0, 0, 0
    for segment in make_segments(chance, sizes):
        files.append(segment)
        stored += segment.size
        while chosen := merging.choose(files, is_finished=False):
            at = files.index(chosen[0])
            assert list(chosen) == files[at : at + len(chosen)]
            assert len(chosen) >= 2
            size = sum(each.size for each in chosen)
            assert size <= merging.MERGED_BYTES
            written += size
            merged = archives.parse_segment(archives.merged_name(chosen), size)
            assert merged is not None
            files[at : at + len(chosen)] = [merged]
        most = max(most, len(files) - 2 * stored // merging.FULL_BYTES)
        if segment.number == 60_000:
            break
    assert most <= 5 * merging.FANOUT, "the bound that docs/backup.md says"
    assert written <= 5 * stored, "each byte is stored a few times"
    assert [each.number for each in files] == [0, *(each.last_number + 1 for each in files[:-1])]
