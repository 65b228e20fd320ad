"""A backup of a running or a stopped appliance: its database at one moment, every content, and the files it needs."""

import hashlib
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from appliance import __version__
from appliance.blobs import Places, installation_id
from appliance.core import catalogues, clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer, load_or_make_key
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid, NotFound
from appliance.core.sentences import Sentence

from .envelope import check_passphrase
from .parts import PartsWriter, new_file
from .problems import UNWATCHED, Course
from .snapshots import count_rows, opened_snapshot, schema_number, take_snapshot

FORMAT = 1
DATABASE, FILES, CONTENTS = "gos.db", "files/", "contents/"
KEY = "key"
# What may hold secrets in the clear goes only into a file that is encrypted.
SECRET_FILES = (KEY, "config.yaml", "tls")
OPEN_FILES = ("connectors", catalogues.FOLDER)
TEMPLATES = "templates"
# Contents that nobody uses any more are collected after a day: so long those of the snapshot must stay.
_HELD_MS, _AT_ONCE = 12 * 3_600_000, 2_000


@dataclass(frozen=True)
class Backup:
    """What a backup holds; `damaged` names contents whose bytes are not what was put, or are lost."""

    path: Path
    size: int
    encrypted: bool
    made_at: int
    schema: int
    tables: dict[str, int]
    contents: int
    damaged: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def rows(self) -> int:
        return sum(self.tables.values())


@dataclass
class Contents:
    """What was written of contents; `gone` were deleted meanwhile, `damaged` are not what was put."""

    count: int = 0
    bytes: int = 0
    gone: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        return {"count": self.count, "bytes": self.bytes, "gone": self.gone, "damaged": self.damaged}


@dataclass(frozen=True)
class Stoppable:
    """Contents that are read until the appliance is about to stop."""

    places: Places
    course: Course = UNWATCHED

    def read(self, place: str, size: int) -> Iterator[bytes]:
        for piece in self.places.read(place, 0, size):
            self.course.refuse_stopping()
            yield piece


def make_backup(config: Config, places: Places, target: Path, passphrase: str | None, course: Course = UNWATCHED) -> Backup:
    """Write a backup of the open database, the contents in `places` and the data folder's files; nothing waits for it.

    The file appears whole or not at all.  AlreadyExists, StorageFull, BackupInvalid when the passphrase is too short.
    """
    if passphrase is not None:
        check_passphrase(passphrase)
    if not target.parent.is_dir():
        raise NotFound(Sentence("there is no folder %(parent)s; make it, or name a file elsewhere", parent=target.parent))
    with new_file(target, passphrase) as parts:
        hold_contents()
        made_at = clock.now_ms()
        with tempfile.TemporaryDirectory(prefix=".gos-backup-", dir=target.parent) as folder:
            snapshot = Path(folder, DATABASE)
            course.tell("database", 0, 0)
            take_snapshot(config.database_url, snapshot, course.should_stop)
            stoppable = Stoppable(places, course)
            manifest = _write_parts(config, stoppable, parts, snapshot, encrypted=passphrase is not None)
        manifest = {"format": FORMAT, "kind": "backup", "version": __version__, "made_at": clock.rfc3339(made_at), **manifest}
        parts.finish(manifest)
    return Backup(
        target, target.stat().st_size, passphrase is not None, made_at, manifest["schema"], manifest["tables"],
        manifest["contents"]["count"], tuple(manifest["contents"]["damaged"]), tuple(manifest["left_out"]),
    )  # fmt: skip


def _write_parts(config: Config, places: Stoppable, parts: PartsWriter, snapshot: Path, *, encrypted: bool) -> dict[str, Any]:
    wanted = (*OPEN_FILES, *(SECRET_FILES if encrypted else ()))
    with opened_snapshot(snapshot) as file:
        manifest: dict[str, Any] = {
            "schema": schema_number(file), "installation": installation_id(Sealer(load_or_make_key(config.data / KEY))),
            "encrypted": encrypted, "tables": count_rows(file),
        }  # fmt: skip
        templates = [
            config.data / TEMPLATES / f"{row[0]}.wasm" for row in _rows(file, "SELECT DISTINCT template FROM suspended_step")
        ]
        found = [*_files_of(config.data, wanted), *(path for path in templates if path.is_file())]
        written = [parts.add_file(DATABASE, snapshot)]
        written += [parts.add_file(f"{FILES}{path.relative_to(config.data).as_posix()}", path) for path in found]
        contents = write_contents(places, parts, file, snapshot.parent)
    return manifest | {
        "left_out": [] if encrypted else [name for name in SECRET_FILES if (config.data / name).exists()],
        "parts": [{"name": each.name, "size": each.size, "sha256": each.sha256} for each in written],
        "contents": contents.document(),
    }


def _rows(file: sqlite3.Connection, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a table that an older schema may not have."""
    try:
        return file.execute(sql).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []
        raise


def _files_of(data: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        path = data / name
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (each for each in found if each.is_file() and not each.is_symlink())


def hold_contents(tenant_id: str | None = None) -> None:
    """Keep every content that is stored now, or a tenant's, from being collected for as long as a backup takes."""
    while db.write(partial(_hold_some, clock.now_ms(), tenant_id)) == _AT_ONCE:
        continue


def _hold_some(now: int, tenant_id: str | None) -> int:
    of, params = ("tenant_id = ? AND ", (tenant_id,)) if tenant_id else ("", ())
    sql = f"SELECT tenant_id, sha256 FROM blob WHERE {of}touched_at < ? LIMIT ?"  # noqa: S608
    found = db.rows(sql, (*params, now - _HELD_MS, _AT_ONCE))
    for row in found:
        db.execute("UPDATE blob SET touched_at = ? WHERE tenant_id = ? AND sha256 = ?", (now, *row))
    return len(found)


def write_contents(places: Stoppable, parts: PartsWriter, file: sqlite3.Connection, folder: Path) -> Contents:
    """Every content by its place; one that is not what was put is left out and named."""
    contents, ((total,),) = Contents(), file.execute("SELECT count(*) FROM blob").fetchall()
    for tenant_id, sha256, size, place in file.execute("SELECT tenant_id, sha256, size, place FROM blob ORDER BY place"):
        # Into a file first: the part must not be begun before the bytes are known to be right.
        with tempfile.SpooledTemporaryFile(max_size=8 << 20, dir=str(folder)) as spool:
            digest = hashlib.sha256()
            try:
                for piece in places.read(place, size):
                    digest.update(piece)
                    spool.write(piece)
            except FileNotFoundError:
                digest = hashlib.sha256(b"nothing")
            if digest.hexdigest() != sha256:
                still = db.rows("SELECT 1 FROM blob WHERE tenant_id = ? AND sha256 = ? AND place = ?", (tenant_id, sha256, place))
                (contents.damaged if still else contents.gone).append(place)
                continue
            spool.seek(0)
            parts.add(f"{CONTENTS}{place}", size, iter(partial(spool.read, 1 << 20), b""))
        contents.count += 1
        contents.bytes += size
        places.course.tell("contents", contents.count, total)
    return contents


def refuse_empty(config: Config) -> None:
    """ConfigInvalid when there is nothing to back up."""
    if not (config.data / KEY).exists():
        raise ConfigInvalid(Sentence("there is no appliance's data in %(data)s; name the folder with --data", data=config.data))
