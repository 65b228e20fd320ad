"""Opens the database of a backup, and reads those of its contents that are needed, whatever has happened to the others."""

import hashlib
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import zstandard

from appliance.backups.creation import CONTENTS, DATABASE
from appliance.backups.parts import (
    MANIFEST,
    BackupSource,
    OpenPart,
    Part,
    is_sealed,
    parse_manifest,
    parts_of,
    read_small,
    store_part,
)
from appliance.backups.problems import BackupInvalid
from appliance.backups.snapshots import open_snapshot
from appliance.backups.verification import refuse_newer
from appliance.core.sentences import Sentence

_DAMAGE = (BackupInvalid, tarfile.TarError, zstandard.ZstdError, EOFError)
_IN_MEMORY = 8 << 20


@dataclass(frozen=True)
class NeededContent:
    """A content by what its row says of it."""

    place: str
    sha256: str
    size: int


@dataclass
class OpenedBackup:
    """A backup whose database is unpacked in `folder`; contents are read once, in the order of the file.

    `damage` says why the file could not be read to its end; `manifest` is then None.
    """

    folder: Path
    file: sqlite3.Connection
    is_sealed: bool
    parts: Iterator[OpenPart]
    database: Part
    manifest: dict[str, Any] | None = None
    damage: str | None = None
    missing: set[str] = field(default_factory=set)

    def read(self, needed: Mapping[str, NeededContent]) -> Iterator[tuple[NeededContent, IO[bytes]]]:
        """The needed contents that are intact, by place; then `missing` has the places of the others.

        BackupInvalid when the database of an unencrypted backup is not that of its manifest.
        """
        self.missing = set(needed)
        for part in self._remaining():
            place = part.name.removeprefix(CONTENTS)
            content = needed.get(place) if part.name.startswith(CONTENTS) else None
            if content is None or part.size != content.size:
                continue
            with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, dir=str(self.folder)) as spool:
                if self._copy(part, spool) == content.sha256:
                    self.missing.discard(place)
                    spool.seek(0)
                    yield content, spool

    def _remaining(self) -> Iterator[OpenPart]:
        """The parts up to the manifest, which is stored, or up to damage."""
        while self.damage is None:
            try:
                part = next(self.parts, None)
                if part is not None and part.name == MANIFEST:
                    self._store_manifest(parse_manifest(read_small(part)))
                    return
            except _DAMAGE as error:
                self.damage = _describe(error)
                return
            if part is None:
                self.damage = "its end is missing"
                return
            yield part

    def _copy(self, part: OpenPart, spool: IO[bytes]) -> str:
        digest = hashlib.sha256()
        try:
            for piece in part.pieces:
                digest.update(piece)
                spool.write(piece)
        except _DAMAGE as error:
            self.damage = _describe(error)
            return ""
        return digest.hexdigest()

    def _store_manifest(self, manifest: dict[str, Any]) -> None:
        self.manifest = manifest

    def refuse_changed_database(self) -> None:
        """Raise BackupInvalid when the manifest lists another database, once everything was read.

        If damage makes the manifest unreadable, `damage` says that the database of an unencrypted backup is not proven: an
        encrypted one is authenticated piece by piece.
        """
        if self.manifest is None:
            if not self.is_sealed:
                self.damage = f"{self.damage}; as it is not encrypted, nothing proves that its database is unchanged"
            return
        listed = {each.get("name"): each.get("sha256") for each in self.manifest.get("parts", ())}
        if listed.get(DATABASE) != self.database.sha256:
            raise BackupInvalid("the database in the backup does not match its manifest; use another copy of the backup")

    def made_at(self) -> str | None:
        """The moment of the backup; None when its manifest cannot be read."""
        return None if self.manifest is None else str(self.manifest.get("made_at"))


def _describe(error: Exception) -> str:
    return error.message if isinstance(error, BackupInvalid) else f"it cannot be read beyond some point: {error}"


@contextmanager
def open_backup(source: BackupSource, passphrase: str | None, room: Path | None = None) -> Iterator[OpenedBackup]:
    """Unpacks the database of a backup into a temporary folder in `room`, and opens it for reading.

    BackupInvalid when that is not possible, or when the file is no backup of an appliance.
    """
    with tempfile.TemporaryDirectory(prefix=".gos-extract-", dir=room) as name, parts_of(source, passphrase) as parts:
        folder, first = Path(name), next(parts, None)
        if first is None or first.name != DATABASE:
            raise BackupInvalid(
                Sentence("%(path)s is not the backup of an appliance; use `gos tenant import` for a tenant export", path=source)
            )
        database = store_part(first, folder / DATABASE)
        with open_snapshot(folder / DATABASE) as file:
            refuse_newer(file)
            yield OpenedBackup(folder, file, is_sealed(source), parts, database)


def contents_of(file: sqlite3.Connection, where: str = "1 = 1", params: tuple[Any, ...] = ()) -> dict[str, NeededContent]:
    """The contents that a database lists, by place."""
    rows = file.execute(f"SELECT place, sha256, size FROM blob WHERE {where}", params)  # noqa: S608  # our own words
    return {str(place): NeededContent(str(place), str(sha256), int(size)) for place, sha256, size in rows}
