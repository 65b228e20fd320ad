"""Automatic backups: when the next one is due, the result of the last one, and which ones are kept."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from appliance.blobs import Places
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.errors import Conflict
from appliance.core.scheduling import LONG, PeriodicJob

from .backup_folder import (
    BackupFile,
    BackupResult,
    delete_leftovers,
    delete_old,
    describe_error,
    list_backups,
    list_unowned,
    load_last_result,
    new_path,
    save_result,
    temporary_folder,
)
from .creation import Backup, make_backup
from .envelope import check_passphrase
from .parts import name_file
from .problems import JobControl, Stopped
from .verification import verify_backup

log = logging.getLogger(__name__)
RETRY_MS = 10 * 60_000  # the delay after a failed backup
_LOCK = "backup.lock"


@dataclass(frozen=True)
class Progress:
    """The progress of a running backup; stages are `asked`, `database`, `contents`, `checking`; `of` is 0 if unknown."""

    since: int
    stage: str = "asked"
    done: int = 0
    of: int = 0


@dataclass(frozen=True)
class BackupStatus:
    """The status of backups: configuration, last attempt, next due time and stored backups."""

    folder: str
    every: str
    keep: int
    encrypts: bool
    last: BackupResult | None
    next_at: int | None
    files: tuple[BackupFile, ...]
    overdue: bool


@dataclass(frozen=True)
class _BackupRequest:
    """A request for a backup now, with this passphrase."""

    passphrase: str | None


class Schedule:
    """Makes a backup whenever one is due or requested; a lock lets only one process of the appliance make it.

    A process without workers makes only those that were requested from it.
    """

    def __init__(self, config: Config, places: Places) -> None:
        self._config, self._places = config, places
        self._stopping = False
        self._lock = Lock()
        self._request: _BackupRequest | None = None
        self._progress: Progress | None = None

    @property
    def progress(self) -> Progress | None:
        """The progress of the backup in this process; None when none is running."""
        return self._progress

    def stop(self) -> None:
        """Aborts a running backup, which is due again at once."""
        self._stopping = True

    def request_now(self, passphrase: str | None) -> None:
        """Requests a backup at the next run; raises Conflict while one is running, BackupInvalid for a short passphrase."""
        if passphrase is not None:
            check_passphrase(passphrase)
        with self._lock:
            if self._progress is not None:
                raise Conflict("a backup is already being made; wait until it is listed, then try again")
            self._request, self._progress = _BackupRequest(passphrase), Progress(clock.now_ms())

    def run_due(self) -> BackupResult | None:
        """Makes, verifies and records a backup if one is due or requested; returns its result, None without one."""
        with _lock(self._config) as is_locked:
            due = next_due(self._config) if self._config.server.run_workers else None
            is_due = due is not None and due <= clock.now_ms()
            if not is_locked or self._stopping or not (is_due or self._request):
                return None
            with self._lock:
                request = self._request or _BackupRequest(self._config.backup.passphrase or None)
                self._request, self._progress = None, self._progress or Progress(clock.now_ms())
            try:
                result = self._make(request.passphrase)
                save_result(self._config, result)
            except Stopped:
                return None
            finally:
                self._progress = None
        return result

    def _report(self, stage: str, done: int, of: int) -> None:
        if (before := self._progress) is not None:
            self._progress = replace(before, stage=stage, done=done, of=of or (before.of if before.of >= done else 0))

    def _make(self, passphrase: str | None) -> BackupResult:
        now, path = clock.now_ms(), new_path(self._config)
        try:
            backup = self._make_verified(path, passphrase)
        except Stopped:
            raise
        except Exception as error:  # `gos doctor` must report every failure
            reason = describe_error(error, path.parent)
            log.exception("The backup failed.", extra={"fields": {"path": str(path), "reason": reason}})
            return BackupResult(at=now, path=str(path), size=0, rows=0, contents=0, encrypted=bool(passphrase), problem=reason)
        problem = _damage(backup) or delete_old(self._config)
        log.info("The backup is complete.", extra={"fields": {"path": str(path), "bytes": backup.size}})
        return BackupResult(
            at=now, path=str(path), size=backup.size, rows=backup.rows, contents=backup.contents, encrypted=backup.encrypted,
            problem=problem,
        )

    def _make_verified(self, path: Path, passphrase: str | None) -> Backup:
        """Makes a backup and gives it its final name only after it was verified by reading it again."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        delete_leftovers(self._config)
        course = JobControl(lambda: self._stopping, self._report)
        with temporary_folder(self._config) as room:
            draft = room / path.name
            backup = make_backup(self._config, self._places, draft, passphrase, course)
            verify_backup(draft, passphrase, room, course)
            name_file(draft, path)
        return backup


