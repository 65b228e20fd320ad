"""The folder of the backups that the appliance makes by itself, which others may use too: which files there are its own."""

import fcntl
import json
import logging
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from appliance.blobs import installation_id
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer, load_or_make_key
from appliance.core.database.presence import is_locked
from appliance.core.errors import ApplianceError

from .making import KEY
from .parts import is_sealed
from .problems import BackupInvalid

log = logging.getLogger(__name__)
# Earlier releases gave names without an installation.
_NAME = re.compile(r"gos-(\d{8}T\d{6})Z(?:-(ins_[0-9a-f]{24}))?\.gosb")
_STATE, _ROOM, _LOCK = "backup.json", ".gos-making-", "lock"
_LEFT_OVER = (f"{_ROOM}*", ".gos-backup-*", ".gos-verify-*", ".gos-*.partial", "gos-*.partial")
_DEAD_MS = 7 * 24 * 3_600_000  # what nobody has touched for so long is no backup that is being made


@dataclass(frozen=True)
class Outcome:
    """What became of the last attempt; `problem` is None when it is whole, which was checked by reading it again."""

    at: int
    path: str
    size: int
    rows: int
    contents: int
    encrypted: bool
    problem: str | None


@dataclass(frozen=True)
class Kept:
    """A backup that lies in the folder; only a sealed one may leave by the console."""

    name: str
    made_at: int
    size: int
    is_sealed: bool


def folder_of(config: Config) -> Path:
    """Where backups lie: in the configured folder, and those that were only asked for in the data folder without one."""
    return Path(config.backup.to) if config.backup.to else config.data / "backups"


def new_path(config: Config) -> Path:
    """The name of a backup that is made now: when, and by which installation."""
    stamp = clock.rfc3339(clock.now_ms())[:19].replace("-", "").replace(":", "")
    return folder_of(config) / f"gos-{stamp}Z-{_installation(config)}.gosb"


def _installation(config: Config) -> str:
    """This installation; empty where there is no key yet, so that none is made by asking."""
    key = config.data / KEY
    return installation_id(Sealer(load_or_make_key(key))) if key.exists() else ""


def reason_of(error: Exception, folder: Path) -> str:
    """What went wrong, for whoever looks after backups."""
    if isinstance(error, ApplianceError):
        return error.message
    if isinstance(error, OSError):
        return f"{error.filename or folder}: {error.strerror or error}"
    return f"{type(error).__name__}: {error}"


@contextmanager
def workroom(config: Config) -> Iterator[Path]:
    """A folder for what is being made, beside the backups, locked for as long as its process lives; it goes with all in it."""
    room = folder_of(config) / f"{_ROOM}{_installation(config)}-{secrets.token_hex(4)}"
    room.mkdir(mode=0o700)
    descriptor = os.open(room / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with suppress(OSError):  # a file system without locks: what is left there is known by its age alone
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield room
    finally:
        os.close(descriptor)
        shutil.rmtree(room, ignore_errors=True)


def tidy(config: Config) -> None:
    """Take away what killed processes left: of this installation when it is locked no more, of anybody after a week.

    Another appliance may be making its own in this folder, and so may a `gos backup` by cron.  What cannot be taken away, because
    it is another user's, is in nobody's way.
    """
    folder, own = folder_of(config), f"{_ROOM}{_installation(config)}-"
    for path in {path for pattern in _LEFT_OVER for path in folder.glob(pattern)}:
        if _is_dead(path) or (path.name.startswith(own) and _is_abandoned(path)):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    path.unlink()


def _is_abandoned(room: Path) -> bool:
    try:
        return not is_locked(room / _LOCK)
    except OSError:  # it has just been made, is just going, or is another user's
        return False


def _is_dead(path: Path) -> bool:
    try:
        touched = max(each.stat().st_mtime for each in (path, *path.rglob("*")))
    except OSError:  # somebody works there
        return False
    return touched * 1000 < clock.now_ms() - _DEAD_MS


def list_kept(config: Config) -> list[Kept]:
    """The backups of this installation in the folder, newest first.

    One that says a time to come was made while the clock was ahead: it is taken for the oldest, or each new one would be deleted
    instead of it.
    """
    now, each_of = clock.now_ms(), [_kept(folder_of(config), match) for match in _told_apart(config)[0]]
    found = [each for each in each_of if each is not None]
    return sorted(found, key=lambda kept: (kept.made_at <= now, kept.made_at), reverse=True)


def _kept(folder: Path, match: re.Match[str]) -> Kept | None:
    """None for what is no file, or is gone: a link to a disk that is not there ends no backups."""
    path, day, time = folder / match[0], match[1][:8], match[1][9:]
    text = f"{day[:4]}-{day[4:6]}-{day[6:]}T{time[:2]}:{time[2:4]}:{time[4:]}Z"
    try:
        found = path.stat()
    except OSError:
        return None
    return Kept(path.name, clock.parse_rfc3339(text), found.st_size, _is_sealed(path)) if stat.S_ISREG(found.st_mode) else None


def nobodys(config: Config) -> list[str]:
    """The names in the folder that do not say whose they are, and may be another appliance's."""
    return sorted(match[0] for match in _told_apart(config)[1])


def _told_apart(config: Config) -> tuple[list[re.Match[str]], list[re.Match[str]]]:
    """The names of this installation's, and those that do not say whose they are.

    One without an installation is ours in our data folder, or where we remember having given it.
    """
    folder, installation, last = folder_of(config), _installation(config), last_outcome(config)
    remembered = Path(last.path).name if last else ""
    ours: list[re.Match[str]] = []
    unclear: list[re.Match[str]] = []
    for name in _names(folder):
        if match := _NAME.fullmatch(name):
            if match[2] == installation or (match[2] is None and (not config.backup.to or name == remembered)):
                ours.append(match)
            elif match[2] is None:
                unclear.append(match)
    return ours, unclear


def _names(folder: Path) -> list[str]:
    """What lies there; nothing where that may not be read, which whoever makes the next one is told."""
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def _is_sealed(path: Path) -> bool:
    try:
        return is_sealed(path)
    except (BackupInvalid, OSError):  # whatever it is, and whoever may read it, it does not leave
        return False


def forget_old(config: Config) -> str | None:
    """Delete all of its own but the newest ones; only called when a new one lacks nothing that the others may hold.

    Answers what failed.
    """
    folder = folder_of(config)
    try:
        for kept in list_kept(config)[config.backup.keep :]:
            (folder / kept.name).unlink(missing_ok=True)
    except OSError as error:
        log.exception("old backups could not be deleted")
        return f"it is whole, but old ones could not be deleted: {reason_of(error, folder)}"
    return None


def last_outcome(config: Config) -> Outcome | None:
    """What became of the last attempt."""
    try:
        return Outcome(**json.loads((config.data / _STATE).read_text("utf8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def remember(config: Config, outcome: Outcome) -> None:
    """Keep what became of an attempt."""
    draft = config.data / f"{_STATE}.new"
    draft.write_text(json.dumps(asdict(outcome)), "utf8")
    draft.replace(config.data / _STATE)
