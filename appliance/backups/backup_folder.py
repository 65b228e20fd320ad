"""The folder or bucket of automatic backups, which other appliances may share: tells which files belong to this installation."""

import json
import logging
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.blobs import read_installation
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database.sentence_fields import dump_sentence, load_sentence
from appliance.core.errors import ApplianceError
from appliance.core.sentences import Sentence

from .buckets.addresses import is_bucket
from .locked_folders import is_abandoned, locked_folder
from .parts import BackupSource, is_sealed
from .problems import BackupInvalid

if TYPE_CHECKING:
    from .buckets import BucketFolder

log = logging.getLogger(__name__)
# Names from earlier releases lack the milliseconds, older ones the installation as well.
_NAME = re.compile(r"gos-(\d{8}T\d{6})(?:\.(\d{3}))?Z(?:-(ins_[0-9a-f]{24}))?\.gosb")
_STATE, _ROOM = "backup.json", ".gos-making-"
_LEFT_OVER = (f"{_ROOM}*", ".gos-backup-*", ".gos-verify-*", ".gos-*.partial", "gos-*.partial")
_DEAD_MS = 7 * 24 * 3_600_000  # a file untouched for this long is not a backup in progress


@dataclass(frozen=True)
class BackupResult:
    """The result of the last attempt; `problem` is None for a complete backup, which was verified by reading it again."""

    at: int
    path: str
    size: int
    rows: int
    contents: int
    encrypted: bool
    problem: str | None


@dataclass(frozen=True)
class BackupFile:
    """A backup in the folder or bucket; only an encrypted one can be downloaded in the console."""

    name: str
    made_at: int
    size: int
    is_sealed: bool


def folder_of(config: Config) -> Path:
    """The folder where backups are made: the configured one, else, or for a bucket, one in the data folder."""
    to = config.backup.to
    return Path(to) if to and not is_bucket(to) else config.data / "backups"


def place_of(config: Config) -> str:
    """The folder or the address of the bucket where backups are, to show it."""
    return config.backup.to or str(folder_of(config))


def address_of(config: Config, name: str) -> str:
    """The path, or in a bucket the address, of a backup of this name."""
    return f"{place_of(config).rstrip('/')}/{name}"


def open_bucket_folder(config: Config, *, retries: int = 3) -> "BucketFolder | None":
    """The bucket of `backup.to`; None when that is a folder."""
    if not is_bucket(config.backup.to):
        return None
    from .buckets import open_folder  # its library takes 5 MB, and most appliances have no bucket

    return open_folder(config, retries=retries)


def open_backup(config: Config, name: str) -> BackupSource | None:
    """One of the backups, to read it; None when it does not exist."""
    bucket = open_bucket_folder(config)
    if bucket is not None:
        return bucket.find(name)
    path = folder_of(config) / name
    return path if path.is_file() else None


def new_path(config: Config) -> Path:
    """The path of a new backup; its name has the time, to the millisecond, and the installation.

    If the folder has one of this moment, it is a millisecond later.
    """
    folder, installation = folder_of(config), read_installation(config)
    for now in count(clock.now_ms()):
        stamp = clock.rfc3339(now)[:23].replace("-", "").replace(":", "")
        path = folder / f"gos-{stamp}Z-{installation}.gosb"
        if not path.exists():
            return path
    raise AssertionError("the count has no end")


def describe_error(error: Exception, folder: Path) -> str:
    """The reason of a failure as text for operators."""
    if isinstance(error, ApplianceError):
        return error.message
    if isinstance(error, OSError):
        return f"{error.filename or folder}: {error.strerror or error}"
    return f"{type(error).__name__}: {error}"


@contextmanager
def temporary_folder(config: Config) -> Iterator[Path]:
    """A temporary folder for a backup in progress, beside the backups."""
    with locked_folder(folder_of(config) / f"{_ROOM}{read_installation(config)}-{secrets.token_hex(4)}") as folder:
        yield folder


def delete_leftovers(config: Config) -> None:
    """Deletes leftovers of killed processes: this installation's when they are no longer locked, others' after a week.

    In a bucket, those of this installation are deleted at once; call it with the right to make a backup.

    Another appliance or a `gos backup` run by cron may be working in this folder.  Files that cannot be deleted, because they
    belong to another user, are ignored.
    """
    folder, own = folder_of(config), f"{_ROOM}{read_installation(config)}-"
    for path in {path for pattern in _LEFT_OVER for path in folder.glob(pattern)}:
        if _is_dead(path) or (path.name.startswith(own) and is_abandoned(path)):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    path.unlink()
    bucket, installation = open_bucket_folder(config), read_installation(config)
    if bucket is not None:
        bucket.delete_leftovers(lambda name: _is_name_of(installation, name), clock.now_ms() - _DEAD_MS)


def _is_name_of(installation: str, name: str) -> bool:
    match = _NAME.fullmatch(name)
    return match is not None and match[3] == installation