def _damage(backup: Backup) -> str | None:
    if not backup.damaged:
        return None
    return f"{len(backup.damaged)} contents are damaged or missing in the appliance and not in the backup: {backup.damaged[0]} …"


class BackupUpkeep(PeriodicJob):
    """Runs the schedule in a running appliance; stopping it aborts a running backup."""

    def __init__(self, config: Config, places: Places, seconds: float = 60.0) -> None:
        self.schedule = Schedule(config, places)
        super().__init__("backups", seconds, self.schedule.run_due, LONG)

    def make_now(self, passphrase: str | None) -> None:
        """Starts a backup now; raises the same errors as `Schedule.request_now`."""
        self.schedule.request_now(passphrase)
        self.hasten()

    def signal(self) -> None:
        self.schedule.stop()
        super().signal()


@contextmanager
def _lock(config: Config) -> Iterator[bool]:
    """Locks backups for this process; yields False when another process of this machine holds the lock."""
    descriptor = os.open(config.data / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def next_due(config: Config) -> int | None:
    """When the next backup is due (epoch ms); None when backups are not configured."""
    if not config.backup.to:
        return None
    last, every, now = load_last_result(config), clock.parse_duration(config.backup.every), clock.now_ms()
    if last is not None and last.size == 0:  # it failed
        return last.at + min(RETRY_MS, every) if last.at <= now else 0
    backups = [each for each in list_backups(config) if each.made_at <= now]  # one made by a clock that was ahead does not count
    return backups[0].made_at + every if backups else 0


def get_status(config: Config) -> BackupStatus:
    """The current status of backups."""
    last, due, backup = load_last_result(config), next_due(config), config.backup
    late = due is not None and clock.now_ms() > due + clock.parse_duration(backup.every)
    backups = tuple(list_backups(config))
    overdue = late and bool(backups)
    return BackupStatus(
        folder=backup.to, every=backup.every, keep=backup.keep, encrypts=bool(backup.passphrase), last=last, next_at=due or None,
        files=backups, overdue=overdue,
    )


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the file is not accessible
        return False


def findings(config: Config) -> Iterator[tuple[str, str]]:
    """The findings of `gos doctor` about backups: (level, text)."""
    status = get_status(config)
    if not status.folder:
        yield "note", "automatic backups are off (backup.to); set a folder on another disk, or run gos backup by cron"
        return
    if status.last is None:
        yield "note", f"no backup has been made in {status.folder} yet; the appliance makes one when it runs"
    elif status.last.problem is not None:
        yield "FAIL", f"the last backup failed at {clock.rfc3339(status.last.at)}: {status.last.problem}"
    elif status.overdue:
        at = clock.rfc3339(status.last.at)
        yield "FAIL", f"the last backup was made at {at}, and one is due every {status.every}: is the appliance running?"
    elif not _is_there(Path(status.last.path)):
        yield "FAIL", (
            f"the last backup, of {clock.rfc3339(status.last.at)}, is missing ({status.last.path}): is the disk mounted, was "
            "the file moved? Until the next one is made there may be no backup"
        )
    else:
        path, size = status.last.path, status.last.size >> 10
        yield "ok", f"the last backup, of {clock.rfc3339(status.last.at)}, is complete: {path}, {size} KiB"
    if not status.encrypts:
        yield (
            "note",
            "backups are not encrypted and therefore lack the key file (backup.passphrase); keep a copy of it on another machine",
        )
    if unclear := list_unowned(config):
        yield "note", (
            f"{len(unclear)} backups in {status.folder} have names of an earlier release without an installation: they are neither "
            "counted nor deleted; delete them yourself when you no longer need them"
        )
    folder = Path(status.folder)
    if folder.is_dir() and folder.stat().st_dev == config.data.stat().st_dev:
        yield "note", f"backups are on the same disk as the data ({status.folder}); if it fails, both are lost"
