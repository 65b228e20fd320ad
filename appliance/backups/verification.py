"""Verifies a backup by reading all of it and comparing it with its manifest and its database."""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from appliance import migrations
from appliance.core.errors import StorageFull
from appliance.core.sentences import Sentence

from .creation import CONTENTS, DATABASE, FILES, FORMAT
from .manifests import check_manifest
from .parts import MANIFEST, BackupSource, OpenPart, Part, digest_of, parse_manifest, parts_of, read_small, store_part
from .problems import UNCONTROLLED, BackupInvalid, JobControl
from .snapshots import check_integrity, count_rows, open_snapshot, schema_number

SPARE_BYTES = 64 << 20  # disk space left free for other processes
_UNLIKE = "use another copy of the backup"


@dataclass(frozen=True)
class VerifiedBackup:
    """A verified backup: its manifest, and the folder with its unpacked parts."""

    manifest: dict[str, Any]
    folder: Path

    @property
    def rows(self) -> int:
        return sum(self.manifest["tables"].values())


def verify_backup(
    path: BackupSource, passphrase: str | None, room: Path | None = None, course: JobControl = UNCONTROLLED
) -> dict[str, Any]:
    """Verifies that a backup can be restored and returns its manifest; raises BackupInvalid otherwise.

    Needs disk space for the database, in the folder `room` or that of temporary files.
    """
    with tempfile.TemporaryDirectory(prefix=".gos-verify-", dir=room) as folder:
        return read_backup(path, passphrase, Path(folder), spare=None, course=course).manifest


def read_backup(
    path: BackupSource, passphrase: str | None, folder: Path, *, spare: int | None, course: JobControl = UNCONTROLLED
) -> VerifiedBackup:  # fmt: skip
    """Unpacks a backup into an empty folder and checks all of it; if `spare` is None, contents are not unpacked.

    StorageFull before contents are unpacked if less than `spare` bytes would stay free with all of them.
    """
    stored: dict[str, Part] = {}
    contents = count = 0
    manifest: dict[str, Any] | None = None
    with parts_of(path, passphrase) as opened:
        parts = _stoppable(opened, course)
        first = next(parts, None)
        if first is None or first.name != DATABASE:
            raise BackupInvalid(
                Sentence("%(path)s is not the backup of an appliance; use `gos tenant import` for a tenant export", path=path)
            )
        stored[DATABASE] = store_part(first, folder / DATABASE)
        with open_snapshot(folder / DATABASE, course.should_stop) as file:
            refuse_newer(file)
            if spare is not None:
                _refuse_full(file, folder, spare)
            for part in parts:
                if manifest is not None:
                    raise BackupInvalid(Sentence("the backup has data after its manifest; %(unlike)s", unlike=_UNLIKE))
                if part.name == MANIFEST:
                    manifest = parse_manifest(read_small(part))
                elif part.name.startswith(CONTENTS):
                    contents += _check_content(file, part, None if spare is None else folder)
                    count += 1
                    course.report("checking", count, 0)
                elif part.name.startswith(FILES):
                    stored[part.name] = store_part(part, folder / FILES / part.name.removeprefix(FILES))
                else:
                    raise BackupInvalid(Sentence(
                        "the backup contains an unknown part %(name)s; use the release that created it", name=repr(part.name[:80])
                    ))
            if manifest is None:
                raise BackupInvalid(Sentence("the backup is incomplete: its manifest is missing; %(unlike)s", unlike=_UNLIKE))
            check_parts(manifest, stored, FORMAT, "backup")
            check_contents(manifest, count, contents)
            check_rows(manifest, file, count)
    return VerifiedBackup(manifest, folder)


def _refuse_full(file: sqlite3.Connection, folder: Path, spare: int) -> None:
    """Raises StorageFull unless all contents of the database fit on the disk, and `spare` bytes stay free."""
    needed = int(file.execute("SELECT COALESCE(SUM(size), 0) FROM blob").fetchone()[0])
    free = shutil.disk_usage(folder).free
    if needed > free - spare:
        raise StorageFull(Sentence(
            "the contents of the backup need %(needed)s MiB; %(free)s MiB are free on the disk, of which %(spare)s MiB must stay. "
            "Free some space. Nothing was changed", needed=needed >> 20, free=free >> 20, spare=spare >> 20,
        ))  # fmt: skip


