"""Resumable uploads: bytes arrive in several requests, are stored as they arrive, and become a document when complete.

The protocol is the IETF draft "Resumable Uploads for HTTP" for uploads of known length: acknowledged bytes are durable, each
part starts where the previous one ended, and a request with another offset is told the right one. Parts are blobs, so a crash
leaves nothing half written; the last part creates the document in one transaction.
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
    """An upload to open: its size, optionally its sha256, and a new document or the id of an existing one."""

    size: int
    sha256: str | None = None
    new: NewDocument = field(default_factory=lambda: NewDocument(""))
    document_id: str | None = None
    comment: str = ""


@dataclass(frozen=True)
class Upload:
    """An upload of which `received` bytes are durable. `revision` is the revision it created in `document_id`; times in
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


def offset_header(received: int) -> dict[str, str]:
    """The header with the offset of the next part."""
    return {"Upload-Offset": str(received)}


class Uploads:
    """The uploads of every tenant; `most` is the largest size in bytes."""

    def __init__(self, documents: Documents, blobs: Blobs, max_bytes: int) -> None:
        self._documents, self._blobs, self.most = documents, blobs, max_bytes

    def open_upload(self, scope: TenantScope, new: NewUpload) -> Upload:
        """Open an upload; the data of the document is validated before any bytes are sent.

        ValidationFailed, PayloadTooLarge, NotFound (of an existing document), Conflict when too many are open.
        """
        if new.size > self.most:
            raise PayloadTooLarge(Sentence("a document may have at most %(most)s MiB", most=self.most >> 20), pointer="/size")
        name, folder, tags, metadata = ("", "", (), {}) if new.document_id else check_new(new.new)
        comment, upload_id, now = check_comment(new.comment), ids.new("upl"), clock.now_ms()

        def insert() -> Upload:
            document_name = name
            if new.document_id is not None:
                document_name = self._documents.get_document(scope, new.document_id).name
            is_open = (UploadRow.state == "open") & (UploadRow.expires_at > now)
            if scope.select(UploadRow).where(is_open).count() >= MOST_OPEN:
                raise Conflict(Sentence("%(most_open)s uploads are already open; finish or delete some", most_open=MOST_OPEN))
            scope.insert(
                UploadRow, id=upload_id, document_id=new.document_id, name=document_name, folder=folder, tags=list(tags),
                metadata=metadata, media_type=new.new.media_type, comment=comment, size=new.size, sha256=new.sha256,
                received=0, state="open", created_at=now, created_by=scope.actor, expires_at=now + LIFETIME_MS,
            )  # fmt: skip
            return self.get_upload(scope, upload_id)

        return db.write(insert)

    def get_upload(self, scope: TenantScope, upload_id: str) -> Upload:
        """Get the upload; NotFound, also a day after its last part."""
        return _to_upload(_row(scope, upload_id))

    def delete_upload(self, scope: TenantScope, upload_id: str) -> None:
        """Delete an upload and its parts; a document it created stays. NotFound."""

        def delete() -> None:
            _row(scope, upload_id)
            scope.delete(UploadRow).where(UploadRow.id == upload_id).execute()

        db.write(delete)

    def start_part(self, scope: TenantScope, upload_id: str, offset: int) -> "Part":
        """Start a part at `offset`. NotFound; Conflict with the right `Upload-Offset`."""
        upload = self.get_upload(scope, upload_id)
        _check_offset(upload, offset)
        return Part(self, scope, upload)

    def store_part(self, scope: TenantScope, upload_id: str, start: int, receiver: Receiver) -> int:
        """Store the received bytes; returns where the next part starts. Conflict when another request was faster."""
        with _reject_infected(scope, upload_id):
            stored = self._blobs.put_received(scope, receiver.finish())

        def advance() -> int:
            row = _row(scope, upload_id)
            _check_offset(_to_upload(row), start)
            self._blobs.hold(scope, stored.sha256)
            received, expires_at = start + stored.size, clock.now_ms() + LIFETIME_MS
            query = scope.update(UploadRow, received=received, expires_at=expires_at)
            query.where(UploadRow.id == upload_id).execute()
            scope.insert(UploadPart, upload_id=upload_id, begins=start, sha256=stored.sha256, size=stored.size)
            return received

        return db.write(advance)

    def receiver(self) -> Receiver:
        return self._blobs.receiver()

    def finish_upload(self, scope: TenantScope, upload_id: str) -> Upload:
        """Create the document or revision if every byte has arrived; returns the upload.

        ValidationFailed when the sha256 differs from the announced one, which rejects the upload for good.
        """
        with db.snapshot():
            row = _row(scope, upload_id)
            parts = list(scope.select(UploadPart).where(UploadPart.upload_id == upload_id).order_by(UploadPart.begins))
        if row.state != "open" or row.received < row.size:
            return _to_upload(row)
        with _reject_infected(scope, upload_id):
            stored = self._join_parts(scope, parts)
        if row.sha256 not in (None, stored.sha256):
            db.write(lambda: _close(scope, upload_id, {"state": "refused"}))
            raise ValidationFailed(
                Sentence(
                    "the received bytes have the sha256 %(sha256)s instead of the announced one; start a new upload",
                    sha256=stored.sha256,
                ),
                pointer="/sha256",
            )

        def create() -> Upload:
            if _row(scope, upload_id).state == "open":  # otherwise another request was faster
                document = self._create_document(scope, row, stored)
                _close(scope, upload_id, {"state": "done", "document_id": document.id, "revision": document.revision})
            return self.get_upload(scope, upload_id)

        return db.write(create)

    def _join_parts(self, scope: TenantScope, parts: Sequence[UploadPart]) -> StoredBlob:
        """All parts as one content."""
        if len(parts) == 1:
            head = b"".join(self._blobs.read(scope, parts[0].sha256, 0, 4096))
            return StoredBlob(parts[0].sha256, parts[0].size, head)

        def pieces() -> Iterator[bytes]:
            for part in parts:
                yield from self._blobs.read_checked(scope, part.sha256)

        return self._blobs.put(scope, pieces(), is_counted=True)

    def _create_document(self, scope: TenantScope, row: UploadRow, stored: StoredBlob) -> Document:
        if row.document_id is not None:
            return self._documents.add_revision(
                scope, row.document_id, stored, comment=row.comment, media_type=row.media_type
            )  # fmt: skip
        new = NewDocument(row.name, row.media_type, row.folder, tuple(row.tags), row.metadata)
        return self._documents.create_document(scope, new, stored)


