"""Backups that the appliance makes by itself: when one is due, what became of the last one, which ones stay."""

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
from appliance.core.periodic import Periodic

from .checking import verify_backup
from .envelope import check_passphrase
from .kept import Kept, Outcome, forget_old, last_outcome, list_kept, new_path, nobodys, reason_of, remember, tidy, workroom
from .making import Backup, make_backup
from .parts import name_file
from .problems import Course, Stopped

log = logging.getLogger(__name__)
AGAIN_MS = 10 * 60_000  # after one that failed
_LOCK = "backup.lock"


@dataclass(frozen=True)
class Progress:
    """How far the backup is that is being made: `asked`, `database`, `contents`, `checking`; `of` is 0 where nobody knows."""

    since: int
    stage: str = "asked"
    done: int = 0
    of: int = 0


@dataclass(frozen=True)
class Standing:
    """How it stands with backups: whether they are configured, the last attempt, when the next is due, which are kept."""

    folder: str
    every: str
    keep: int
    encrypts: bool
    last: Outcome | None
    next_at: int | None
    kept: tuple[Kept, ...]
    overdue: bool


@dataclass(frozen=True)
class _Wish:
    """A backup that somebody wants now, under this passphrase."""

    passphrase: str | None


class Schedule:
    """Makes a backup whenever one is due or wanted; several processes of an appliance make one between them."""

    def __init__(self, config: Config, places: Places) -> None:
        self._config, self._places = config, places
        self._stopping = False
        self._lock = Lock()
        self._wish: _Wish | None = None
        self._progress: Progress | None = None

    @property
    def progress(self) -> Progress | None:
        """How far this process is with one; None when it makes none."""
        return self._progress

    def stop(self) -> None:
        """Give up what is being made; it is due again at once."""
        self._stopping = True

    def ask(self, passphrase: str | None) -> None:
        """Want one at the next turn, whatever is due; Conflict while one is being made, BackupInvalid for a short passphrase."""
        if passphrase is not None:
            check_passphrase(passphrase)
        with self._lock:
            if self._progress is not None:
                raise Conflict("a backup is being made already; wait until it is listed, then ask again")
            self._wish, self._progress = _Wish(passphrase), Progress(clock.now_ms())

    def run_due(self) -> Outcome | None:
        """Make, check and record a backup if one is due or wanted; answers what became of it."""
        with _alone(self._config) as alone:
            due = next_due(self._config)
            is_due = due is not None and due <= clock.now_ms()
            if not alone or self._stopping or not (is_due or self._wish):
                return None
            with self._lock:
                wish = self._wish or _Wish(self._config.backup.passphrase or None)
                self._wish, self._progress = None, self._progress or Progress(clock.now_ms())
            try:
                outcome = self._make(wish.passphrase)
                remember(self._config, outcome)
            except Stopped:
                return None
            finally:
                self._progress = None
        return outcome

    def _tell(self, stage: str, done: int, of: int) -> None:
        if (before := self._progress) is not None:
            self._progress = replace(before, stage=stage, done=done, of=of or (before.of if before.of >= done else 0))

    def _make(self, passphrase: str | None) -> Outcome:
        now, path = clock.now_ms(), new_path(self._config)
        try:
            made = self._make_whole(path, passphrase)
        except Stopped:
            raise
        except Exception as error:  # whatever it is, `gos doctor` must tell of it
            reason = reason_of(error, path.parent)
            log.exception("the backup failed", extra={"fields": {"path": str(path), "reason": reason}})
            return Outcome(now, str(path), 0, 0, 0, bool(passphrase), reason)
        problem = _damage(made) or forget_old(self._config)
        log.info("backed up", extra={"fields": {"path": str(path), "bytes": made.size}})
        return Outcome(now, str(path), made.size, made.rows, made.contents, made.encrypted, problem)

    def _make_whole(self, path: Path, passphrase: str | None) -> Backup:
        """Only what was read again and found whole gets the name that counts as a backup."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        tidy(self._config)
        course = Course(lambda: self._stopping, self._tell)
        with workroom(self._config) as room:
            draft = room / path.name
            made = make_backup(self._config, self._places, draft, passphrase, course)
            verify_backup(draft, passphrase, room, course)
            name_file(draft, path)
        return made


def _damage(made: Backup) -> str | None:
    if not made.damaged:
        return None
    return f"{len(made.damaged)} contents are damaged or lost in the appliance and not in the backup, the first: {made.damaged[0]}"


class BackupUpkeep(Periodic):
    """The schedule as work of a running appliance; stopping it gives up what is being made."""

    def __init__(self, config: Config, places: Places, seconds: float = 60.0) -> None:
        self.schedule = Schedule(config, places)
        super().__init__("backups", seconds, self.schedule.run_due)

    def make_now(self, passphrase: str | None) -> None:
        """Begin one now; errors as `Schedule.ask`."""
        self.schedule.ask(passphrase)
        self.hasten()

    def signal(self) -> None:
        self.schedule.stop()
        super().signal()


@contextmanager
def _alone(config: Config) -> Iterator[bool]:
    """Whether no other process of this machine is at it."""
    descriptor = os.open(config.data / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def next_due(config: Config) -> int | None:
    """When the next one is due; None when none is configured."""
    if not config.backup.to:
        return None
    last, every, now = last_outcome(config), clock.parse_duration(config.backup.every), clock.now_ms()
    if last is not None and last.size == 0:  # it failed
        return last.at + min(AGAIN_MS, every) if last.at <= now else 0
    kept = [each for each in list_kept(config) if each.made_at <= now]  # by a clock that was ahead none would be due for years
    return kept[0].made_at + every if kept else 0


def standing(config: Config) -> Standing:
    """How it stands with backups."""
    last, due, backup = last_outcome(config), next_due(config), config.backup
    late = due is not None and clock.now_ms() > due + clock.parse_duration(backup.every)
    kept = tuple(list_kept(config))
    return Standing(backup.to, backup.every, backup.keep, bool(backup.passphrase), last, due or None, kept, late and bool(kept))


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # whoever asks may not look
        return False


def findings(config: Config) -> Iterator[tuple[str, str]]:
    """What `gos doctor` says of backups."""
    now = standing(config)
    if not now.folder:
        yield "note", "no backups are made by themselves (backup.to); name a folder on another disk, or run gos backup by cron"
        return
    if now.last is None:
        yield "note", f"no backup has been made in {now.folder} yet; the appliance makes one when it runs"
    elif now.last.problem is not None:
        yield "FAIL", f"the last backup failed at {clock.rfc3339(now.last.at)}: {now.last.problem}"
    elif now.overdue:
        yield (
            "FAIL",
            f"the last backup is of {clock.rfc3339(now.last.at)} and they are due every {now.every}: does the appliance run?",
        )
    elif not _is_there(Path(now.last.path)):
        yield "FAIL", (
            f"the last backup, of {clock.rfc3339(now.last.at)}, is not where it was made ({now.last.path}): is it mounted, was it "
            "taken away? Until another is made there may be none"
        )
    else:
        yield "ok", f"the last backup, of {clock.rfc3339(now.last.at)}, is whole: {now.last.path}, {now.last.size >> 10} KiB"
    if not now.encrypts:
        yield (
            "note",
            "backups are not encrypted and so lack the key file (backup.passphrase); keep a copy of it apart from this machine",
        )
    if unclear := nobodys(config):
        yield "note", (
            f"{len(unclear)} backups in {now.folder} have names of an earlier release, which do not say whose they are: they are "
            "neither counted nor deleted; take them away by hand once you need them no more"
        )
    folder = Path(now.folder)
    if folder.is_dir() and folder.stat().st_dev == config.data.stat().st_dev:
        yield "note", f"backups lie on the disk of the data ({now.folder}); one that fails takes both"
