"""Restores the appliance as it was at a moment: a base, the segments of the log until then, and the contents that it names."""

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from appliance.backups.creation import DATABASE, FILES, TEMPLATES
from appliance.backups.manifests import check_manifest
from appliance.backups.parts import MANIFEST, Part, parse_manifest, parts_in, read_small, store_part
from appliance.backups.problems import BackupInvalid
from appliance.backups.restoring import RestoreRequest
from appliance.backups.snapshots import check_integrity, count_rows, open_snapshot
from appliance.backups.verification import VerifiedBackup, check_parts, refuse_newer
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.errors import NotFound, StorageFull, ValidationFailed
from appliance.core.sentences import Sentence

from .archives import Archive, Base, Chain, find_archives, list_chains, open_archive, read_through
from .bases import FORMAT, KIND
from .contents import template_name
from .segments import SegmentContent, damaged_segment, in_order, read_segments
from .stores import PointStore, open_point_store
from .wal import HEADER, LogHeader

_UNLIKE = "use another copy of the backup"
_WAL_VERSION = b"\x02\x02"  # bytes 18 and 19 of a database that has a write-ahead log


@dataclass(frozen=True)
class PointRange:
    """From when until when an installation can be restored (epoch ms), and the chains it is in."""

    installation: str
    first: int
    last: int
    chains: tuple[tuple[Archive, Chain], ...]


@dataclass(frozen=True)
class PointRequest(RestoreRequest):
    """A restore from an archive of points; `moment` is an epoch time (ms), None for the last point."""

    config: Config = field(default_factory=Config)
    place: str = ""
    moment: int | None = None

    @property
    def source(self) -> str:
        """Folder or address of the points."""
        return self.place

    def unpack(self, folder: Path) -> VerifiedBackup:
        """Restore the database and the files of the moment into an empty folder, and verify them."""
        store = open_point_store(self.config, self.place)
        points = describe_range(store, self.passphrase)
        moment = self._check_moment(points)
        archive, chain, base = _choose(points, moment)
        manifest = _unpack_base(archive, base, self.passphrase, folder)
        with closing(_Replay(folder / DATABASE, moment)) as replay:
            for content in _read_until(archive, chain, base.epoch, moment):
                replay.add(content)
            replay.finish()
        reached = max(base.time, replay.reached)
        with open_snapshot(folder / DATABASE) as file:
            refuse_newer(file)
            check_integrity(file)
            tables = count_rows(file)
            contents = _unpack_contents(archive, file, folder, self.spare_bytes)
            _unpack_templates(archive, file, folder)
        return VerifiedBackup(
            manifest | {
                "made_at": clock.rfc3339(reached), "tables": tables, "contents": contents, "moment": clock.rfc3339(moment),
                "complete_until": clock.rfc3339(min(moment, max(reached, read_through(archive, chain)))),
            },
            folder,
        )

    def _check_moment(self, points: PointRange) -> int:
        moment = points.last if self.moment is None else self.moment
        if not points.first <= moment <= points.last:
            raise ValidationFailed(Sentence(
                "%(place)s has points from %(first)s to %(last)s; choose a moment between them, or --at latest",
                place=self.place, first=clock.rfc3339(points.first), last=clock.rfc3339(points.last),
            ), pointer="/at")  # fmt: skip
        return moment


