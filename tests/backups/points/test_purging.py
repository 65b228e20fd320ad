"""Old points and their contents are deleted in a folder and in a bucket, and what a moment needs stays."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from appliance.backups.points import PointShipper, archives, chains, merging, stores
from appliance.backups.points import shipping as shipping_module
from appliance.backups.points.contents import ContentShipper
from appliance.backups.points.purging import purge
from appliance.blobs import PART_BYTES
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ValidationFailed
from appliance.documents import service as documents
from appliance.tenants import service
from tests.backups.conftest import World, digests, make_world
from tests.backups.points.test_chains import change
from tests.backups.points.test_merging import archive_of
from tests.backups.points.test_points import add_document, contents_of
from tests.backups.points.worlds import bucket_point_world, point_world, restore_point, shipping, wait_for_shipment
from tests.processes.world import wait_until

DAY = 24 * 3_600_000


@pytest.fixture(params=["folder", "bucket"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "bucket":
        return bucket_point_world(tmp_path / "data", request.getfixturevalue("bucket"), points_for="2d")
    (tmp_path / "points").mkdir()
    return point_world(tmp_path / "data", str(tmp_path / "points"), points_for="2d")


class LeadingClock:
    """A clock that the test sets; what is stored is as old as it is ahead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead, self._start = 0, clock.now_ms
        monkeypatch.setattr(clock, "now_ms", lambda: self._start() + self.ahead)


@pytest.fixture
def leading(monkeypatch: pytest.MonkeyPatch) -> LeadingClock:
    return LeadingClock(monkeypatch)


def names_in(source: World, ending: str) -> set[str]:
    """The stored files whose path has this in it."""
    store = stores.open_point_store(source.config, source.config.backup.points_to)
    return {each.name for each in store.list() if ending in each.name}


def wait_for_purge(shipper: PointShipper) -> None:
    bases = shipper._bases
    assert bases is not None
    wait_until(lambda: bases.last_at and not bases._thread.is_alive(), 60)  # type: ignore[union-attr]


def collect(source: World) -> None:
    """Delete what nothing refers to, as if it had been unused for a day."""
    db.write(lambda: db.execute("UPDATE blob SET touched_at = 0"))
    assert source.blobs.collect() >= 1


def restored(source: World, folder: Path, moment: int) -> Iterator[World]:
    target = make_world(folder)
    done = restore_point(source, target, moment)
    assert done.manifest["contents"]["damaged"] == []
    with target.opened():
        yield target


def test_what_no_moment_needs_is_deleted(source: World, tmp_path: Path, leading: LeadingClock) -> None:
    """Three chains, each four days after the one before; a content is deleted in the first."""
    with source.opened():
        scope = source.fill()
        with shipping(source) as shipper:
            document = add_document(source, scope, "old.txt", b"nobody needs it" * 50)
            needed = add_document(source, scope, "new.txt", b"everybody needs it" * 50)
            first = wait_for_shipment(shipper)
            documents.Documents(source.incoming).delete_document(scope, document)
            collect(source)
            wait_for_shipment(shipper)
        contents = names_in(source, "/contents/")
        assert len(contents) == 4
        for _ in range(2):
            leading.ahead += 4 * DAY
            with shipping(source) as shipper:
                moment, expected = wait_for_shipment(shipper), digests()
                wait_for_purge(shipper)
    old = hashlib.sha256(b"nobody needs it" * 50).hexdigest()
    assert {name.rpartition("/")[2] for name in contents - names_in(source, "/contents/")} == {old}
    remaining = {name.split("/")[3] for name in names_in(source, "/chains/")}
    assert len(remaining) == 2, "the newest before two days ago, and the present one"
    with pytest.raises(ValidationFailed, match="has points from"):
        restore_point(source, make_world(tmp_path / "too-old"), first)
    for target in restored(source, tmp_path / "restored", moment):
        assert digests() == expected
        assert documents.Documents(target.incoming).get_document(service.system_scope("initech"), needed).name == "new.txt"


