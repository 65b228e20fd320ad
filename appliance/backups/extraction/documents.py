"""Takes one document out of a backup: its newest revision as a file, or all of them as a folder."""

import re
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from appliance.backups.parts import BackupSource, name_file, sync_folder
from appliance.backups.problems import BackupInvalid, full_disks
from appliance.core.errors import AlreadyExists, Conflict, NotFound
from appliance.core.sentences import Sentence

from .reading import NeededContent, OpenedBackup, open_backup

_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f]")


@dataclass(frozen=True)
class DocumentRequest:
    """The document to take out; `tenant_id` is needed only if several tenants have one of this id."""

    document_id: str
    tenant_id: str | None = None
    all_revisions: bool = False


@dataclass(frozen=True)
class ExtractedDocument:
    """What was written where; `damaged` are the numbers of revisions whose content is damaged or missing in the backup."""

    tenant_id: str
    name: str
    path: Path
    revisions: tuple[int, ...]
    damaged: tuple[int, ...]
    made_at: str | None
    damage: str | None


@dataclass(frozen=True)
class _Revision:
    number: int
    content: NeededContent


def extract_document(source: BackupSource, passphrase: str | None, request: DocumentRequest, target: Path) -> ExtractedDocument:
    """Writes the newest revision to a new file, or into a folder under its name; or all revisions into a new folder.

    Only the database and these contents must be intact.  Raises NotFound, Conflict when several tenants have the document,
    AlreadyExists, StorageFull, BackupInvalid.
    """
    is_inside = target.is_dir() and not request.all_revisions
    room = target if is_inside else target.parent
    with full_disks(), open_backup(source, passphrase, room) as backup:
        tenant_id, name = _find(backup.file, request)
        revisions = _revisions(backup.file, tenant_id, request)
        path = target / _file_name(name) if is_inside else target
        if path.exists():
            raise AlreadyExists(
                Sentence("%(path)s exists already and is not overwritten; name another file, or move it away", path=path)
            )
        with tempfile.TemporaryDirectory(prefix=".gos-document-", dir=path.parent) as draft:
            stored = _store(backup, revisions, Path(draft, "all"), _file_name(name))
            backup.refuse_changed_database()
            if not stored:
                raise BackupInvalid(Sentence(
                    "the content of the document is damaged or missing in the backup (%(damage)s); use another copy or another "
                    "backup", damage=backup.damage or f"revision {revisions[-1].number}",
                ))  # fmt: skip
            if request.all_revisions:
                Path(draft, "all").rename(path)
                sync_folder(path.parent)
            else:
                name_file(stored[revisions[-1].number], path)
    damaged = tuple(each.number for each in revisions if each.number not in stored)
    return ExtractedDocument(
        tenant_id, name, path, revisions=tuple(stored), damaged=damaged, made_at=backup.made_at(), damage=backup.damage
    )


def _find(file: sqlite3.Connection, request: DocumentRequest) -> tuple[str, str]:
    """The tenant of the document, and its name."""
    sql = "SELECT tenant_id, name FROM document WHERE id = ? AND (tenant_id = ? OR ? IS NULL) ORDER BY tenant_id"
    rows = file.execute(sql, (request.document_id, request.tenant_id, request.tenant_id)).fetchall()
    if not rows:
        raise NotFound(Sentence(
            "the backup has no document %(id)s; list its tenants with `gos backup list`", id=repr(request.document_id),
        ))  # fmt: skip
    if len(rows) > 1:
        raise Conflict(Sentence(
            "several tenants have the document %(id)s: choose one of %(tenants)s with --tenant", id=request.document_id,
            tenants=", ".join(row[0] for row in rows),
        ))  # fmt: skip
    return str(rows[0][0]), str(rows[0][1])


def _revisions(file: sqlite3.Connection, tenant_id: str, request: DocumentRequest) -> list[_Revision]:
    sql = (
        "SELECT r.number, b.place, r.sha256, r.size FROM document_revision r JOIN blob b ON b.tenant_id = r.tenant_id "
        "AND b.sha256 = r.sha256 WHERE r.tenant_id = ? AND r.document_id = ? ORDER BY r.number"
    )
    rows = file.execute(sql, (tenant_id, request.document_id)).fetchall()
    revisions = [_Revision(number, NeededContent(place, sha256, size)) for number, place, sha256, size in rows]
    if not revisions:
        raise NotFound(Sentence("the document %(id)s has no content in the backup", id=request.document_id))
    return revisions if request.all_revisions else revisions[-1:]


def _store(backup: OpenedBackup, revisions: Sequence[_Revision], folder: Path, name: str) -> Mapping[int, Path]:
    """Writes the revisions that are intact into a new folder; returns their files, the earliest first."""
    folder.mkdir(mode=0o700)
    stored: dict[int, Path] = {}
    for content, spool in backup.read({each.content.place: each.content for each in revisions}):
        for revision in revisions:  # several may have the same content
            if revision.content.place == content.place:
                stored[revision.number] = folder / f"{revision.number}-{name}"
                _write(spool, stored[revision.number])
    return dict(sorted(stored.items()))


def _write(spool: IO[bytes], path: Path) -> None:
    spool.seek(0)
    with path.open("xb") as file:
        path.chmod(0o600)
        shutil.copyfileobj(spool, file, 1 << 20)


def _file_name(name: str) -> str:
    """The name of a document as the name of a file: the backup may be anybody's."""
    return _UNSAFE.sub("_", name).lstrip(".")[:200] or "document"