def describe_range(store: PointStore, passphrase: str | None) -> PointRange:
    """What can be restored from a store; NotFound, or BackupInvalid if it has several installations or another passphrase."""
    heads = find_archives(store)
    installations = sorted({installation for installation, _ in heads})
    if not heads:
        raise NotFound(Sentence(
            "%(place)s has no points; give the folder or s3:// address of backup.points_to", place=store.address
        ))  # fmt: skip
    if len(installations) > 1:
        raise BackupInvalid(Sentence(
            "%(place)s has points of several appliances (%(installations)s); copy those of one to a place of their own: "
            "archives/INSTALLATION.* and points-INSTALLATION",
            place=store.address, installations=", ".join(installations),
        ))  # fmt: skip
    opened = [open_archive(store, installation, name, passphrase) for installation, name in heads]
    archives = [archive for archive in opened if archive is not None]
    if not archives:
        raise BackupInvalid(
            "the passphrase is wrong, or there is none: give the one that the points were shipped with by --passphrase-file FILE "
            "or GOS_BACKUP_PASSPHRASE"
        )
    chains = tuple((archive, chain) for archive in archives for chain in list_chains(archive))
    bases = [base.time for _, chain in chains for base in chain.bases]
    if not bases:
        raise NotFound(Sentence("%(place)s has no complete base yet, so nothing can be restored from it", place=store.address))
    return PointRange(installations[0], min(bases), max(read_through(*each) for each in chains if each[1].bases), chains)


def _choose(points: PointRange, moment: int) -> tuple[Archive, Chain, Base]:
    """The newest base until the moment."""
    bases = [(archive, chain, base) for archive, chain in points.chains for base in chain.bases if base.time <= moment]
    return max(bases, key=lambda each: each[2].time)


def _unpack_base(archive: Archive, base: Base, passphrase: str | None, folder: Path) -> dict[str, Any]:
    stored: dict[str, Part] = {}
    manifest: dict[str, Any] | None = None
    name = Path(base.name)
    with archive.store.open(base.name) as file, parts_in(cast(Any, file), name, passphrase) as parts:
        for part in parts:
            if part.name == MANIFEST:
                manifest = parse_manifest(read_small(part))
            elif part.name == DATABASE or part.name.startswith(FILES):
                stored[part.name] = store_part(part, folder / part.name)
            else:
                raise BackupInvalid(Sentence(
                    "the backup contains an unknown part %(name)s; use the release that created it", name=repr(part.name[:80])
                ))
    if manifest is None or DATABASE not in stored:
        raise BackupInvalid(Sentence("%(path)s is damaged or incomplete; use another copy of it", path=name))
    filled = {"tables": {}, "contents": {"count": 0, "bytes": 0, "gone": [], "damaged": []}} | manifest
    check_manifest(filled, "backup")
    check_parts(filled, stored, FORMAT, KIND)
    if (manifest.get("time"), manifest.get("epoch"), manifest.get("chain")) != (base.time, base.epoch, name.parent.name):
        raise BackupInvalid(Sentence("%(path)s is damaged or incomplete; use another copy of it", path=name))
    return manifest


class _Replay:
    """Applies segments to a database, an epoch of the log at a time, as SQLite does after a crash: it verifies every frame."""

    def __init__(self, database: Path, moment: int) -> None:
        self._database, self._moment = database, moment
        self._log = database.with_name(f"{database.name}-wal")
        self._file: BinaryIO | None = None
        self._header: LogHeader | None = None
        self._epoch = -1
        self._committed = 0
        self.reached = 0
        with database.open("r+b") as file:
            file.seek(18)
            file.write(_WAL_VERSION)

    def add(self, content: SegmentContent) -> None:
        """Add the next segment, of which only the commits until the moment count."""
        if content.epoch != self._epoch:
            self.finish()
            self._epoch, self._header, self._committed = content.epoch, content.header, 0
            self._file = self._log.open("xb")
            self._file.write(content.header.raw)
        assert self._file is not None  # noqa: S101  for the type checker: it was opened with the epoch
        self._file.write(content.frames)
        for mark in content.marks:
            if mark.time <= self._moment:
                self._committed, self.reached = mark.frame, max(self.reached, mark.time)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def finish(self) -> None:
        """Bring the commits of the epoch into the database."""
        if self._file is None or self._header is None:
            return
        self._file.truncate(HEADER + self._committed * self._header.frame_size)
        self._file.close()
        self._file = None
        if self._committed:
            with closing(sqlite3.connect(self._database, isolation_level=None)) as file:
                file.execute("PRAGMA synchronous=OFF")  # it is synchronized when all is there
                file.execute("SELECT count(*) FROM sqlite_master").fetchone()
                result = file.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if result != (0, self._committed, self._committed):
                raise BackupInvalid(
                    "the points are damaged: a part of the log does not belong to what is before it; restore to an earlier moment, "
                    "or use another copy of the points"
                )
        for end in ("-wal", "-shm"):
            self._database.with_name(f"{self._database.name}{end}").unlink(missing_ok=True)


