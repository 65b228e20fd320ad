"""Uploads in parts: bytes that come in several requests, kept as they come, and a document once all of them are there.

The rules are those of the IETF draft "Resumable Uploads for HTTP" for an upload whose length is known: what was
acknowledged is durable, a part begins where the last one ended, and whoever says otherwise is told where that is.
Parts are blobs, so that a crash leaves nothing half written; the last one makes the document in one transaction.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from appliance.blobs import Blobs, Receiver, StoredBlob
from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, PayloadTooLarge, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from .contents.scanning import Infected
from .models import UploadPart, UploadRow
from .naming import check_comment
from .records import Document, NewDocument
from .service import Documents, check_new

MOST_OPEN = 50
LIFETIME_MS = 24 * 3_600_000
PART_BYTES = 32 << 20
"""So much of one request is durable before the next bytes of it are read on."""

State = Literal["open", "done", "refused"]


@dataclass(frozen=True)
class NewUpload:
    """What is to be sent: its size and perhaps its sha256; for a new document what it is called, else its id."""

    size: int
    sha256: str | None = None
    new: NewDocument = field(default_factory=lambda: NewDocument(""))
    document_id: str | None = None
    comment: str = ""


@dataclass(frozen=True)
class Upload:
    """An upload, of which `received` bytes are durable.  `revision` is what it has become of `document_id`; times in
    milliseconds."""

    id: str
    name: str
    size: int
    received: int
    state: State
    document_id: str | None
    revision: int | None
    created_at: int
    expires_at: int


def offset_told(received: int) -> dict[str, str]:
    """The header that says where the next part begins."""
    return {"Upload-Offset": str(received)}


class Uploads:
    """The uploads of every tenant; `most` is the size of the largest."""

    def __init__(self, documents: Documents, blobs: Blobs, most: int) -> None:
        self._documents, self._blobs, self.most = documents, blobs, most

    def open_upload(self, scope: TenantScope, wanted: NewUpload) -> Upload:
        """Announce an upload; what is wrong with the document to be is said before a byte is sent.

        ValidationFailed, PayloadTooLarge, NotFound (of the document it continues), Conflict when too many are open.
        """
        if wanted.size > self.most:
            raise PayloadTooLarge(Sentence("a document may have at most %(most)s MiB", most=self.most >> 20), pointer="/size")
        name, folder, tags, metadata = ("", "", (), {}) if wanted.document_id else check_new(wanted.new)
        comment, upload_id, now = check_comment(wanted.comment), ids.new("upl"), clock.now_ms()

        def insert() -> Upload:
            shown = name
            if wanted.document_id is not None:
                shown = self._documents.get_document(scope, wanted.document_id).name
            is_open = (UploadRow.state == "open") & (UploadRow.expires_at > now)
            if scope.select(UploadRow).where(is_open).count() >= MOST_OPEN:
                raise Conflict(Sentence("%(most_open)s uploads are open; finish some of them, or delete them", most_open=MOST_OPEN))
            scope.insert(
                UploadRow, id=upload_id, document_id=wanted.document_id, name=shown, folder=folder, tags=list(tags),
                metadata=metadata, media_type=wanted.new.media_type, comment=comment, size=wanted.size, sha256=wanted.sha256,
                received=0, state="open", created_at=now, created_by=scope.actor, expires_at=now + LIFETIME_MS,
            )  # fmt: skip
            return self.get_upload(scope, upload_id)

        return db.write(insert)

    def get_upload(self, scope: TenantScope, upload_id: str) -> Upload:
        """The upload; NotFound, also a day after its last part."""
        return _upload(_row(scope, upload_id))

    def delete_upload(self, scope: TenantScope, upload_id: str) -> None:
        """Give an upload up with what it has sent; a document it has become stays.  NotFound."""

        def delete() -> None:
            _row(scope, upload_id)
            scope.delete(UploadRow).where(UploadRow.id == upload_id).execute()

        db.write(delete)

    def begin_part(self, scope: TenantScope, upload_id: str, offset: int) -> "Part":
        """Where an edge writes the bytes that follow `offset`.  NotFound; Conflict, whose `Upload-Offset` is the right one."""
        upload = self.get_upload(scope, upload_id)
        _refuse_other(upload, offset)
        return Part(self, scope, upload)

    def keep_part(self, scope: TenantScope, upload_id: str, begins: int, receiver: Receiver) -> int:
        """Make what was received durable and acknowledged; answers where the next part begins.  Conflict when another
        request was quicker."""
        with _closed_when_infected(scope, upload_id):
            stored = self._blobs.put_received(scope, receiver.finish())

        def advance() -> int:
            row = _row(scope, upload_id)
            _refuse_other(_upload(row), begins)
            self._blobs.hold(scope, stored.sha256)
            received, expires = begins + stored.size, clock.now_ms() + LIFETIME_MS
            changed = scope.update(UploadRow, received=received, expires_at=expires)
            changed.where(UploadRow.id == upload_id).execute()
            scope.insert(UploadPart, upload_id=upload_id, begins=begins, sha256=stored.sha256, size=stored.size)
            return received

        return db.write(advance)

    def receiver(self) -> Receiver:
        return self._blobs.receiver()

    def finish_upload(self, scope: TenantScope, upload_id: str) -> Upload:
        """Make the document, or its revision, when every byte is there; answers the upload as it is then.

        ValidationFailed when the bytes are not those that were announced: the upload is refused for good.
        """
        with db.snapshot():
            row = _row(scope, upload_id)
            parts = list(scope.select(UploadPart).where(UploadPart.upload_id == upload_id).order_by(UploadPart.begins))
        if row.state != "open" or row.received < row.size:
            return _upload(row)
        with _closed_when_infected(scope, upload_id):
            stored = self._joined(scope, parts)
        if row.sha256 not in (None, stored.sha256):
            db.write(lambda: _close(scope, upload_id, {"state": "refused"}))
            raise ValidationFailed(
                Sentence(
                    "the bytes that came have the sha256 %(sha256)s, not the one announced; begin a new upload",
                    sha256=stored.sha256,
                ),
                pointer="/sha256",
            )

        def make() -> Upload:
            if _row(scope, upload_id).state == "open":  # else another request was quicker
                made = self._make(scope, row, stored)
                _close(scope, upload_id, {"state": "done", "document_id": made.id, "revision": made.revision})
            return self.get_upload(scope, upload_id)

        return db.write(make)

    def _joined(self, scope: TenantScope, parts: Sequence[UploadPart]) -> StoredBlob:
        """All parts as one content."""
        if len(parts) == 1:
            head = b"".join(self._blobs.read(scope, parts[0].sha256, 0, 4096))
            return StoredBlob(parts[0].sha256, parts[0].size, head)

        def pieces() -> Iterator[bytes]:
            for part in parts:
                yield from self._blobs.read_checked(scope, part.sha256)

        return self._blobs.put(scope, pieces(), is_counted=True)

    def _make(self, scope: TenantScope, row: UploadRow, stored: StoredBlob) -> Document:
        if row.document_id is not None:
            return self._documents.add_revision(
                scope, row.document_id, stored, comment=row.comment, media_type=row.media_type
            )  # fmt: skip
        new = NewDocument(row.name, row.media_type, row.folder, tuple(row.tags), row.metadata)
        return self._documents.create_document(scope, new, stored)


class Part:
    """Bytes of one request on their way in, durable every `PART_BYTES`."""

    def __init__(self, uploads: Uploads, scope: TenantScope, upload: Upload) -> None:
        self._uploads, self._scope, self._upload = uploads, scope, upload
        self._begins = upload.received
        self._receiver: Receiver | None = None
        self._lock = threading.Lock()  # a request that is given up leaves a write behind that has not ended yet

    def write(self, piece: bytes) -> None:
        """PayloadTooLarge beyond the announced size, Conflict when another request sends the same part."""
        with self._lock:
            held = self._receiver.size if self._receiver else 0
            if self._begins + held + len(piece) > self._upload.size:
                raise PayloadTooLarge(
                    Sentence("the upload was announced with %(size)s bytes, and more came; begin another", size=self._upload.size),
                    headers={"Connection": "close"},
                )
            if not piece:
                return
            if self._receiver is None:
                self._receiver = self._uploads.receiver()
            self._receiver.write(piece)
            if self._receiver.size >= PART_BYTES:
                self._keep()

    def keep(self) -> None:
        """Make durable what has come so far; whatever ended the request, this much need not be sent again."""
        with self._lock:
            self._keep()

    def _keep(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        try:
            self._begins = self._uploads.keep_part(self._scope, self._upload.id, self._begins, receiver)
        finally:
            receiver.discard()

    def finish(self) -> Upload:
        """`keep`, and the document when this was the last part."""
        self.keep()
        return self._uploads.finish_upload(self._scope, self._upload.id)


def forget_expired() -> int:
    """Delete every tenant's uploads that nobody has continued for a day; answers how many."""
    now = clock.now_ms()
    return db.write(lambda: db.execute("DELETE FROM document_upload WHERE expires_at < ?", (now,)))


