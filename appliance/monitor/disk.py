"""Disk usage: how full the data folder's disk is, the appliance's share, and whether space is available again."""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from appliance.core.database import db

REQUIRED_BYTES = 1 << 20
"""Bytes that must be writable before a disk that was full counts as usable again."""
NEARLY_FULL = 90.0
"""Percentage in use from which the console warns the appliance's administrators."""


@dataclass(frozen=True)
class Disk:
    """Bytes of the disk with the data folder, of the database, and of the contents of documents, WebApps and skills.

    The database may be on a server, and contents in a bucket: then they are on another disk.
    """

    total: int
    free: int
    database: int
    blobs: int

    @property
    def used_percent(self) -> float:
        return 100 * (self.total - self.free) / self.total if self.total else 0.0

    @property
    def is_nearly_full(self) -> bool:
        return self.used_percent >= NEARLY_FULL


class DiskGauge:
    """Measures occasionally, because adding up all contents is slow; readers get the latest measurement."""

    def __init__(self, folder: Path, blob_bytes: Callable[[], int]) -> None:
        self._folder, self._blob_bytes = folder, blob_bytes
        self._blobs = 0

    def measure(self) -> None:
        """Measure the contents again."""
        self._blobs = self._blob_bytes()

    def read(self) -> Disk:
        """The current free space, and the contents as last measured."""
        usage = shutil.disk_usage(self._folder)
        return Disk(usage.total, usage.free, db.get_size(), self._blobs)


def check_space(folder: Path) -> None:
    """While writes are refused for lack of space: check whether the folder and the database have space again."""
    if db.is_full() and _has_space(folder):
        db.probe_free_space(REQUIRED_BYTES)


def _has_space(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, REQUIRED_BYTES)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return False
    return True
