"""Errors of backups and exports, and the progress and cancellation of a running one."""

import errno
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from appliance.core.errors import ApplianceError, StorageFull

ShouldStop = Callable[[], bool]


def never() -> bool:
    """The default of `should_stop`."""
    return False


class Stopped(ApplianceError):
    """The appliance is stopping; incomplete files are deleted."""

    code, status = "draining", 503


def refuse_stopping(should_stop: ShouldStop) -> None:
    """Raises Stopped when the appliance is stopping."""
    if should_stop():
        raise Stopped("the appliance is stopping; the backup will be made when it runs again")


def _ignore_progress(stage: str, done: int, of: int) -> None:
    """The default of `report`."""


def _ignore_result(result: Any) -> None:
    """The default of `conclude`."""


@dataclass(frozen=True)
class JobControl:
    """Controls a running backup or import: `should_stop` is checked at every piece, `report` gets stage, done and total.

    `conclude` gets the result of an import in the transaction that stores it.
    """

    should_stop: ShouldStop = never
    report: Callable[[str, int, int], None] = _ignore_progress
    conclude: Callable[[Any], None] = _ignore_result

    def refuse_stopping(self) -> None:
        """Raises Stopped when the appliance is stopping."""
        refuse_stopping(self.should_stop)


UNCONTROLLED = JobControl()


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class BackupInvalid(ApplianceError):
    """The file is not a backup, is damaged or incomplete, or cannot be opened with the given passphrase."""

    code, status = "backup_invalid", 422


@contextmanager
def full_disks() -> Iterator[None]:
    """Raises StorageFull for errors of a full disk, whether from a file or from SQLite."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull("the disk is full; free space, or name a file on another disk. Nothing was left half done") from error
        raise
    except sqlite3.OperationalError as error:
        if "full" in str(error) or "disk I/O" in str(error):
            raise StorageFull("the disk is full; free space, or name a file on another disk. Nothing was left half done") from error
        raise