def _read_until(archive: Archive, chain: Chain, epoch: int, moment: int) -> Iterator[SegmentContent]:
    """The segments since an epoch, up to the first that has a point after the moment."""
    for content in _read_from(archive, chain, epoch):
        yield content
        if content.marks and content.marks[-1].time > moment:
            return


def _read_from(archive: Archive, chain: Chain, epoch: int) -> Iterator[SegmentContent]:
    """The segments since an epoch; one that was merged meanwhile, as the appliance goes on, is read from the merged file."""
    following = next((each.number for each in chain.segments if each.epoch >= epoch), 0)
    previous: str | None = None
    while True:
        try:
            for segment in in_order(tuple(each for each in chain.segments if each.last_number >= following)):
                for number, content in read_segments(archive, segment):
                    if number < following:
                        continue
                    if previous not in (None, content.previous):
                        raise damaged_segment(segment)
                    following, previous = number + 1, content.digest()
                    if content.epoch >= epoch:
                        yield content
        except NotFound:
            chains = (each for each in list_chains(archive) if each.name == chain.name and each.segments != chain.segments)
            renewed = next(chains, None)
            if renewed is None or not any(each.number <= following <= each.last_number for each in renewed.segments):
                raise
            chain = renewed
        else:
            return


def _unpack_contents(archive: Archive, file: sqlite3.Connection, folder: Path, spare: int) -> dict[str, Any]:
    """Store every content that the database names, verified; those that are not in the archive are listed as damaged."""
    needed, free = int(file.execute("SELECT COALESCE(SUM(size), 0) FROM blob").fetchone()[0]), shutil.disk_usage(folder).free
    if needed > free - spare:
        raise StorageFull(Sentence(
            "the contents of the backup need %(needed)s MiB; %(free)s MiB are free on the disk, of which %(spare)s MiB must stay. "
            "Free some space. Nothing was changed", needed=needed >> 20, free=free >> 20, spare=spare >> 20,
        ))  # fmt: skip
    count, size, missing = 0, 0, list[str]()
    for sha256, bytes_of_row, place in file.execute("SELECT sha256, size, place FROM blob ORDER BY place"):
        try:
            _unpack_content(archive, sha256, folder / "blobs" / place)
        except NotFound:
            missing.append(place)
            continue
        count, size = count + 1, size + bytes_of_row
    return {"count": count, "bytes": size, "gone": [], "damaged": missing}


def _unpack_content(archive: Archive, sha256: str, target: Path) -> None:
    name, digest = archive.content_name(sha256), hashlib.sha256()
    with archive.store.open(name) as source:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for piece in archive.sealer.unpack(name, source):
                digest.update(piece)
                file.write(piece)
    if digest.hexdigest() != sha256:
        raise BackupInvalid(Sentence("a content of the backup has changed (%(place)s); %(unlike)s", place=name, unlike=_UNLIKE))


def _unpack_templates(archive: Archive, file: sqlite3.Connection, folder: Path) -> None:
    """Store the code of suspended steps; a step whose code is missing fails, as after a restore of a backup."""
    for (template,) in file.execute("SELECT DISTINCT template FROM suspended_step"):
        name = template_name(archive, template)
        if archive.store.has(name):
            target = folder / FILES / TEMPLATES / f"{template}.wasm"
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with archive.store.open(name) as source:
                target.write_bytes(b"".join(archive.sealer.unpack(name, source)))
