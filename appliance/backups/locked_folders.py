"""Temporary folders that are locked while their process lives, so that others can delete those of killed processes."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from appliance.core.database.presence import is_locked

_LOCK = "lock"


@contextmanager
def locked_folder(folder: Path) -> Iterator[Path]:
    """Creates the folder, locked while its process lives, and removes it at the end."""
    folder.mkdir(mode=0o700)
    descriptor = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with suppress(OSError):  # on a file system without locks, leftovers are recognized by age only
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)


def is_abandoned(folder: Path) -> bool:
    """Whether the process that made the folder is gone."""
    try:
        return not is_locked(folder / _LOCK)
    except OSError:  # just created, just being deleted, or owned by another user
        return False
