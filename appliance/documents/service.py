"""Documents and their revisions. Every function takes a TenantScope first.

Bytes are stored before rows: `store_content` stores them outside of any transaction, and returns what `create_document` and
`add_revision` need. These only write rows, and can be part of an outer `db.write`, such as the commit of a step.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from peewee import SQL

from appliance.blobs import Blobs, Download, ReceivedFile, Receiver, StoredBlob, Usage
from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import ValidationFailed, VersionConflict
from appliance.core.events import hub
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.patches import merge_patch
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit

from . import browsing, folders
from .browsing import FolderPage, Order
from .candidates import NAMES
from .contents import key_checks, preview_rows, texts
from .contents.media_types import settle_media_type
from .contents.quarantine import check_not_quarantined
from .contents.scanning import ScannedBlobs
from .contents.texts import Text
from .folder_rules import check_moves
from .folders import Folder
from .listing import find_page, to_documents
from .metadata import check_metadata, read_metadata, set_metadata
from .models import DocumentRevision, DocumentRow, DocumentTag
from .naming import check_comment, check_folder, check_name, check_tags, clean_name, disposition
from .records import Changes, Content, Document, DocumentChanged, DocumentFilter, Event, NewDocument, Revision
from .retention import check_none_retained, check_not_retained

__all__ = [
    "BLOB_TABLES",
    "REVISION_TABLE",
    "Changes",
    "Content",
    "Document",
    "DocumentChanged",
    "DocumentFilter",
    "Documents",
    "Event",
    "Folder",
    "FolderPage",
    "NewDocument",
    "Order",
    "Revision",
    "clean_name",
    "forget_tenant",
    "read_metadata",
    "settle_media_type",
]  # fmt: skip

REVISION_TABLE = "document_revision"  # the table of revisions
BLOB_TABLES = (
    REVISION_TABLE,
    "document_upload_part",
    "document_text",
    "document_preview",
)  # every table of documents that refers to blobs


def forget_tenant(scope: TenantScope) -> None:
    """Inside the write that deletes the tenant: delete revisions before the blobs they refer to."""
    NAMES.remove("tenant_id = ?", (scope.tenant_id,))
    scope.delete(DocumentRow).execute()
    texts.forget_all(scope)
    preview_rows.forget_all(scope)


class Documents:
    """The documents of every tenant."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    # -- bytes, outside of any transaction

    def receiver(self) -> Receiver:
        """A receiver for bytes as they arrive; pass it to `store_received`, or discard it."""
        return self._blobs.receiver()

    def store_received(self, scope: TenantScope, received: ReceivedFile) -> StoredBlob:
        """Store received bytes; they are garbage collected after a day unless a row refers to them."""
        return self._blobs.put_received(scope, received)

    def store_content(self, scope: TenantScope, source: bytes | BinaryIO | Iterable[bytes]) -> StoredBlob:
        """Store bytes; they must be passed to `create_document` or `add_revision` within a day."""
        return self._blobs.put(scope, source)

    def scan_again(self, folder: Path) -> int:
        """Scan quarantined contents again; returns how many can be read now."""
        return self._blobs.rescan_quarantined(folder) if isinstance(self._blobs, ScannedBlobs) else 0

    def usage(self, scope: TenantScope) -> Usage:
        """What the tenant has stored; equal contents are counted once."""
        return self._blobs.usage(scope)

    # -- documents

    def store_document(self, scope: TenantScope, new: NewDocument, source: bytes | BinaryIO | Iterable[bytes]) -> Document:
        """Store the content and create the document; not inside a transaction."""
        check_new(new)
        return self.create_document(scope, new, self._blobs.put(scope, source))

    def create_document(self, scope: TenantScope, new: NewDocument, content: StoredBlob, document_id: str = "") -> Document:
        """Create a document with the content as its first revision; ValidationFailed. Writes rows only, so it can be part of a
        write.

        `document_id` is an id that the caller has already reserved.
        """
        name, folder, tags, metadata = check_new(new)
        media_type, now = settle_media_type(content.head, name, new.media_type), clock.now_ms()

        def insert() -> Document:
            new_id = document_id or ids.new("doc")
            scope.insert(
                DocumentRow, id=new_id, name=name, folder=folder, media_type=media_type, size=content.size,
                sha256=content.sha256, revision=1, version=1, created_at=now, created_by=scope.actor, updated_at=now,
                metadata=metadata, number=SQL("(SELECT COALESCE(MAX(number), 0) + 1 FROM document)"),
            )  # fmt: skip
            NAMES.add(*_one(scope, new_id))
            _set_tags(scope, new_id, tags)
            set_metadata(scope, new_id, metadata)
            self._insert_revision(scope, new_id, (1, "", media_type, now), content)
            return self._notify(scope, "created", new_id)

        return db.write(insert)

    def add_revision(
        self, scope: TenantScope, document_id: str, content: StoredBlob, *, comment: str = "",
        media_type: str | None = None, if_version: int | None = None,
    ) -> Document:  # fmt: skip
        """Make the content the newest revision, unless it equals the current one. NotFound, VersionConflict.

        Writes rows only, so it can be part of a write.
        """
        check_comment(comment)

        def insert() -> Document:
            row = _at_version(scope, document_id, if_version)
            if row.sha256 == content.sha256:
                return self.get_document(scope, document_id)
            settled, now = settle_media_type(content.head, row.name, media_type), max(clock.now_ms(), row.updated_at)
            number = row.revision + 1
            _change(scope, row, {"media_type": settled, "size": content.size, "sha256": content.sha256, "revision": number})
            self._insert_revision(scope, document_id, (number, comment, settled, now), content)
            return self._notify(scope, "updated", document_id)

        return db.write(insert)

    def _insert_revision(
        self, scope: TenantScope, document_id: str, fields: tuple[int, str, str, int], content: StoredBlob
    ) -> None:
        self._blobs.hold(scope, content.sha256)
        number, comment, media_type, now = fields
        scope.insert(
            DocumentRevision, document_id=document_id, number=number, sha256=content.sha256, size=content.size,
            media_type=media_type, comment=comment, created_at=now, created_by=scope.actor,
        )  # fmt: skip
        texts.request_text(scope, content.sha256, media_type)

    def get_document(self, scope: TenantScope, document_id: str) -> Document:
        """Get the document; NotFound."""
        with db.snapshot():
            return to_documents(scope, [scope.get(DocumentRow, id=document_id)])[0]

    def list_documents(self, scope: TenantScope, filters: DocumentFilter, request: PageRequest) -> Page[Document]:
        """The documents that match all filters, newest first by default."""
        with db.snapshot():
            page = find_page(scope, filters, request)
            return Page(to_documents(scope, page.items), page.next_cursor, page.total)

    def update_document(self, scope: TenantScope, document_id: str, changes: Changes, *, if_version: int | None = None) -> Document:
        """Rename, move, tag or describe a document; its content stays. NotFound, VersionConflict, ValidationFailed,
        DocumentKept; ScopeMissing for a move that would deliver unapproved content."""
        name = None if changes.name is None else check_name(changes.name)
        folder = None if changes.folder is None else check_folder(changes.folder)
        tags = None if changes.tags is None else check_tags(changes.tags)
        beginning = None if changes.media_type is None else self._read_start(scope, document_id)

        def update() -> Document:
            row = _at_version(scope, document_id, if_version)
            current = to_documents(scope, [row])[0]
            values: dict[str, Any] = {"name": name or row.name, "folder": row.folder if folder is None else folder}
            if values["folder"] != row.folder:
                check_not_retained(scope, document_id, "moved")
                check_moves(scope, [(document_id, row.folder, values["folder"])])
            if changes.metadata is not None:
                values["metadata"] = check_metadata(merge_patch(row.metadata, changes.metadata))
            if beginning is not None:
                values["media_type"] = _checked_media_type(row, beginning, values["name"], changes.media_type or "")
            if (tags is None or tags == current.tags) and all(getattr(row, each) == value for each, value in values.items()):
                return current
            _change(scope, row, values)
            before = {name: getattr(row, name) for name in values} | {"tags": list(current.tags)}
            after = values | {"tags": list(current.tags if tags is None else tags)}
            _record(scope, "document.change", document_id, audit.compare(before, after))
            if values.get("media_type", row.media_type) != row.media_type:
                self._retype_revision(scope, row, values["media_type"])
            if tags is not None:
                _set_tags(scope, document_id, tags)
            if "metadata" in values:
                set_metadata(scope, document_id, values["metadata"])
            return self._notify(scope, "updated", document_id)

        return db.write(update)

    def _read_start(self, scope: TenantScope, document_id: str) -> tuple[str, bytes]:
        """The sha256 and first bytes of the newest content; may read from remote storage, so not inside a write."""
        sha256 = scope.get(DocumentRow, id=document_id).sha256
        return sha256, b"".join(self._blobs.read(scope, sha256, 0, 4096))

    def _retype_revision(self, scope: TenantScope, row: DocumentRow, media_type: str) -> None:
        """Change the media type of the newest revision, because it is what delivery and text extraction use."""
        newest = (DocumentRevision.document_id == row.id) & (DocumentRevision.number == row.revision)
        scope.update(DocumentRevision, media_type=media_type).where(newest).execute()
        texts.request_text(scope, row.sha256, media_type)

    # -- folders

    def list_folder_contents(self, scope: TenantScope, folder: str, order: Order, request: PageRequest) -> FolderPage:
        """The direct contents of a folder: subfolders by name, then documents; ValidationFailed, InvalidCursor."""
        return browsing.list_folder_contents(scope, folder, order, request)

    def list_folders(self, scope: TenantScope, under: str, request: PageRequest) -> Page[Folder]:
        """The folders in `under` and below, sorted by path; ValidationFailed."""
        return folders.list_folders(scope, check_folder(under, "/under"), request)

    def move_folder(self, scope: TenantScope, source: str, target: str) -> int:
        """Move a folder with everything in it, atomically; returns how many documents moved.

        NotFound when it is empty, Conflict when it would move into itself or has too many documents; DocumentKept and
        ScopeMissing as for a single document.
        """

        def move() -> int:
            moves = folders.plan_move(scope, check_folder(source, "/from"), check_folder(target, "/to"))
            check_moves(scope, [(row.id, row.folder, folder) for row, folder in moves])
            check_none_retained(scope, [row.id for row, _ in moves], "moved")
            for document in to_documents(scope, folders.apply_move(scope, moves)):
                hub.publish(DocumentChanged(scope, "updated", document))
            _record(scope, "folder.move", source, {"to": target, "documents": len(moves)})
            return len(moves)

        return db.write(move)

    def delete_document(self, scope: TenantScope, document_id: str, *, if_version: int | None = None) -> None:
        """Delete the document with all its revisions; NotFound, VersionConflict, DocumentKept."""

        def delete() -> None:
            _at_version(scope, document_id, if_version)
            check_not_retained(scope, document_id, "deleted")
            document = self.get_document(scope, document_id)
            rows = scope.select(DocumentRevision, DocumentRevision.sha256).where(DocumentRevision.document_id == document_id)
            contents = {row.sha256 for row in rows}
            for sha256 in contents:
                self._blobs.hold(scope, sha256)  # so that readers that have started can finish
            NAMES.remove(*_one(scope, document_id))
            scope.delete(DocumentRow).where(DocumentRow.id == document_id).execute()
            texts.forget_unused(scope, contents)
            preview_rows.forget_unused(scope, contents)
            key_checks.forget_unused(scope, contents)
            fields = {"name": document.name, "folder": document.folder, "revisions": document.revision, "sha256": document.sha256}
            _record(scope, "document.delete", document_id, fields)
            hub.publish(DocumentChanged(scope, "deleted", document))

        db.write(delete)

    # -- revisions and their contents

    def list_revisions(self, scope: TenantScope, document_id: str, request: PageRequest) -> Page[Revision]:
        """The revisions of the document, newest first; NotFound."""
        scope.get(DocumentRow, id=document_id)
        query = scope.select(DocumentRevision).where(DocumentRevision.document_id == document_id)
        fields = {"number": DocumentRevision.number}
        return paginate(query, request, fields, default="-number", tie="number").map(_to_revision)

    def get_revision(self, scope: TenantScope, document_id: str, number: int) -> Revision:
        """One revision of the document; NotFound."""
        return _to_revision(scope.get(DocumentRevision, document_id=document_id, number=number))

    def open_content(self, scope: TenantScope, document_id: str, revision: int | None = None) -> Content:
        """Open a content for reading, the newest by default; NotFound, Quarantined."""
        with db.snapshot():
            row = scope.get(DocumentRow, id=document_id)
            opened = self.get_revision(scope, document_id, row.revision if revision is None else revision)
        blobs, sha256 = self._blobs, opened.sha256
        check_not_quarantined(scope, sha256)
        return Content(
            document_id=document_id, revision=opened.number, name=row.name, media_type=opened.media_type, size=opened.size,
            sha256=sha256, created_at=opened.created_at, pieces=partial(blobs.read, scope, sha256),
            read=partial(blobs.read_whole, scope, sha256), copy_to=partial(blobs.copy_to, scope, sha256),
            address=partial(self._direct_address, scope, row.name, opened),
        )  # fmt: skip

    def _direct_address(self, scope: TenantScope, name: str, revision: Revision) -> str | None:
        download = Download(disposition(name, "attachment"), revision.media_type)
        return self._blobs.direct_address(scope, revision.sha256, download)

    def open_text(self, scope: TenantScope, document_id: str, revision: int | None = None) -> Text:
        """The text of a content, the newest by default; `pieces` is set when it is ready. NotFound, Quarantined."""
        with db.snapshot():
            row = scope.get(DocumentRow, id=document_id)
            content_revision = self.get_revision(scope, document_id, row.revision if revision is None else revision)
            check_not_quarantined(scope, content_revision.sha256)
        return texts.get_text(scope, self._blobs, content_revision.sha256)

    def _notify(self, scope: TenantScope, event: Event, document_id: str) -> Document:
        document = self.get_document(scope, document_id)
        hub.publish(DocumentChanged(scope, event, document))
        return document


