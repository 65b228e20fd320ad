"""Reads a backup from its first to its last byte and says whether everything in it is what was backed up."""

import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from appliance.core import migrations
from appliance.core.sentences import Sentence

from .making import CONTENTS, DATABASE, FILES, FORMAT
from .manifests import check_manifest
from .parts import MANIFEST, Opened, Part, digest_of, keep_part, parts_of, read_manifest, read_small
from .problems import UNWATCHED, BackupInvalid, Course
from .snapshots import check_whole, count_rows, opened_snapshot, schema_number

_UNLIKE = "use another copy of the backup"


@dataclass(frozen=True)
class Checked:
    """A backup that is whole: its manifest, and the folder with what was kept of it."""

    manifest: dict[str, Any]
    folder: Path

    @property
    def rows(self) -> int:
        return sum(self.manifest["tables"].values())


def verify_backup(path: Path, passphrase: str | None, room: Path | None = None, course: Course = UNWATCHED) -> dict[str, Any]:
    """The manifest of a backup that could be restored now; BackupInvalid says what is wrong with any other.

    Needs room for the database, in the folder `room` or among the temporary files.
    """
    with tempfile.TemporaryDirectory(prefix=".gos-verify-", dir=room) as folder:
        return read_backup(path, passphrase, Path(folder), keep_contents=False, course=course).manifest


def read_backup(
    path: Path, passphrase: str | None, folder: Path, *, keep_contents: bool, course: Course = UNWATCHED
) -> Checked:  # fmt: skip
    """Unpack a backup into an empty folder and check all of it; its contents are only checked when they are not kept."""
    arrived: dict[str, Part] = {}
    contents = count = 0
    manifest: dict[str, Any] | None = None
    with parts_of(path, passphrase) as found:
        parts = _stoppable(found, course)
        first = next(parts, None)
        if first is None or first.name != DATABASE:
            raise BackupInvalid(
                Sentence("%(path)s is no backup of a whole appliance; `gos tenant import` reads the export of a tenant", path=path)
            )
        arrived[DATABASE] = keep_part(first, folder / DATABASE)
        with opened_snapshot(folder / DATABASE, course.should_stop) as file:
            refuse_newer(file)
            for part in parts:
                if manifest is not None:
                    raise BackupInvalid(Sentence("something follows the manifest of the backup; %(unlike)s", unlike=_UNLIKE))
                if part.name == MANIFEST:
                    manifest = read_manifest(read_small(part))
                elif part.name.startswith(CONTENTS):
                    contents += _take_content(file, part, folder if keep_contents else None)
                    count += 1
                    course.tell("checking", count, 0)
                elif part.name.startswith(FILES):
                    arrived[part.name] = keep_part(part, folder / FILES / part.name.removeprefix(FILES))
                else:
                    raise BackupInvalid(Sentence(
                        "the backup holds an unknown part %(name)s; use the release that wrote it", name=repr(part.name[:80])
                    ))
            if manifest is None:
                raise BackupInvalid(Sentence("the backup is incomplete: its manifest is missing; %(unlike)s", unlike=_UNLIKE))
            check_parts(manifest, arrived, FORMAT, "backup")
            check_contents(manifest, count, contents)
            check_rows(manifest, file, count)
    return Checked(manifest, folder)


def _stoppable(parts: Iterator[Opened], course: Course) -> Iterator[Opened]:
    """The parts, whose reading ends when the appliance is about to."""

    def pieces(part: Opened) -> Iterator[bytes]:
        for piece in part.pieces:
            course.refuse_stopping()
            yield piece

    for part in parts:
        course.refuse_stopping()
        yield replace(part, pieces=pieces(part))


def refuse_newer(file: sqlite3.Connection) -> None:
    """BackupInvalid when a newer release wrote it."""
    number, known = schema_number(file), len(migrations.all_migrations())
    if number > known:
        raise BackupInvalid(Sentence(
            "the backup has schema %(number)s, this release knows %(known)s: install the release that wrote it",
            number=number, known=known,
        ))


def _take_content(file: sqlite3.Connection, part: Opened, folder: Path | None) -> int:
    """Its size, once it is known to be what its row says."""
    place = part.name.removeprefix(CONTENTS)
    row = file.execute("SELECT sha256, size FROM blob WHERE place = ?", (place,)).fetchone()
    if row is None:
        raise BackupInvalid(Sentence(
            "the backup holds a content that its database does not know (%(place)s); %(unlike)s", place=place, unlike=_UNLIKE
        ))
    found = digest_of(part) if folder is None else keep_part(part, folder / "blobs" / place)
    if (found.sha256, found.size) != tuple(row):
        raise BackupInvalid(
            Sentence("a content in the backup is not what it was (%(place)s); %(unlike)s", place=place, unlike=_UNLIKE)
        )
    return found.size


def check_parts(manifest: dict[str, Any], arrived: dict[str, Part], newest: int, kind: str) -> None:
    """BackupInvalid unless the parts are those of the manifest."""
    if manifest["format"] > newest or manifest.get("kind") != kind:
        raise BackupInvalid("the backup has a form that this release does not know; install the release that wrote it")
    check_manifest(manifest, kind)
    expected = {each["name"]: Part(**each) for each in manifest["parts"]}
    for name in sorted(expected.keys() | arrived.keys()):
        if expected.get(name) != arrived.get(name):
            raise BackupInvalid(
                Sentence("the part %(name)s of the backup is not what its manifest says; %(unlike)s", name=name, unlike=_UNLIKE)
            )


def check_contents(manifest: dict[str, Any], count: int, size: int) -> None:
    """BackupInvalid unless as many contents came as the manifest says."""
    told = manifest["contents"]
    if (told["count"], told["bytes"]) != (count, size):
        raise BackupInvalid(Sentence(
            "the backup holds %(count)s contents of %(count2)s; %(unlike)s", count=count, count2=told["count"], unlike=_UNLIKE
        ))


def check_rows(manifest: dict[str, Any], file: sqlite3.Connection, count: int) -> None:
    """BackupInvalid unless the database is whole and has the rows of the manifest."""
    check_whole(file)
    found = {name: number for name, number in count_rows(file).items() if number or name in manifest["tables"]}
    for table in sorted(found.keys() | manifest["tables"].keys()):
        if found.get(table) != manifest["tables"].get(table):
            raise BackupInvalid(Sentence(
                "the table %(table)s in the backup has not the rows that its manifest says; %(unlike)s",
                table=table, unlike=_UNLIKE,
            ))
    missing = len(manifest["contents"]["gone"]) + len(manifest["contents"]["damaged"])
    if found.get("blob", 0) != count + missing:
        raise BackupInvalid(Sentence("contents are missing in the backup; %(unlike)s", unlike=_UNLIKE))
