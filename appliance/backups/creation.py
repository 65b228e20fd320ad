"""Creates a backup of a running or stopped appliance: a snapshot of its database, every content, and the files it needs."""

import hashlib
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from appliance import __version__
from appliance.blobs import INSTALLATION, Places, read_installation
from appliance.core import catalogues, clock
from appliance.core.config import Config
from appliance.core.crypto import has_keys
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid, NotFound
from appliance.core.sentences import Sentence

from .envelope import check_passphrase
from .parts import PartsWriter, new_file
from .problems import UNCONTROLLED, JobControl
from .snapshots import count_rows, open_snapshot, schema_number, take_snapshot

FORMAT = 1
DATABASE, FILES, CONTENTS = "gos.db", "files/", "contents/"
KEY = "key"
# These may contain plain-text secrets and are included in encrypted backups only.
SECRET_FILES = (KEY, "config.yaml", "tls")
OPEN_FILES = ("connectors", catalogues.FOLDER, INSTALLATION)
TEMPLATES = "templates"
# Unused contents are garbage-collected after a day; a backup refreshes them so that the snapshot's contents stay.
_PROTECTED_MS, _BATCH = 12 * 3_600_000, 2_000


@dataclass(frozen=True)
class Backup:
    """The result of a backup; `damaged` lists contents whose bytes have changed or are missing."""

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
    """The contents written; `deleted` lists those deleted meanwhile, `damaged` those that have changed or are missing."""

    count: int = 0
    bytes: int = 0
    deleted: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        return {"count": self.count, "bytes": self.bytes, "gone": self.deleted, "damaged": self.damaged}


@dataclass(frozen=True)
class StoppableReader:
    """Reads contents; raises Stopped when the appliance is stopping."""

    places: Places
    course: JobControl = UNCONTROLLED

    def read(self, place: str, size: int) -> Iterator[bytes]:
        for piece in self.places.read(place, 0, size):
            self.course.refuse_stopping()
            yield piece


def make_backup(config: Config, places: Places, target: Path, passphrase: str | None, course: JobControl = UNCONTROLLED) -> Backup:
    """Writes a backup of the open database, the contents in `places` and the files of the data folder; blocks no other work.

    The file appears complete or not at all.  Raises AlreadyExists, StorageFull, NotFound when the target folder does not
    exist, or BackupInvalid when the passphrase is too short.
    """
    if passphrase is not None:
        check_passphrase(passphrase)
    if not target.parent.is_dir():
        raise NotFound(Sentence("the folder %(parent)s does not exist; create it, or choose another path", parent=target.parent))
    with new_file(target, passphrase) as parts:
        protect_contents()
        made_at = clock.now_ms()
        with tempfile.TemporaryDirectory(prefix=".gos-backup-", dir=target.parent) as folder:
            snapshot = Path(folder, DATABASE)
            course.report("database", 0, 0)
            take_snapshot(config.database_url, snapshot, course.should_stop)
            stoppable = StoppableReader(places, course)
            manifest = _write_parts(config, stoppable, parts, snapshot, encrypted=passphrase is not None)
        manifest = {"format": FORMAT, "kind": "backup", "version": __version__, "made_at": clock.rfc3339(made_at), **manifest}
        parts.finish(manifest)
    return Backup(
        path=target, size=target.stat().st_size, encrypted=passphrase is not None, made_at=made_at, schema=manifest["schema"],
        tables=manifest["tables"], contents=manifest["contents"]["count"], damaged=tuple(manifest["contents"]["damaged"]),
        left_out=tuple(manifest["left_out"]),
    )  # fmt: skip


def _write_parts(config: Config, places: StoppableReader, parts: PartsWriter, snapshot: Path, *, encrypted: bool) -> dict[str, Any]:
    names = (*OPEN_FILES, *(SECRET_FILES if encrypted else ()))
    with open_snapshot(snapshot) as file:
        manifest: dict[str, Any] = {
            "schema": schema_number(file), "installation": read_installation(config),
            "encrypted": encrypted, "tables": count_rows(file),
        }  # fmt: skip
        templates = [
            config.data / TEMPLATES / f"{row[0]}.wasm" for row in _rows(file, "SELECT DISTINCT template FROM suspended_step")
        ]
        paths = [*files_of(config.data, names), *(path for path in templates if path.is_file())]
        stored = [parts.add_file(DATABASE, snapshot)]
        stored += [parts.add_file(f"{FILES}{path.relative_to(config.data).as_posix()}", path) for path in paths]
        contents = write_contents(places, parts, file, snapshot.parent)
    return manifest | {
        "left_out": [] if encrypted else [name for name in SECRET_FILES if (config.data / name).exists()],
        "parts": [{"name": each.name, "size": each.size, "sha256": each.sha256} for each in stored],
        "contents": contents.document(),
    }


def _rows(file: sqlite3.Connection, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a query; empty when the table does not exist in an older schema."""
    try:
        return file.execute(sql).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []
        raise


def files_of(data: Path, names: tuple[str, ...]) -> Iterator[Path]:
    """The files of these names in a data folder, and those in folders of these names; no links."""
    for name in names:
        path = data / name
        paths = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (each for each in paths if each.is_file() and not each.is_symlink())


def protect_contents(tenant_id: str | None = None) -> None:
    """Protects all stored contents, or a tenant's, from garbage collection for the duration of a backup."""
    while db.write(partial(_protect_batch, clock.now_ms(), tenant_id)) == _BATCH:
        continue


def _protect_batch(now: int, tenant_id: str | None) -> int:
    of, params = ("tenant_id = ? AND ", (tenant_id,)) if tenant_id else ("", ())
    sql = f"SELECT tenant_id, sha256 FROM blob WHERE {of}touched_at < ? LIMIT ?"  # noqa: S608
    rows = db.rows(sql, (*params, now - _PROTECTED_MS, _BATCH))
    for row in rows:
        db.execute("UPDATE blob SET touched_at = ? WHERE tenant_id = ? AND sha256 = ?", (now, *row))
    return len(rows)


def write_contents(places: StoppableReader, parts: PartsWriter, file: sqlite3.Connection, folder: Path) -> Contents:
    """Writes every content under its place; a changed or missing one is left out and listed."""
    contents, ((total,),) = Contents(), file.execute("SELECT count(*) FROM blob").fetchall()
    for tenant_id, sha256, size, place in file.execute("SELECT tenant_id, sha256, size, place FROM blob ORDER BY place"):
        # Read into a temporary file first, because the part must not be started before the bytes are verified.
        with tempfile.SpooledTemporaryFile(max_size=8 << 20, dir=str(folder)) as spool:
            digest = hashlib.sha256()
            try:
                for piece in places.read(place, size):
                    digest.update(piece)
                    spool.write(piece)
            except FileNotFoundError:
                digest = hashlib.sha256(b"nothing")
            if digest.hexdigest() != sha256:
                sql = "SELECT 1 FROM blob WHERE tenant_id = ? AND sha256 = ? AND place = ?"
                (contents.damaged if db.rows(sql, (tenant_id, sha256, place)) else contents.deleted).append(place)
                continue
            spool.seek(0)
            parts.add(f"{CONTENTS}{place}", size, iter(partial(spool.read, 1 << 20), b""))
        contents.count += 1
        contents.bytes += size
        places.course.report("contents", contents.count, total)
    return contents


def refuse_empty(config: Config) -> None:
    """Raises ConfigInvalid when the data folder has no appliance."""
    if not has_keys(config):
        raise ConfigInvalid(Sentence("%(data)s is not the data folder of an appliance; set it with --data", data=config.data))