def check_new(new: NewDocument) -> tuple[str, str, tuple[str, ...], dict[str, Any]]:
    """The validated name, folder, tags and metadata; ValidationFailed."""
    return check_name(new.name), check_folder(new.folder), check_tags(new.tags), check_metadata(new.metadata)


def _at_version(scope: TenantScope, document_id: str, if_version: int | None) -> DocumentRow:
    row = scope.get(DocumentRow, id=document_id)
    if if_version is not None and row.version != if_version:
        raise VersionConflict(Sentence(
            "the document is at version %(version)s, not %(if_version)s: read it again and repeat the change",
            version=row.version, if_version=if_version,
        ))
    return row


def _checked_media_type(row: DocumentRow, beginning: tuple[str, bytes], name: str, media_type: str) -> str:
    if beginning[0] != row.sha256:
        raise VersionConflict("the content of the document was replaced at the same time; read it again and repeat the change")
    settled = settle_media_type(beginning[1], name, media_type)
    if settled != media_type:
        raise ValidationFailed(
            Sentence("the content is %(settled)s, not %(media_type)s", settled=settled, media_type=repr(media_type[:80])),
            pointer="/media_type",
        )
    return settled


def _change(scope: TenantScope, row: DocumentRow, changes: Mapping[str, Any]) -> None:
    now = max(clock.now_ms(), row.updated_at)
    is_renamed = changes.get("name", row.name) != row.name
    if is_renamed:
        NAMES.remove(*_one(scope, row.id))
    query = scope.update(DocumentRow, **changes, version=row.version + 1, updated_at=now)
    if not query.where(DocumentRow.id == row.id, DocumentRow.version == row.version).execute():
        raise VersionConflict("the document was changed at the same time; read it again and repeat the change")
    if is_renamed:
        NAMES.add(*_one(scope, row.id))


def _one(scope: TenantScope, document_id: str) -> tuple[str, tuple[Any, ...]]:
    """The condition for one document, in SQL, and its parameters."""
    return "tenant_id = ? AND id = ?", (scope.tenant_id, document_id)


def _record(scope: TenantScope, action: str, subject: str, fields: Mapping[str, Any]) -> None:
    """Inside a write: audit a change, unless a step made it, because its journal says so."""
    if not scope.actor.startswith("execution:"):
        audit.record(scope, action, subject, fields)


def _set_tags(scope: TenantScope, document_id: str, tags: tuple[str, ...]) -> None:
    scope.delete(DocumentTag).where(DocumentTag.document_id == document_id).execute()
    for tag in tags:
        scope.insert(DocumentTag, document_id=document_id, tag=tag)


def _to_revision(row: DocumentRevision) -> Revision:
    return Revision(
        document_id=row.document_id, number=row.number, sha256=row.sha256, size=row.size, media_type=row.media_type,
        comment=row.comment, created_at=row.created_at, created_by=row.created_by,
    )
