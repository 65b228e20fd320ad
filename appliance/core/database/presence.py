"""Detects which processes are alive, and how many serve requests: each holds locks that are released when it dies."""

import fcntl
import os
from pathlib import Path

from appliance.core import ids

from . import db


def open_presence(folder: Path) -> "Presence":
    """Create the presence of this process: a file lock with SQLite, an advisory lock with PostgreSQL."""
    if db.is_sqlite():
        return Presence(folder)
    from .postgresql_presence import LockPresence

    return LockPresence(db.database.obj)


def is_any_other_alive() -> bool:
    """Whether another process has locks on the open database, of any machine; for SQLite, `is_any_alive` knows."""
    if db.is_sqlite():
        return False
    from .postgresql_presence import has_other_locks

    return has_other_locks(db.database.obj)


class ServerCount:
    """How many processes serve requests on this database, as last counted; each grants its share of what is limited for all."""

    def __init__(self) -> None:
        self.count = 1

    def share(self, limit: int) -> int:
        """What each process may grant of a limit, rounded up: with it, all together exceed the limit by less than their number."""
        return limit if self.count == 1 else -(-limit // self.count)


def is_any_alive(folder: Path) -> bool:
    """Whether any process of this machine holds a lock in the folder; changes nothing."""
    return any(is_locked(path) for path in (folder.iterdir() if folder.is_dir() else ()))


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a file; OSError if it cannot be opened or the file system has no locks."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class Presence:
    """The presence of this process as a file lock, which the kernel releases when the process dies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.instance = ids.new("wrk")
        self._descriptor = os.open(folder / self.instance, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def is_alive(self, owner: str) -> bool:
        """Whether the process with the instance id `owner` is alive on this host."""
        if owner == self.instance:
            return True
        try:
            return is_locked(self._folder / owner)
        except (FileNotFoundError, IsADirectoryError):
            return False

    def sweep(self) -> list[str]:
        """Remove the files of dead processes; returns their names."""
        dead = [path.name for path in self._folder.iterdir() if not self.is_alive(path.name)]
        for name in dead:
            (self._folder / name).unlink(missing_ok=True)
        return dead

    def start_serving(self) -> None:
        """Count this process among those that serve requests, until `stop_serving` or its end."""

    def stop_serving(self) -> None:
        """No longer count this process among those that serve requests."""

    def count_serving(self) -> int:
        """How many processes serve requests: with SQLite always this one."""
        return 1

    def close(self) -> None:
        """Release the lock; other processes can reclaim what this process still owns."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            (self._folder / self.instance).unlink(missing_ok=True)
