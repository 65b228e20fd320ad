"""Brings a backup back: everything is unpacked and checked beside the data folder before that is touched."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.blobs import Places, installation_id
from appliance.core import catalogues, clock, migrations
from appliance.core.config import Config
from appliance.core.crypto import Sealer, load_or_make_key
from appliance.core.database import db
from appliance.core.database.loading import advance_numbers, insert_rows, references_later
from appliance.core.database.presence import anyone_alive
from appliance.core.errors import Conflict
from appliance.core.sentences import Sentence

from .checking import Checked, read_backup
from .copying import FileSource, entity_statements
from .making import DATABASE, FILES, KEY
from .parts import sync_folder
from .problems import BackupInvalid, full_disks
from .snapshots import opened_snapshot

CONFIG = "config.yaml"
IGNORED = frozenset({"lost+found"})
# What lets somebody in without signing in: it may have been withdrawn since.
_DOORS = ("session", "webapp_visit", "webapp_sign_in", "email_code", "integration_consent")

PlacesOf = Callable[[Config, str], Places]
ConfigOf = Callable[[Path | None], Config]


@dataclass(frozen=True)
class RestoreRequest:
    """`key_file`: the key file of the appliance, where the backup does not hold it; `replace`: keep what is there aside.

    With `replace`, what the backup does not hold of settings is taken from the folder that is replaced.
    """

    path: Path
    passphrase: str | None = None
    key_file: Path | None = None
    replace: bool = False


@dataclass(frozen=True)
class Restored:
    """What was brought back; `aside` is where the former data lies now.

    `stayed` names what of the former folder is in the new one too, `missing` what that appliance had and nobody has brought.
    """

    data: Path
    aside: Path | None
    manifest: dict[str, Any]
    migrated: tuple[str, ...]
    stayed: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def rows(self) -> int:
        return sum(self.manifest["tables"].values())


def restore_backup(load: ConfigOf, places_of: PlacesOf, request: RestoreRequest) -> Restored:
    """Restore into an empty data folder and database; what runs then goes on as after a power cut at that moment.

    `load` reads the configuration, given the file of the backup where it holds one.  BackupInvalid, Conflict, StorageFull.
    """
    data = load(None).data
    _refuse_occupied(data, replace=request.replace)
    with _staging(data) as folder, full_disks():
        checked = read_backup(request.path, request.passphrase, folder, keep_contents=True)
        kept = folder / FILES / CONFIG
        config = load(kept if kept.is_file() else None)
        own_key = data / KEY if request.replace and (data / KEY).is_file() else None
        _lay_out(checked, request.key_file or own_key)
        stayed = tuple(_keep_settings(folder, data)) if request.replace else ()
        missing = tuple(name for name in checked.manifest["left_out"] if not (folder / name).exists())
        migrated = _fill(config, places_of, checked)
        os.sync()
        aside = _switch(folder, data)
    return Restored(data, aside, checked.manifest, tuple(migrated), stayed, missing)


def _keep_settings(folder: Path, data: Path) -> Iterator[str]:
    """Copy settings that the backup does not hold, so that the appliance starts as it was set up, and where the rows went.

    Answers their names.  A configuration that stays may name a language that the backup does not know.
    """
    own_languages = (data / CONFIG).exists() and not (folder / CONFIG).exists()
    wanted = [data / CONFIG, data / "tls"]
    if own_languages or not (folder / catalogues.FOLDER).exists():
        wanted += sorted((data / catalogues.FOLDER).glob("*.po"))
    for former in wanted:
        new = folder / former.relative_to(data)
        if former.exists() and not new.exists():
            new.parent.mkdir(exist_ok=True, mode=0o700)
            if former.is_dir():
                shutil.copytree(former, new, symlinks=True)
            else:
                shutil.copy2(former, new, follow_symlinks=False)
            yield new.relative_to(folder).as_posix()


def _refuse_occupied(data: Path, *, replace: bool) -> None:
    if anyone_alive(data / "workers"):
        raise Conflict(Sentence("an appliance is running on %(data)s; stop it first", data=data))
    if _entries(data) and not replace:
        raise Conflict(Sentence(
            "%(data)s is not empty; name another folder with --data, or give --replace to keep what is there aside", data=data
        ))


def _entries(data: Path) -> list[Path]:
    return [path for path in data.iterdir() if path.name not in IGNORED] if data.is_dir() else []


@contextmanager
def _staging(data: Path) -> Iterator[Path]:
    """A folder on the same file system: beside the data folder, or in it where that is a mount."""
    parent = data if os.path.ismount(data) else data.parent
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = Path(tempfile.mkdtemp(prefix=".gos-restore-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lay_out(checked: Checked, key_file: Path | None) -> None:
    """Put the files of the backup, and the key, where the appliance looks for them."""
    files = checked.folder / FILES
    for path in sorted(files.iterdir()) if files.is_dir() else ():
        path.rename(checked.folder / path.name)
    if files.is_dir():
        files.rmdir()
    key = checked.folder / KEY
    if not key.exists():
        if key_file is None:
            raise BackupInvalid(
                "the backup is not encrypted and so does not hold the key file: give the one of that appliance by --key FILE"
            )
        key.touch(0o600)
        key.write_bytes(key_file.read_bytes())
    own = installation_id(Sealer(load_or_make_key(key)))
    if own != checked.manifest["installation"]:
        raise BackupInvalid(Sentence(
            "the key file is that of %(own)s, the backup that of %(installation)s; give that one's by --key FILE",
            own=own, installation=checked.manifest["installation"],
        ))


def _fill(config: Config, places_of: PlacesOf, checked: Checked) -> list[str]:
    """The database and the contents, where the configuration has them."""
    url = config.database_url
    own = url == f"sqlite:///{config.data / DATABASE}"
    if url.startswith("sqlite:///") and not own:
        raise Conflict("restore knows a database in the data folder or on a server; leave storage.database empty for now")
    if config.blobs.store != "local":
        _send_contents(places_of(config, checked.manifest["installation"]), checked.folder / "blobs")
    db.open_database(f"sqlite:///{checked.folder / DATABASE}" if own else url)
    try:
        if not own:
            _load(checked.folder / DATABASE, checked.manifest["schema"])
        migrated = migrations.migrate()
        db.write(_close_doors)
    finally:
        db.close_database()
    if own:
        _to_one_file(checked.folder / DATABASE)
    else:
        (checked.folder / DATABASE).unlink()
    return migrated


def _to_one_file(path: Path) -> None:
    """The database without the files that SQLite keeps beside it while it is open."""
    with closing(sqlite3.connect(path)) as own:
        own.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def _load(path: Path, schema: int) -> None:
    """Into an empty database on a server: the schema of the backup, then all rows in one transaction."""
    if migrations.is_begun() and any(db.rows(f"SELECT 1 FROM {table} LIMIT 1") for table in ("tenant", "person")):  # noqa: S608
        raise Conflict("the database of storage.database is not empty; make a new one and name it")
    migrations.migrate(schema)

    def load() -> None:
        with opened_snapshot(path) as file:
            _load_rows(FileSource(file.execute))

    db.write(load)


def _load_rows(source: FileSource) -> None:
    for statement in entity_statements(source, sqlite=False):
        db.execute(statement)
    tables = source.tables()
    with references_later(tables):
        for table in reversed(tables):
            db.execute(f'DELETE FROM "{table}"')  # noqa: S608  # what migrations have put there
        for table in tables:
            columns = source.columns(table)
            listed = ", ".join(f'"{column}"' for column in columns)
            insert_rows(table, columns, source.rows(f'SELECT {listed} FROM "{table}"'))  # noqa: S608
    advance_numbers()


def _send_contents(places: Places, folder: Path) -> None:
    """Contents into a bucket; one that is there already under its name is the same."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            place, size = path.relative_to(folder).as_posix(), path.stat().st_size
            if places.holds(place, size):
                path.unlink()
            else:
                places.adopt(path, place)
    shutil.rmtree(folder, ignore_errors=True)


