"""Restores a backup: everything is unpacked and verified beside the data folder before that is changed."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance import migrations
from appliance.blobs import Places, installation_id
from appliance.core import catalogues, clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer, key_id, load_keys, open_digest_key, read_key_file
from appliance.core.database import db
from appliance.core.database.presence import is_any_alive
from appliance.core.errors import Conflict
from appliance.core.scope import tenant_ids
from appliance.core.sentences import Sentence
from appliance.tenants import record_for_appliance

from .backup_jobs import delete_all as delete_all_backup_jobs
from .copying import FileSource, load_rows
from .creation import DATABASE, FILES, KEY
from .jobs.records import delete_all as delete_all_jobs
from .parts import BackupSource, sync_folder
from .problems import BackupInvalid, full_disks
from .rehearsal.records import delete_all as delete_all_rehearsals
from .snapshots import open_snapshot, schema_number
from .verification import SPARE_BYTES, VerifiedBackup, read_backup

CONFIG = "config.yaml"
IGNORED = frozenset({"lost+found"})
# Sessions and codes give access without signing in and may have been revoked since the backup.
ACCESS_TABLES = ("session", "webapp_visit", "webapp_sign_in", "email_code", "integration_consent")

_KEYS = "SELECT id, digests, resealed_at FROM master_key WHERE retired_at IS NULL ORDER BY number"

PlacesOf = Callable[[Config, str], Places]
ConfigOf = Callable[[Path | None], Config]


@dataclass(frozen=True)
class RestoreRequest:
    """The options of a restore.

    `key_file` is the key file of the appliance, needed if the backup does not contain it.  `replace` moves existing data aside;
    settings that the backup lacks are copied from there.  `spare_bytes` must stay free on the disk.  With `by`, who restores it,
    the restore is entered into the trail of the restored appliance.
    """

    path: BackupSource
    passphrase: str | None = None
    key_file: Path | None = None
    replace: bool = False
    spare_bytes: int = SPARE_BYTES
    by: str = ""

    @property
    def source(self) -> str:
        """Path or address of what is restored."""
        return str(self.path.absolute() if isinstance(self.path, Path) else self.path)

    def unpack(self, folder: Path) -> VerifiedBackup:
        """Unpack the backup into an empty folder, and verify all of it."""
        return read_backup(self.path, self.passphrase, folder, spare=self.spare_bytes)


@dataclass(frozen=True)
class RestoreResult:
    """The result of a restore; `aside` is the new place of the previous data.

    `stayed` lists the settings copied from the previous folder, `missing` the files that the backup left out and that are
    still missing.
    """

    data: Path
    previous_data: Path | None
    manifest: dict[str, Any]
    migrated: tuple[str, ...]
    copied: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def rows(self) -> int:
        return sum(self.manifest["tables"].values())


def restore_backup(load: ConfigOf, places_of: PlacesOf, request: RestoreRequest) -> RestoreResult:
    """Restores into an empty data folder and database; executions then continue as after a power failure at that moment.

    `load` reads the configuration, from the backup's file if it has one.  Raises BackupInvalid, Conflict or StorageFull.
    """
    data = load(None).data
    _refuse_occupied(data, replace=request.replace)
    with _staging(data) as folder, full_disks():
        checked = request.unpack(folder)
        stored_config = folder / FILES / CONFIG
        config = load(stored_config if stored_config.is_file() else None)
        own_key = data / KEY if request.replace and (data / KEY).is_file() else None
        _move_files(checked, request.key_file or own_key)
        _check_keys(config, checked)
        stayed = tuple(_copy_settings(folder, data)) if request.replace else ()
        missing = tuple(name for name in checked.manifest["left_out"] if not (folder / name).exists())
        migrated = _load_data(config, places_of, checked, request)
        os.sync()
        aside = _activate(folder, data)
    return RestoreResult(data, aside, checked.manifest, tuple(migrated), stayed, missing)


def _copy_settings(folder: Path, data: Path) -> Iterator[str]:
    """Copies settings that the backup lacks, so that the appliance starts as configured and finds its database.

    Yields their names.  A copied configuration may name a language that the backup lacks, so languages are copied too.
    """
    own_languages = (data / CONFIG).exists() and not (folder / CONFIG).exists()
    paths = [data / CONFIG, data / "tls"]
    if own_languages or not (folder / catalogues.FOLDER).exists():
        paths += sorted((data / catalogues.FOLDER).glob("*.po"))
    for former in paths:
        new = folder / former.relative_to(data)
        if former.exists() and not new.exists():
            new.parent.mkdir(exist_ok=True, mode=0o700)
            if former.is_dir():
                shutil.copytree(former, new, symlinks=True)
            else:
                shutil.copy2(former, new, follow_symlinks=False)
            yield new.relative_to(folder).as_posix()


def _refuse_occupied(data: Path, *, replace: bool) -> None:
    if is_any_alive(data / "workers"):
        raise Conflict(Sentence("an appliance is running on %(data)s; stop it first", data=data))
    if _entries(data) and not replace:
        raise Conflict(Sentence(
            "%(data)s is not empty; choose another folder with --data, or use --replace to move the existing data aside", data=data
        ))


def _entries(data: Path) -> list[Path]:
    return [path for path in data.iterdir() if path.name not in IGNORED] if data.is_dir() else []


@contextmanager
def _staging(data: Path) -> Iterator[Path]:
    """A temporary folder on the same file system: beside the data folder, or inside it if that is a mount point."""
    parent = data if os.path.ismount(data) else data.parent
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = Path(tempfile.mkdtemp(prefix=".gos-restore-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _move_files(checked: VerifiedBackup, key_file: Path | None) -> None:
    """Moves the files of the backup, and the key, to where the appliance expects them."""
    files = checked.folder / FILES
    for path in sorted(files.iterdir()) if files.is_dir() else ():
        path.rename(checked.folder / path.name)
    if files.is_dir():
        files.rmdir()
    key = checked.folder / KEY
    if key_file is not None and not key.exists():
        key.touch(0o600)
        key.write_bytes(key_file.read_bytes())


def _check_keys(config: Config, checked: VerifiedBackup) -> None:
    """BackupInvalid unless the master keys of the backup, of --key or of the configured source open its database."""
    is_file, key = config.master_key.source == "file", checked.folder / KEY
    if is_file and not key.exists():
        raise BackupInvalid(
            "the backup is not encrypted and therefore lacks the key file; give the one of that appliance with --key FILE"
        )
    keys = read_key_file(key) if is_file else load_keys(config)
    own = installation_id(_open_sealer(checked, keys))
    if own != checked.manifest["installation"]:
        raise BackupInvalid(Sentence(
            "the key file belongs to %(own)s, the backup to %(installation)s; give the key file of the latter with --key FILE",
            own=own, installation=checked.manifest["installation"],
        ))


def _open_sealer(checked: VerifiedBackup, keys: tuple[bytes, ...]) -> Sealer:
    """The sealer of a backup's database; BackupInvalid if it needs other keys.  Those of earlier releases name none."""
    with open_snapshot(checked.folder / DATABASE) as file:
        tables = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'master_key'").fetchall()
        rows = file.execute(_KEYS).fetchall() if tables else []
    if not rows:
        return Sealer(keys[0])
    present, (newest, digests, resealed_at) = {key_id(key): key for key in keys}, rows[-1]
    needed = [newest] if resealed_at is not None else [row[0] for row in rows]
    if missing := [each for each in needed if each not in present]:
        raise BackupInvalid(Sentence(
            "the backup needs the master key %(missing)s, but the key file has %(present)s; give a key file of that time with "
            "--key FILE",
            missing=", ".join(missing), present=", ".join(present),
        ))  # fmt: skip
    return Sealer(present[newest], digest_key=open_digest_key(present[newest], digests))


