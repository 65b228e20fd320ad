"""Remote blob storage: slow reads never happen inside the single writer or an open snapshot."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.blobs import Blobs, LocalPlaces, Pieces
from appliance.core.database import db
from appliance.core.errors import Overloaded, VersionConflict
from appliance.core.scope import TenantScope
from appliance.documents.contents import key_checks
from appliance.documents.contents.text_extraction import TextReader
from appliance.documents.service import BLOB_TABLES, Changes, Documents, NewDocument
from appliance.documents.sharing.delivery import DeliveryPolicy
from appliance.documents.sharing.publications import NewPublication, Publications
from appliance.formats import Formats, Settings
from appliance.tenants.keys import make_key_text
from tests.documents.test_shares import FakeReviews


class RemotePlaces(LocalPlaces):
    """Records in which context each read happens; `meanwhile` is called once during the next read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.in_writer: list[bool] = []
        self.in_snapshot: list[bool] = []
        self.meanwhile: Callable[[], object] | None = None

    def read(self, place: str, start: int, end: int) -> Pieces:
        self.in_writer.append(threading.current_thread().name == "db-writer")
        self.in_snapshot.append(bool(db.database.obj.in_transaction()))
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()
        return super().read(place, start, end)


@pytest.fixture
def places(tmp_path: Path) -> RemotePlaces:
    return RemotePlaces(tmp_path / "far")


@pytest.fixture
def blobs(places: RemotePlaces) -> Blobs:
    return Blobs(places, BLOB_TABLES)


def test_a_media_type_is_detected_before_the_write(documents: Documents, acme: TenantScope, places: RemotePlaces) -> None:
    document_id = documents.store_document(acme, NewDocument("a.txt"), b"a,b\n").id
    assert documents.update_document(acme, document_id, Changes(media_type="text/csv")).media_type == "text/csv"
    assert places.in_writer == [False]
    newer = documents.store_content(acme, b"\x89PNG\r\n\x1a\n")
    places.meanwhile = lambda: documents.add_revision(acme, document_id, newer)
    with pytest.raises(VersionConflict, match="was replaced at the same time"):
        documents.update_document(acme, document_id, Changes(media_type="text/plain"))
    assert documents.get_document(acme, document_id).media_type == "image/png"


def test_a_text_is_opened_after_the_snapshot(
    documents: Documents, acme: TenantScope, blobs: Blobs, places: RemotePlaces, tmp_path: Path
) -> None:
    document_id = documents.store_document(acme, NewDocument("a.txt"), b"one").id
    assert TextReader(blobs, Formats(Settings(tmp_path))).read_all() == 1
    places.in_snapshot.clear()
    pieces = documents.open_text(acme, document_id).pieces
    assert pieces is not None
    assert b"".join(pieces) == b"one"
    assert places.in_snapshot == [False]


def test_publishing_checks_the_content_outside_the_write(
    documents: Documents, acme: TenantScope, blobs: Blobs, places: RemotePlaces
) -> None:
    document_id = documents.store_document(acme, NewDocument("a.txt"), b"one").id
    newer = documents.store_content(acme, b"two")
    places.meanwhile = lambda: documents.add_revision(acme, document_id, newer)
    publication = Publications(DeliveryPolicy(blobs, FakeReviews())).publish(acme, document_id, NewPublication("a.txt"))
    assert publication.serves == 2
    assert places.in_writer == [False, False]


def test_a_content_is_checked_for_keys_once_across_processes(
    documents: Documents, acme: TenantScope, globex: TenantScope, blobs: Blobs, places: RemotePlaces
) -> None:
    harmless, leaking = (
        documents.store_document(acme, NewDocument("a.txt"), data).id for data in (b"one", make_key_text("live").encode())
    )
    theirs = documents.store_document(globex, NewDocument("a.txt"), b"one").id

    def are_delivered(delivery: DeliveryPolicy) -> list[bool]:
        return [delivery.find(scope, each, "latest") is not None for scope, each in
                ((acme, harmless), (acme, leaking), (globex, theirs))]  # fmt: skip

    for _ in range(2):
        assert are_delivered(DeliveryPolicy(blobs, FakeReviews())) == [True, False, True]
        assert len(places.in_writer) == 3
    twin = documents.store_document(acme, NewDocument("b.txt"), b"one").id
    documents.delete_document(acme, harmless)
    documents.delete_document(acme, leaking)
    assert db.rows("SELECT holds_key FROM document_key_check WHERE tenant_id = 'acme'") == [(0,)]
    documents.delete_document(acme, twin)
    assert db.rows("SELECT tenant_id FROM document_key_check") == [("globex",)]


def test_only_one_of_many_threads_checks_a_content(
    documents: Documents, acme: TenantScope, blobs: Blobs, places: RemotePlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    document_id = documents.store_document(acme, NewDocument("a.txt"), b"one").id
    delivery, has_begun, may_end, results = DeliveryPolicy(blobs, FakeReviews()), threading.Event(), threading.Event(), list[bool]()

    def block() -> None:
        has_begun.set()
        assert may_end.wait(30)

    def deliver() -> None:
        results.append(delivery.find(acme, document_id, "latest") is not None)

    places.meanwhile = block
    threads = [threading.Thread(target=deliver) for _ in range(3)]
    threads[0].start()
    assert has_begun.wait(30)
    with monkeypatch.context() as patched:
        patched.setattr(key_checks, "WAIT_SECONDS", 0.01)
        with pytest.raises(Overloaded, match="still being checked"):
            delivery.find(acme, document_id, "latest")
    for each in threads[1:]:
        each.start()
    may_end.set()
    for each in threads:
        each.join(30)
    assert results == [True] * 3
    assert len(places.in_writer) == 1


def test_a_corrected_media_type_is_delivered(documents: Documents, acme: TenantScope, blobs: Blobs) -> None:
    document_id = documents.store_document(acme, NewDocument("a.txt"), b"a,b\n").id
    documents.add_revision(acme, document_id, documents.store_content(acme, b"a,b\n1,2\n"))
    documents.update_document(acme, document_id, Changes(media_type="text/csv"))
    content = DeliveryPolicy(blobs, FakeReviews()).find(acme, document_id, "latest")
    assert content is not None
    assert content.media_type == documents.open_content(acme, document_id).media_type == "text/csv"
    assert documents.open_content(acme, document_id, 1).media_type == "text/plain"
    style = documents.store_document(acme, NewDocument("a.css"), b"one, two").id
    assert documents.get_document(acme, style).text_state == "none"
    assert documents.update_document(acme, style, Changes(media_type="text/csv")).text_state == "pending"