def _close_doors() -> None:
    for table in _DOORS:
        db.execute(f"DELETE FROM {table}")  # noqa: S608  # names of our own


def _switch(folder: Path, data: Path) -> Path | None:
    """Make the folder the data folder; what was there is kept beside it."""
    stamp = clock.rfc3339(clock.now_ms())[:19].replace(":", "").replace("-", "")
    occupied, aside = bool(_entries(data)), None
    if folder.parent == data:
        return _switch_inside(folder, data, f"before-restore-{stamp}")
    folder.chmod(0o700)
    if occupied:
        aside = data.with_name(f"{data.name}.before-restore-{stamp}")
        data.rename(aside)
    folder.rename(data)  # over an empty folder, or where none is
    sync_folder(data.parent)
    return aside


def _switch_inside(folder: Path, data: Path, name: str) -> Path | None:
    """In a folder that is a mount every entry is moved by itself; the database comes last, with it the appliance is there."""
    former = [path for path in _entries(data) if path != folder]
    aside = data / name if former else None
    if aside is not None:
        aside.mkdir(mode=0o700)
        for path in former:
            path.rename(aside / path.name)
    for path in sorted(folder.iterdir(), key=lambda path: path.name == DATABASE):
        path.rename(data / path.name)
    sync_folder(data)
    return aside
