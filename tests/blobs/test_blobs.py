"""Contents are stored once per tenant, unchanged, for as long as something refers to them."""

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from appliance.blobs import deleted_places, quota
from appliance.blobs.local import LocalPlaces
from appliance.blobs.pieces import FilePieces
from appliance.blobs.service import GRACE_MS, MOST_TOGETHER, BlobDamaged, Blobs, Places, StoredBlob, Usage
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, PayloadTooLarge, StorageFull
from appliance.core.scope import TenantScope
from tests.blobs.probes import StoreProbe


def refer(scope: TenantScope, blobs: Blobs, stored: StoredBlob) -> None:
    def insert() -> None:
        blobs.hold(scope, stored.sha256)
        db.execute("INSERT INTO holding VALUES (?, ?)", (scope.tenant_id, stored.sha256))

    db.write(insert)


def advance_clock(monkeypatch: pytest.MonkeyPatch, milliseconds: int) -> None:
    now = clock.now_ms() + milliseconds
    monkeypatch.setattr(clock, "now_ms", lambda: now)


def test_a_blob_is_read_back_unchanged(blobs: Blobs, acme: TenantScope, tmp_path: Path) -> None:
    data = os.urandom(700_000)
    stored = blobs.put(acme, (data[start : start + 1000] for start in range(0, len(data), 1000)))
    assert (stored.sha256, stored.size, stored.head) == (hashlib.sha256(data).hexdigest(), len(data), data[:4096])
    assert b"".join(blobs.read(acme, stored.sha256)) == data
    assert b"".join(blobs.read(acme, stored.sha256, 300_000, 600_001)) == data[300_000:600_001]
    assert b"".join(blobs.read(acme, stored.sha256, 699_999, 9_999_999)) == data[699_999:]
    assert blobs.read_whole(acme, stored.sha256, len(data)) == data
    blobs.copy_to(acme, stored.sha256, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data
    with pytest.raises(PayloadTooLarge):
        blobs.read_whole(acme, stored.sha256, len(data) - 1)


def test_several_blobs_are_stored_together(blobs: Blobs, acme: TenantScope, probe: StoreProbe) -> None:
    existing = blobs.put(acme, b"known")
    contents = [b"known", b"one", b"two", b"one", os.urandom(300_000)]
    stored = blobs.put_all(acme, [blobs.receive(content) for content in contents])
    assert stored[0] == existing
    assert [each.sha256 for each in stored] == [hashlib.sha256(content).hexdigest() for content in contents]
    assert blobs.usage(acme) == Usage(4, 5 + 3 + 3 + 300_000)
    assert len(probe.names()) == 4, "nothing lies about"
    located = blobs.locate(acme, [each.sha256 for each in stored])
    assert [b"".join(located[each.sha256].pieces()) for each in stored] == contents
    with pytest.raises(Conflict, match="send it again"):
        blobs.locate(acme, [existing.sha256, "0" * 64])


def test_no_blob_of_a_group_is_stored_when_the_quota_is_too_small(blobs: Blobs, acme: TenantScope, probe: StoreProbe) -> None:
    received = [blobs.receive(content) for content in (b"one", b"two", b"three")]
    quota.configure(tenant_bytes=7)
    try:
        with pytest.raises(StorageFull, match="this tenant uses"):
            blobs.put_all(acme, received)
    finally:
        quota.configure(tenant_bytes=0)
    assert (blobs.usage(acme), probe.names()) == (Usage(0, 0), [])


def test_a_batch_stores_what_was_added_before_it_failed(blobs: Blobs, acme: TenantScope, probe: StoreProbe) -> None:
    def fill() -> None:
        with blobs.batch(acme) as batch:
            for number in range(MOST_TOGETHER + 5):
                batch.add(blobs.receive(f"{number}".encode()))
            assert blobs.usage(acme).blobs == MOST_TOGETHER
            raise RuntimeError("cut")

    with pytest.raises(RuntimeError, match="cut"):
        fill()
    assert blobs.usage(acme).blobs == len(probe.names()) == MOST_TOGETHER + 5


def test_an_empty_blob_can_be_stored(blobs: Blobs, acme: TenantScope) -> None:
    assert blobs.read_whole(acme, blobs.put(acme, b"").sha256, 0) == b""


def test_equal_contents_are_stored_and_counted_once_per_tenant(
    blobs: Blobs, acme: TenantScope, globex: TenantScope, probe: StoreProbe
) -> None:
    first = blobs.put(acme, b"abc")
    assert blobs.put(acme, iter([b"a", b"bc"])) == first
    assert blobs.usage(acme) == Usage(1, 3)
    assert len(probe.names()) == 1
    assert blobs.usage(globex) == Usage(0, 0)
    with pytest.raises(NotFound):
        blobs.read(globex, first.sha256)
    blobs.put(globex, b"abc")
    assert len(probe.names()) == 2


def test_a_source_that_breaks_leaves_nothing(blobs: Blobs, acme: TenantScope, probe: StoreProbe) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        blobs.put(acme, broken())
    assert probe.names() == []
    assert blobs.usage(acme) == Usage(0, 0)


@pytest.mark.parametrize("content", [b"abd", None])
def test_damage_is_noticed(blobs: Blobs, acme: TenantScope, probe: StoreProbe, tmp_path: Path, content: bytes | None) -> None:
    stored = blobs.put(acme, b"abc")
    probe.damage(probe.names()[0], content)
    with pytest.raises(BlobDamaged):
        blobs.read_whole(acme, stored.sha256, 3)
    with pytest.raises(BlobDamaged):
        blobs.copy_to(acme, stored.sha256, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_missing_file_is_replaced_when_the_bytes_come_again(blobs: Blobs, acme: TenantScope, probe: StoreProbe) -> None:
    stored = blobs.put(acme, b"abc")
    probe.damage(probe.names()[0], None)
    blobs.put(acme, b"abc")
    assert blobs.read_whole(acme, stored.sha256, 3) == b"abc"


def test_only_old_unreferenced_blobs_are_collected(
    blobs: Blobs, acme: TenantScope, probe: StoreProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    referenced, old = blobs.put(acme, b"held"), blobs.put(acme, b"old")
    refer(acme, blobs, referenced)
    assert blobs.collect() == 0
    advance_clock(monkeypatch, GRACE_MS + 1)
    young = blobs.put(acme, b"young")
    again = blobs.put(acme, b"again")
    assert blobs.collect() == 1
    with pytest.raises(NotFound):
        blobs.read(acme, old.sha256)
    for stored in (referenced, young, again):
        assert hashlib.sha256(b"".join(blobs.read(acme, stored.sha256))).hexdigest() == stored.sha256
    assert len(probe.names()) == 3
    with pytest.raises(Conflict, match="send it again"):
        db.write(lambda: blobs.hold(acme, old.sha256))


def test_a_blob_stored_again_is_not_collected(blobs: Blobs, acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = blobs.put(acme, b"abc")
    advance_clock(monkeypatch, GRACE_MS + 1)
    blobs.put(acme, b"abc")
    assert blobs.collect() == 0
    assert blobs.read_whole(acme, stored.sha256, 3) == b"abc"


def test_strays_of_a_crash_are_collected_once_they_are_old(
    blobs: Blobs, places: Places, acme: TenantScope, probe: StoreProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = blobs.put(acme, b"kept")
    refer(acme, blobs, stored)
    receiver = places.receiver()
    receiver.write(b"no row was written")
    places.adopt(receiver.finish().path, "acme/ab/abcd.1")
    half = places.receiver()
    half.write(b"half")
    half.finish()
    assert blobs.collect() == 0
    assert len(probe.names()) == 3
    advance_clock(monkeypatch, GRACE_MS + 60_000)
    assert blobs.collect() == 1
    assert len(probe.names()) == 1
    assert blobs.read_whole(acme, stored.sha256, 4) == b"kept"


def test_content_that_arrives_during_stray_collection_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places, scan = LocalPlaces(tmp_path), os.scandir
    arriving, stray = places.receiver(), places.receiver()
    arriving.write(b"arriving")
    stray.write(b"stray")
    whole, _ = arriving.finish(), stray.finish()

    def scan_before_it_arrives(folder: Path) -> Any:
        with scan(folder) as entries:
            result = sorted(entries, key=lambda entry: entry.path != str(whole.path))
        places.adopt(whole.path, "acme/ab/abcd.1")
        return nullcontext(result)

    monkeypatch.setattr(os, "scandir", scan_before_it_arrives)
    assert places.delete_incoming(clock.now_ms() + 60_000) == 1


def test_a_reader_finishes_a_blob_collected_meanwhile(blobs: Blobs, acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(600_000)
    pieces = blobs.read(acme, blobs.put(acme, data).sha256)
    advance_clock(monkeypatch, GRACE_MS + 1)
    assert blobs.collect() == 1
    assert b"".join(pieces) == data


@pytest.mark.parametrize("order", ["at hand first", "waited for", "in turn"])
def test_immediate_and_awaited_pieces_form_one_content(blobs: Blobs, acme: TenantScope, order: str) -> None:
    data = os.urandom(5_000_000)
    pieces = blobs.read(acme, blobs.put(acme, data).sha256, 1000, 4_900_001)
    result = []
    for number in range(1000):
        is_immediate = order == "at hand first" or (order == "in turn" and number % 2 == 0)
        piece = (pieces.at_hand() if is_immediate else None) or next(pieces, b"")
        if not piece:
            break
        result.append(piece)
    assert b"".join(result) == data[1000:4_900_001]
    assert len(result) <= 40, "pieces have a size worth the turn"
    assert pieces.at_hand() is None


def test_reading_a_truncated_file_ends(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"abc")
    pieces = FilePieces(tmp_path / "short", 1, 9)
    assert (pieces.at_hand() or next(pieces)) == b"bc"
    assert pieces.at_hand() is None
    assert list(pieces) == []
    assert pieces.at_hand() is None


def test_concurrent_writers_and_a_collector_lose_no_referenced_blob(
    blobs: Blobs, places: Places, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a grace period a blob may be collected before it is referenced, which raises Conflict; referenced blobs stay."""
    monkeypatch.setattr("appliance.blobs.service.GRACE_MS", -1000)
    monkeypatch.setattr(type(places), "delete_incoming", lambda *_: 0)  # what is arriving has its grace always
    monkeypatch.setattr(Blobs, "_delete_strays", lambda *_: 0)
    stop, referred, refused = threading.Event(), [], []
    rounds = 60 if isinstance(places, LocalPlaces) else 12  # each several requests

    def put_all(offset: int) -> None:
        for number in range(rounds):
            stored = blobs.put(acme, f"{(number + offset) % 20}".encode())
            try:
                refer(acme, blobs, stored)
                referred.append(stored)
            except Conflict:
                refused.append(stored)

    def collect() -> None:
        while not stop.is_set():
            blobs.collect()

    collector = threading.Thread(target=collect)
    collector.start()
    writers = [threading.Thread(target=put_all, args=(7 * index,)) for index in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stop.set()
    collector.join()
    assert len(referred) + len(refused) == 3 * rounds
    assert referred
    for stored in referred:
        assert hashlib.sha256(blobs.read_whole(acme, stored.sha256, 10)).hexdigest() == stored.sha256


def test_the_folder_of_a_new_tenant_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    sync = os.fsync

    def recording_fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    places = LocalPlaces(tmp_path)
    for name, folders in (("one", ["acme/aa", "acme", ""]), ("two", ["acme/aa", "acme"])):
        receiver = places.receiver()
        receiver.write(b"x")
        received = receiver.finish()
        synced.clear()
        places.adopt(received.path, f"acme/aa/{name}")
        assert synced == [tmp_path / each for each in folders]


def test_what_is_deleted_stays_in_the_store_for_a_restored_database(
    blobs: Blobs, places: Places, acme: TenantScope, probe: StoreProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row, and the file of a deleted tenant, of which nobody knows since when no row names it."""
    keeping = Blobs(places, ["holding"], keep_ms=3 * GRACE_MS)
    stored = keeping.put(acme, b"needed by an earlier database")
    keeping.put(TenantScope("globex", "key:test"), b"of a deleted tenant")
    db.write(lambda: db.execute("DELETE FROM blob WHERE tenant_id = 'globex'"))
    advance_clock(monkeypatch, GRACE_MS + 10_000)
    for _ in range(2):
        assert keeping.collect() == 0
        assert len(probe.names()) == 2
        with pytest.raises(NotFound):
            keeping.read(acme, stored.sha256)
    advance_clock(monkeypatch, 3 * GRACE_MS - 1)
    assert (keeping.collect(), len(probe.names())) == (0, 2)
    advance_clock(monkeypatch, 1)
    assert keeping.collect() == 2
    assert probe.names() == []
    assert db.rows("SELECT place FROM blob_deleted") == []


def test_a_place_that_a_restored_database_names_again_stays(
    blobs: Blobs, places: Places, acme: TenantScope, probe: StoreProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = blobs.put(acme, b"it is back")
    refer(acme, blobs, stored)
    ((place,),) = db.rows("SELECT place FROM blob")
    db.write(lambda: deleted_places.note_deleted([place]))
    assert blobs.collect() == 0
    assert len(probe.names()) == 1


def test_without_keeping_what_was_kept_is_deleted(
    blobs: Blobs, places: Places, acme: TenantScope, probe: StoreProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping = Blobs(places, ["holding"], keep_ms=30 * GRACE_MS)
    keeping.put(acme, b"kept")
    advance_clock(monkeypatch, GRACE_MS + 1)
    assert (keeping.collect(), len(probe.names())) == (0, 1)
    assert blobs.collect() == 1
    assert probe.names() == []
