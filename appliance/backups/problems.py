"""What is wrong with a file that should be a backup or an export."""

import errno
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from appliance.core.errors import ApplianceError, StorageFull

ShouldStop = Callable[[], bool]


def never() -> bool:
    """Nobody asks to stop."""
    return False


class Stopped(ApplianceError):
    """The appliance stops; what was begun is taken away."""

    code, status = "draining", 503


def refuse_stopping(should_stop: ShouldStop) -> None:
    """Stopped when the appliance is about to."""
    if should_stop():
        raise Stopped("the appliance stops; the backup is made when it runs again")


def _nobody_listens(stage: str, done: int, of: int) -> None:
    """Nobody wants to know how far it is."""


@dataclass(frozen=True)
class Course:
    """How a backup goes on: asked at every piece whether to stop, and told how far it is: the stage, and so many of so many."""

    should_stop: ShouldStop = never
    tell: Callable[[str, int, int], None] = _nobody_listens

    def refuse_stopping(self) -> None:
        """Stopped when the appliance is about to."""
        refuse_stopping(self.should_stop)


UNWATCHED = Course()


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class BackupInvalid(ApplianceError):
    """The file is no backup, is damaged or incomplete, or cannot be opened with what was given."""

    code, status = "backup_invalid", 422


@contextmanager
def full_disks() -> Iterator[None]:
    """A disk without room as StorageFull, whoever found it."""
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