def _is_dead(path: Path) -> bool:
    try:
        touched = max(each.stat().st_mtime for each in (path, *path.rglob("*")))
    except OSError:  # a process is working there
        return False
    return touched * 1000 < clock.now_ms() - _DEAD_MS


def list_backups(config: Config) -> list[BackupFile]:
    """The backups of this installation in the folder or bucket, newest first.  Overloaded when the bucket cannot be reached.

    One with a time in the future was made while the clock was ahead; it counts as the oldest, because otherwise new backups
    would be deleted instead of it.
    """
    now, bucket = clock.now_ms(), open_bucket_folder(config, retries=1)
    if bucket is not None:
        backups = list(_list_bucket(config, bucket))
    else:
        candidates = [_describe_file(folder_of(config), match) for match in _split_by_owner(config)[0]]
        backups = [each for each in candidates if each is not None]
    return sorted(backups, key=lambda backup: (backup.made_at <= now, backup.made_at), reverse=True)


def _describe_file(folder: Path, match: re.Match[str]) -> BackupFile | None:
    """The backup; None for anything but an existing file, so that a broken link does not stop backups."""
    path = folder / match[0]
    try:
        status = path.stat()
    except OSError:
        return None
    return (
        BackupFile(path.name, _moment(match), status.st_size, _is_sealed(path)) if stat.S_ISREG(status.st_mode) else None
    )


def _list_bucket(config: Config, bucket: "BucketFolder") -> Iterator[BackupFile]:
    installation = read_installation(config)
    for each in bucket.list():
        if (match := _NAME.fullmatch(each.name)) and match[3] == installation:
            yield BackupFile(each.name, _moment(match), each.size, is_sealed=True)


def moment_of_name(name: str) -> int:
    """When a backup was made, by its name; 0 if that does not tell."""
    match = _NAME.fullmatch(name)
    return _moment(match) if match else 0


def _moment(match: re.Match[str]) -> int:
    day, time = match[1][:8], match[1][9:]
    return clock.parse_rfc3339(f"{day[:4]}-{day[4:6]}-{day[6:]}T{time[:2]}:{time[2:4]}:{time[4:]}.{match[2] or '000'}Z")


def list_unowned(config: Config) -> list[str]:
    """The names of backups in the folder that may belong to another appliance; none in a bucket, which no earlier release used."""
    if is_bucket(config.backup.to):
        return []
    return sorted(match[0] for match in _split_by_owner(config)[1])


def _split_by_owner(config: Config) -> tuple[list[re.Match[str]], list[re.Match[str]]]:
    """The names of this installation's backups, and those of unknown origin.

    A name without an installation is this installation's in its own data folder, or if it is that of the last backup.
    """
    folder, installation, last = folder_of(config), read_installation(config), load_last_result(config)
    last_name = Path(last.path).name if last else ""
    ours: list[re.Match[str]] = []
    unclear: list[re.Match[str]] = []
    for name in _names(folder):
        if match := _NAME.fullmatch(name):
            if match[3] == installation or (match[3] is None and (not config.backup.to or name == last_name)):
                ours.append(match)
            elif match[3] is None:
                unclear.append(match)
    return ours, unclear


def _names(folder: Path) -> list[str]:
    """The file names in a folder; empty when it cannot be read, which the next backup will report."""
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def _is_sealed(path: Path) -> bool:
    try:
        return is_sealed(path)
    except (BackupInvalid, OSError):  # in doubt it cannot be downloaded
        return False


def delete_old(config: Config) -> tuple[list[str], str | None]:
    """Deletes this installation's backups except the newest `backup.keep`; returns their paths, and the problem if that fails.

    Call it only after a new backup is complete.
    """
    folder, deleted = folder_of(config), []
    bucket = open_bucket_folder(config)
    try:
        for backup in list_backups(config)[config.backup.keep :]:
            if bucket is not None:
                bucket.delete(backup.name)
            else:
                (folder / backup.name).unlink(missing_ok=True)
            deleted.append(address_of(config, backup.name))
    except (OSError, ApplianceError) as error:
        log.exception("Old backups could not be deleted.")
        return deleted, Sentence(
            "it is complete, but old backups could not be deleted: %(reason)s", reason=describe_error(error, folder)
        )
    return deleted, None


def load_last_result(config: Config) -> BackupResult | None:
    """The stored result of the last attempt; None without one."""
    try:
        return _load_result(json.loads((config.data / _STATE).read_text("utf8")))
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def _load_result(members: Mapping[str, Any]) -> BackupResult:
    return BackupResult(**{**members, "problem": load_sentence(members["problem"])})


def save_result(config: Config, outcome: BackupResult) -> None:
    """Stores the result of an attempt."""
    draft = config.data / f"{_STATE}.new"
    draft.write_text(json.dumps(asdict(outcome) | {"problem": dump_sentence(outcome.problem)}), "utf8")
    draft.replace(config.data / _STATE)