class Part:
    """The bytes of one request, stored every `PART_BYTES`."""

    def __init__(self, uploads: Uploads, scope: TenantScope, upload: Upload) -> None:
        self._uploads, self._scope, self._upload = uploads, scope, upload
        self._start = upload.received
        self._receiver: Receiver | None = None
        self._lock = threading.Lock()  # the write of an aborted request may still be running

    def write(self, piece: bytes) -> None:
        """Add bytes; PayloadTooLarge beyond the announced size, Conflict when another request sends the same part."""
        with self._lock:
            buffered = self._receiver.size if self._receiver else 0
            if self._start + buffered + len(piece) > self._upload.size:
                raise PayloadTooLarge(
                    Sentence("more than the announced %(size)s bytes were received; start a new upload", size=self._upload.size),
                    headers={"Connection": "close"},
                )
            if not piece:
                return
            if self._receiver is None:
                self._receiver = self._uploads.receiver()
            self._receiver.write(piece)
            if self._receiver.size >= PART_BYTES:
                self._flush()

    def flush(self) -> None:
        """Store the bytes received so far, so that they need not be sent again however the request ends."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        try:
            self._start = self._uploads.store_part(self._scope, self._upload.id, self._start, receiver)
        finally:
            receiver.discard()

    def finish(self) -> Upload:
        """Store the rest, and create the document if this was the last part."""
        self.flush()
        return self._uploads.finish_upload(self._scope, self._upload.id)


def delete_expired_uploads() -> int:
    """Delete every tenant's uploads without a part for a day; returns how many."""
    now = clock.now_ms()
    return db.write(lambda: db.execute("DELETE FROM document_upload WHERE expires_at < ?", (now,)))


def _row(scope: TenantScope, upload_id: str) -> UploadRow:
    row = scope.find(UploadRow, id=upload_id)
    if row is None or row.expires_at <= clock.now_ms():
        raise NotFound(Sentence("there is no upload %(upload_id)s; start a new one", upload_id=repr(upload_id[:80])))
    return row


def _check_offset(upload: Upload, offset: int) -> None:
    headers = offset_header(upload.received)
    if upload.state != "open":
        raise Conflict(
            Sentence("this upload is %(state)s; start a new one", state=upload.state),
            headers=headers, extra={"offset": upload.received},
        )
    if offset != upload.received:
        raise Conflict(
            Sentence(
                "the next part starts at %(received)s, not at %(offset)s: it was already sent, or bytes before it are missing",
                received=upload.received, offset=offset,
            ),
            headers=headers, extra={"offset": upload.received},
        )  # fmt: skip


@contextmanager
def _reject_infected(scope: TenantScope, upload_id: str) -> Iterator[None]:
    """Reject an infected upload for good, so that it is not sent again and again."""
    try:
        yield
    except Infected:
        db.write(lambda: _close(scope, upload_id, {"state": "refused"}))
        raise


def _close(scope: TenantScope, upload_id: str, changes: dict[str, Any]) -> None:
    """Delete the parts of an open upload; the row is kept for clients that missed the response."""
    if scope.update(UploadRow, **changes).where(UploadRow.id == upload_id, UploadRow.state == "open").execute():
        scope.delete(UploadPart).where(UploadPart.upload_id == upload_id).execute()


def _to_upload(row: UploadRow) -> Upload:
    return Upload(
        id=row.id, name=row.name, size=row.size, received=row.received, state=cast(State, row.state), document_id=row.document_id,
        revision=row.revision, created_at=row.created_at, expires_at=row.expires_at,
    )  # fmt: skip