def _row(scope: TenantScope, upload_id: str) -> UploadRow:
    row = scope.find(UploadRow, id=upload_id)
    if row is None or row.expires_at <= clock.now_ms():
        raise NotFound(Sentence("there is no upload %(upload_id)s here; begin a new one", upload_id=repr(upload_id[:80])))
    return row


def _refuse_other(upload: Upload, offset: int) -> None:
    told = offset_told(upload.received)
    if upload.state != "open":
        raise Conflict(
            Sentence("this upload is %(state)s; begin a new one", state=upload.state),
            headers=told, extra={"offset": upload.received},
        )
    if offset != upload.received:
        raise Conflict(
            Sentence(
                "the next part begins at %(received)s, not at %(offset)s: somebody has sent it, or it was not received",
                received=upload.received, offset=offset,
            ),
            headers=told, extra={"offset": upload.received},
        )  # fmt: skip


@contextmanager
def _closed_when_infected(scope: TenantScope, upload_id: str) -> Iterator[None]:
    """Whoever sends malware would otherwise send it again and again: the upload is refused for good."""
    try:
        yield
    except Infected:
        db.write(lambda: _close(scope, upload_id, {"state": "refused"}))
        raise


def _close(scope: TenantScope, upload_id: str, changes: dict[str, Any]) -> None:
    """The parts of an open upload are given up; the row stays for who has not heard the answer."""
    if scope.update(UploadRow, **changes).where(UploadRow.id == upload_id, UploadRow.state == "open").execute():
        scope.delete(UploadPart).where(UploadPart.upload_id == upload_id).execute()


def _upload(row: UploadRow) -> Upload:
    return Upload(
        row.id, row.name, row.size, row.received, cast(State, row.state), row.document_id, row.revision, row.created_at,
        row.expires_at,
    )  # fmt: skip
