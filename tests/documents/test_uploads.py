"""Resumable uploads: acknowledged bytes are durable, and only a complete upload becomes a document."""

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from appliance.blobs import GRACE_MS, BlobDamaged, Blobs
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, PayloadTooLarge, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.documents import uploads as domain
from appliance.documents.service import DocumentFilter, Documents, NewDocument
from appliance.documents.uploads import LIFETIME_MS, MOST_OPEN, NewUpload, Upload, Uploads, delete_expired_uploads

DATA = os.urandom(300_000)
SHA = hashlib.sha256(DATA).hexdigest()


def open_upload(uploads: Uploads, scope: TenantScope, size: int = len(DATA), sha256: str | None = SHA, name: str = "a.bin") -> str:
    return uploads.open_upload(scope, NewUpload(size, sha256, NewDocument(name, folder="in", tags=("x",), metadata={"n": 1}))).id


def send(uploads: Uploads, scope: TenantScope, upload_id: str, begins: int, data: bytes) -> Upload:
    part = uploads.start_part(scope, upload_id, begins)
    for at in range(0, len(data), 50_000):
        part.write(data[at : at + 50_000])
    return part.finish()


def list_names(documents: Documents, scope: TenantScope) -> list[str]:
    return [each.name for each in documents.list_documents(scope, DocumentFilter(), PageRequest()).items]


def test_parts_create_a_document(documents: Documents, uploads: Uploads, acme: TenantScope) -> None:
    upload_id = open_upload(uploads, acme)
    assert send(uploads, acme, upload_id, 0, DATA[:100_000]).received == 100_000
    assert (uploads.get_upload(acme, upload_id).state, list_names(documents, acme)) == ("open", [])
    done = send(uploads, acme, upload_id, 100_000, DATA[100_000:])
    assert (done.state, done.received, done.revision) == ("done", len(DATA), 1)
    assert done.document_id is not None
    document = documents.get_document(acme, done.document_id)
    assert (document.name, document.folder, document.tags) == ("a.bin", "in", ("x",))
    assert (document.metadata, document.sha256) == ({"n": 1}, SHA)
    assert documents.open_content(acme, document.id).read(len(DATA)) == DATA
    assert uploads.get_upload(acme, upload_id) == done
    assert uploads.finish_upload(acme, upload_id) == done
    assert len(list_names(documents, acme)) == 1


def test_parts_create_a_revision(documents: Documents, uploads: Uploads, acme: TenantScope) -> None:
    document = documents.store_document(acme, NewDocument("a.txt"), b"one")
    upload = uploads.open_upload(acme, NewUpload(3, document_id=document.id, comment="better"))
    assert upload.name == "a.txt"
    done = send(uploads, acme, upload.id, 0, b"two")
    assert (done.document_id, done.revision) == (document.id, 2)
    assert documents.list_revisions(acme, document.id, PageRequest()).items[0].comment == "better"
    with pytest.raises(NotFound):
        uploads.open_upload(acme, NewUpload(3, document_id="doc_nowhere"))


def test_an_empty_part_creates_an_empty_document(documents: Documents, uploads: Uploads, acme: TenantScope) -> None:
    upload_id = open_upload(uploads, acme, 0, None, "empty.txt")
    assert send(uploads, acme, upload_id, 0, b"").state == "done"
    assert list_names(documents, acme) == ["empty.txt"]


@pytest.mark.parametrize("offset", [1, 99_999, 100_001, 10**15])
def test_a_wrong_offset_is_refused_with_the_right_one(uploads: Uploads, acme: TenantScope, offset: int) -> None:
    upload_id = open_upload(uploads, acme)
    send(uploads, acme, upload_id, 0, DATA[:100_000])
    with pytest.raises(Conflict) as refused:
        uploads.start_part(acme, upload_id, offset)
    assert refused.value.headers == {"Upload-Offset": "100000"}


def test_only_one_of_two_senders_of_a_part_succeeds(documents: Documents, uploads: Uploads, acme: TenantScope) -> None:
    upload_id = open_upload(uploads, acme)
    first, second = uploads.start_part(acme, upload_id, 0), uploads.start_part(acme, upload_id, 0)
    first.write(DATA)
    second.write(b"x" * 1000)
    assert first.finish().state == "done"
    with pytest.raises(Conflict) as refused:
        second.finish()
    assert refused.value.headers == {"Upload-Offset": str(len(DATA))}
    with pytest.raises(Conflict, match="done"):
        uploads.start_part(acme, upload_id, len(DATA))
    assert len(list_names(documents, acme)) == 1