def _load_data(config: Config, places_of: PlacesOf, checked: VerifiedBackup, request: RestoreRequest) -> list[str]:
    """Loads the database and the contents into the configured places; returns the migrations applied."""
    url = config.database_url
    own = url == f"sqlite:///{config.data / DATABASE}"
    if url.startswith("sqlite:///") and not own:
        raise Conflict("restore supports a database in the data folder or on a server; leave storage.database empty for now")
    if config.blobs.store != "local":
        _upload_contents(places_of(config, checked.manifest["installation"]), checked.folder / "blobs")
    db.open_database(f"sqlite:///{checked.folder / DATABASE}" if own else url)
    try:
        if not own:
            _load(checked.folder / DATABASE)
        migrated = migrations.migrate()
        db.write(lambda: _complete(request, checked.manifest))
    finally:
        db.close_database()
    if own:
        _merge_side_files(checked.folder / DATABASE)
    else:
        (checked.folder / DATABASE).unlink()
    return migrated


def _merge_side_files(path: Path) -> None:
    """Merges the side files of an SQLite database into it."""
    with closing(sqlite3.connect(path)) as own:
        own.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def _load(path: Path) -> None:
    """Loads an empty database on a server: the schema of the backup, then all rows in one transaction."""
    if migrations.is_begun() and (tenant_ids() or db.rows("SELECT 1 FROM person LIMIT 1")):
        raise Conflict("the database in storage.database is not empty; create a new one and configure that")
    with open_snapshot(path) as file:
        number = schema_number(file)
    migrations.migrate(number)

    def load() -> None:
        with open_snapshot(path) as file:
            load_rows(FileSource(file.execute))

    db.write(load)


def _upload_contents(places: Places, folder: Path) -> None:
    """Uploads contents to a bucket; one that exists under its name already is the same."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            place, size = path.relative_to(folder).as_posix(), path.stat().st_size
            if places.holds(place, size):
                path.unlink()
            else:
                places.adopt(path, place)
    shutil.rmtree(folder, ignore_errors=True)


def _complete(request: RestoreRequest, manifest: Mapping[str, Any]) -> None:
    """Inside a write: revoke what may have been revoked since, and enter the restore into the trail of the appliance."""
    _revoke_access()
    if request.by:
        fields = {name: manifest[name] for name in ("made_at", "moment", "version") if name in manifest} | {"by": request.by}
        record_for_appliance("backup.restore", request.source, fields)


def _revoke_access() -> None:
    for table in ACCESS_TABLES:
        db.execute(f"DELETE FROM {table}")  # noqa: S608  # names of our own
    delete_all_rehearsals()
    delete_all_backup_jobs()  # the one that is restored was running
    delete_all_jobs()  # their files are not in a backup


def _activate(folder: Path, data: Path) -> Path | None:
    """Makes the folder the data folder; existing data is moved beside it."""
    stamp = clock.rfc3339(clock.now_ms())[:19].replace(":", "").replace("-", "")
    occupied, aside = bool(_entries(data)), None
    if folder.parent == data:
        return _activate_inside(folder, data, f"before-restore-{stamp}")
    folder.chmod(0o700)
    if occupied:
        aside = data.with_name(f"{data.name}.before-restore-{stamp}")
        data.rename(aside)
    folder.rename(data)  # replaces an empty folder or creates the name
    sync_folder(data.parent)
    return aside


def _activate_inside(folder: Path, data: Path, name: str) -> Path | None:
    """Does the same inside a mount point by moving each entry; the database comes last, as it completes the appliance."""
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