@pytest.mark.parametrize("is_one", [False, True], ids=["several", "one"])
def test_merged_files_of_one_chain_stay_as_long_as_a_moment_needs_them(
    source: World, tmp_path: Path, leading: LeadingClock, monkeypatch: pytest.MonkeyPatch, is_one: bool
) -> None:
    """Bases in one chain, four days apart, while the log begins again and is merged across its epochs; at last into one file."""
    monkeypatch.setattr(shipping_module, "FILES_SECONDS", 0.1)
    monkeypatch.setattr(chains, "RESTART_FRAMES", 20)
    monkeypatch.setattr(merging, "FANOUT", 3)
    if is_one:
        source = World(replace(source.config, backup=replace(source.config.backup, points_for="90d")))
    moments = ship_for_days(source, leading)
    archive = archive_of(source)
    if is_one:
        merging.merge_finished(archive, "", lambda: False)
        purge(archive, ContentShipper(source.config.data, source.places, archive, lambda: False), clock.now_ms() - 2 * DAY)
        assert len(segments_of(source)) == 1, "of all epochs, also of those that nothing needs"
    else:
        assert segments_of(source)[0].number > 0
    assert any(each.first_epoch < each.epoch for each in segments_of(source)), "a merged file has several epochs"
    with pytest.raises(ValidationFailed, match="has points from"):
        restore_point(source, make_world(tmp_path / "too-old"), moments[-5][0])
    for moment, expected in moments[-4:]:
        for _ in restored(source, tmp_path / f"restored-{moment}", moment):
            assert digests() == expected


def ship_for_days(source: World, leading: LeadingClock) -> list[tuple[int, dict[str, str]]]:
    """Four moments every four days, each time followed by a base."""
    chance, moments = Random(4), list[tuple[int, dict[str, str]]]()  # noqa: S311  repeatable
    with source.opened():
        source.fill()
        with shipping(source) as shipper:
            for number in range(4):
                for _ in range(4):
                    change(chance, number)
                    moments.append((wait_for_shipment(shipper), digests()))
                leading.ahead += 4 * DAY
                wait_until(lambda: shipper.status.base_at >= clock.now_ms() - DAY, 60)
                wait_for_purge(shipper)
    return moments


def segments_of(source: World) -> tuple[archives.Segment, ...]:
    (chain,) = archives.list_chains(archive_of(source))
    return chain.segments


def test_a_content_that_is_shipped_again_is_not_deleted(source: World) -> None:
    with source.opened():
        scope = source.fill()
        with shipping(source) as shipper:
            contents: ContentShipper = shipper._bases._contents  # type: ignore[union-attr]
            sha256 = source.blobs.put(scope, b"it comes back" * 90).sha256
            wait_for_shipment(shipper)
            assert not contents.unless_shipped(sha256, lambda: pytest.fail("it was deleted"))
            contents.begin_base()
            assert contents.unless_shipped(sha256, lambda: None)


def test_a_deleted_content_is_restored_also_a_large_one_in_parts(source: World, tmp_path: Path) -> None:
    large = Random(8).randbytes(2 * PART_BYTES + 12_345)  # noqa: S311  repeatable
    with source.opened():
        scope = source.fill()
        with shipping(source) as shipper:
            names = [add_document(source, scope, "large.bin", large), add_document(source, scope, "empty.txt", b"")]
            moment, expected = wait_for_shipment(shipper), contents_of(source)
            for name in names:
                documents.Documents(source.incoming).delete_document(scope, name)
            collect(source)
            wait_for_shipment(shipper)
            assert len(contents_of(source)) == len(expected) - 2
    for target in restored(source, tmp_path / "restored", moment):
        assert contents_of(target) == expected


def test_a_content_that_is_missing_in_the_place_is_named(source: World, tmp_path: Path) -> None:
    with source.opened():
        scope = source.fill()
        with shipping(source) as shipper:
            add_document(source, scope, "lost.txt", b"lost in the place" * 99)
            moment = wait_for_shipment(shipper)
    sha256 = hashlib.sha256(b"lost in the place" * 99).hexdigest()
    (name,) = names_in(source, sha256)
    stores.open_point_store(source.config, source.config.backup.points_to).delete(name)
    done = restore_point(source, make_world(tmp_path / "restored"), moment)
    (damaged,) = done.manifest["contents"]["damaged"]
    assert sha256 in damaged