def _stoppable(parts: Iterator[OpenPart], course: JobControl) -> Iterator[OpenPart]:
    """The parts; reading them raises Stopped when the appliance is stopping."""

    def pieces(part: OpenPart) -> Iterator[bytes]:
        for piece in part.pieces:
            course.refuse_stopping()
            yield piece

    for part in parts:
        course.refuse_stopping()
        yield replace(part, pieces=pieces(part))


def refuse_newer(file: sqlite3.Connection) -> None:
    """Raises BackupInvalid when the schema is newer than this release's."""
    number, supported = schema_number(file), migrations.last_number()
    if number > supported:
        raise BackupInvalid(Sentence(
            "the backup has schema %(number)s, this release supports up to %(known)s; install the release that created it",
            number=number, known=supported,
        ))


def _check_content(file: sqlite3.Connection, part: OpenPart, folder: Path | None) -> int:
    """Checks a content against its row, stores it in `folder` if given, and returns its size."""
    place = part.name.removeprefix(CONTENTS)
    row = file.execute("SELECT sha256, size FROM blob WHERE place = ?", (place,)).fetchone()
    if row is None:
        raise BackupInvalid(Sentence(
            "the backup contains a content that its database does not list (%(place)s); %(unlike)s", place=place, unlike=_UNLIKE
        ))
    stored = digest_of(part) if folder is None else store_part(part, folder / "blobs" / place)
    if (stored.sha256, stored.size) != tuple(row):
        raise BackupInvalid(
            Sentence("a content of the backup has changed (%(place)s); %(unlike)s", place=place, unlike=_UNLIKE)
        )
    return stored.size


def check_parts(manifest: dict[str, Any], stored: dict[str, Part], newest: int, kind: str) -> None:
    """Raises BackupInvalid unless the parts match the manifest."""
    if manifest["format"] > newest or manifest.get("kind") != kind:
        raise BackupInvalid("this release does not support the format of the backup; install the release that created it")
    check_manifest(manifest, kind)
    expected = {each["name"]: Part(**each) for each in manifest["parts"]}
    for name in sorted(expected.keys() | stored.keys()):
        if expected.get(name) != stored.get(name):
            raise BackupInvalid(
                Sentence("the part %(name)s of the backup does not match its manifest; %(unlike)s", name=name, unlike=_UNLIKE)
            )


def check_contents(manifest: dict[str, Any], count: int, size: int) -> None:
    """Raises BackupInvalid unless the number and size of the contents match the manifest."""
    listed = manifest["contents"]
    if (listed["count"], listed["bytes"]) != (count, size):
        raise BackupInvalid(Sentence(
            "the backup contains %(count)s contents, its manifest lists %(count2)s; %(unlike)s",
            count=count, count2=listed["count"], unlike=_UNLIKE,
        ))


def check_rows(manifest: dict[str, Any], file: sqlite3.Connection, count: int) -> None:
    """Raises BackupInvalid unless the database is intact and its row counts match the manifest."""
    check_integrity(file)
    listed = manifest["tables"]
    # A tenant export does not list the ledger of migrations.
    counts = {name: number for name, number in count_rows(file).items() if name in listed or (number and name != "migration")}
    for table in sorted(counts.keys() | listed.keys()):
        if counts.get(table) != listed.get(table):
            raise BackupInvalid(Sentence(
                "the rows of the table %(table)s in the backup do not match its manifest; %(unlike)s",
                table=table, unlike=_UNLIKE,
            ))
    missing = len(manifest["contents"]["gone"]) + len(manifest["contents"]["damaged"])
    if counts.get("blob", 0) != count + missing:
        raise BackupInvalid(Sentence("contents are missing in the backup; %(unlike)s", unlike=_UNLIKE))