def test_concurrent_finishes_create_one_document(documents: Documents, uploads: Uploads, acme: TenantScope) -> None:
    upload_id = open_upload(uploads, acme)
    for begins in (0, 100_000, 200_000):
        part = uploads.start_part(acme, upload_id, begins)
        part.write(DATA[begins : begins + 100_000])
        part.flush()
    done: list[Upload] = []
    threads = [threading.Thread(target=lambda: done.append(uploads.finish_upload(acme, upload_id))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {each.document_id for each in done} == {done[0].document_id}
    assert [each.state for each in done] == ["done"] * 4
    assert len(list_names(documents, acme)) == 1


def test_bytes_beyond_the_size_are_refused_and_earlier_ones_stay(uploads: Uploads, acme: TenantScope) -> None:
    upload_id = open_upload(uploads, acme, 1000, None)
    part = uploads.start_part(acme, upload_id, 0)
    part.write(b"x" * 900)
    with pytest.raises(PayloadTooLarge):
        part.write(b"x" * 101)
    part.flush()
    assert uploads.get_upload(acme, upload_id).received == 900
    with pytest.raises(PayloadTooLarge):
        uploads.open_upload(acme, NewUpload(uploads.most + 1, None, NewDocument("large.bin")))


def test_a_wrong_digest_creates_no_document(documents: Documents, uploads: Uploads, acme: TenantScope) -> None:
    upload_id = open_upload(uploads, acme, 1000)
    with pytest.raises(ValidationFailed) as refused:
        send(uploads, acme, upload_id, 0, DATA[:1000])
    assert refused.value.details[0].pointer == "/sha256"
    assert (uploads.get_upload(acme, upload_id).state, list_names(documents, acme)) == ("refused", [])
    with pytest.raises(Conflict, match="refused"):
        uploads.start_part(acme, upload_id, 1000)


def test_a_corrupted_part_creates_no_document(
    documents: Documents, uploads: Uploads, acme: TenantScope, tmp_path: Path
) -> None:
    upload_id = open_upload(uploads, acme, 2000, None)
    send(uploads, acme, upload_id, 0, DATA[:1000])
    (path,) = (path for path in (tmp_path / "blobs").rglob("*") if path.is_file() and path.read_bytes() == DATA[:1000])
    path.chmod(0o600)
    path.write_bytes(b"x" + DATA[1:1000])
    with pytest.raises(BlobDamaged):
        send(uploads, acme, upload_id, 1000, DATA[1000:2000])
    assert (uploads.get_upload(acme, upload_id).state, list_names(documents, acme)) == ("open", [])


def test_bytes_are_stored_within_a_request(uploads: Uploads, acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain, "PART_BYTES", 100_000)
    upload_id = open_upload(uploads, acme)
    part = uploads.start_part(acme, upload_id, 0)
    for at in range(0, 250_000, 50_000):
        part.write(DATA[at : at + 50_000])
    assert uploads.get_upload(acme, upload_id).received == 200_000
    part.flush()
    assert uploads.get_upload(acme, upload_id).received == 250_000


def test_an_upload_belongs_to_its_tenant(uploads: Uploads, acme: TenantScope, globex: TenantScope) -> None:
    upload_id = open_upload(uploads, acme)
    for attempt in (
        lambda: uploads.get_upload(globex, upload_id),
        lambda: uploads.start_part(globex, upload_id, 0),
        lambda: uploads.finish_upload(globex, upload_id),
        lambda: uploads.delete_upload(globex, upload_id),
    ):
        with pytest.raises(NotFound):
            attempt()
    assert uploads.get_upload(acme, upload_id).state == "open"


def test_open_uploads_are_limited_and_expire_after_a_day(
    uploads: Uploads, blobs: Blobs, acme: TenantScope, globex: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_upload(uploads, acme)
    for _ in range(MOST_OPEN - 1):
        open_upload(uploads, acme)
    with pytest.raises(Conflict, match="open"):
        open_upload(uploads, acme)
    open_upload(uploads, globex)
    uploads.delete_upload(acme, first)
    active = open_upload(uploads, acme)
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now + LIFETIME_MS - 1000)
    send(uploads, acme, active, 0, DATA[:100_000])
    monkeypatch.setattr(clock, "now_ms", lambda: now + LIFETIME_MS + 1000)
    assert delete_expired_uploads() == MOST_OPEN
    assert uploads.get_upload(acme, active).received == 100_000
    monkeypatch.setattr(clock, "now_ms", lambda: now + 2 * LIFETIME_MS + GRACE_MS)
    with pytest.raises(NotFound):
        uploads.get_upload(acme, active)
    assert blobs.collect() == 0, "the part is still referred to"
    assert delete_expired_uploads() == 1
    assert blobs.collect() == 1


KILLED = """
import os, sys
from pathlib import Path
from appliance.blobs.local import LocalPlaces
from appliance.blobs.service import Blobs
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.documents.service import BLOB_TABLES, Documents
from appliance.documents.uploads import Uploads
url, folder, upload_id, offset, countdown = sys.argv[1:]
db.open_database(url)
blobs = Blobs(LocalPlaces(Path(folder)), BLOB_TABLES)
left = int(countdown)
fsync = os.fsync
def count():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), 9)
db.database.obj.execute_sql = lambda sql, params=None, real=db.database.obj.execute_sql: (count(), real(sql, params))[1]
os.fsync = lambda descriptor: (count(), fsync(descriptor))[1]
uploads = Uploads(Documents(blobs), blobs, 1 << 30)
part = uploads.start_part(TenantScope("acme", "key:acme"), upload_id, int(offset))
data = sys.stdin.buffer.read()
part.write(data[int(offset):])
part.finish()
db.close_database()
"""


def test_a_crash_loses_no_acknowledged_bytes(
    documents: Documents, uploads: Uploads, acme: TenantScope, store_url: str, tmp_path: Path
) -> None:
    """Killed at different writes, an upload can always be resumed at its offset, and becomes exactly one document."""
    kills = 0
    for countdown in (4, 9, 16, 30, 200):
        upload_id = open_upload(uploads, acme, name=f"{countdown}.bin")
        send(uploads, acme, upload_id, 0, DATA[:1000])
        command = [sys.executable, "-c", KILLED, store_url, str(tmp_path / "blobs"), upload_id, "1000", str(countdown)]
        status = subprocess.run(command, input=DATA, check=False, capture_output=True).returncode
        assert status in (0, -9)
        kills += status == -9
        upload = uploads.get_upload(acme, upload_id)
        assert upload.received in (1000, len(DATA))
        if upload.state == "open":
            upload = send(uploads, acme, upload_id, upload.received, DATA[upload.received :])
        assert (upload.state, upload.received) == ("done", len(DATA))
        assert documents.get_document(acme, str(upload.document_id)).sha256 == SHA
    assert kills >= 3
    assert len(list_names(documents, acme)) == 5
    assert db.rows("SELECT count(*) FROM document_upload_part") == [(0,)]
