"""The files of jobs in the store of contents, and the temporary folders in which jobs work.

A file of a job is no content of its tenant: it counts in no quota and is in no backup or export.
"""

import io
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from appliance.backups.locked_folders import is_abandoned, locked_folder
from appliance.backups.parts import PIECE
from appliance.backups.problems import full_disks
from appliance.blobs import Pieces, Places, ReceivedFile
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope

FOLDER = "transfers"
FORMER_FOLDERS = ("exports", "arriving")
"""Where earlier releases stored exports and uploads."""
_YOUNG_MS = 60_000  # a folder may just be on the way to its lock
_DEAD_MS = 24 * 3_600_000


class JobFiles:
    """Stores the files of jobs where every process reads them."""

    def __init__(self, config: Config, places: Places) -> None:
        self._data, self._places = config.data, places

    @contextmanager
    def working_folder(self, job_id: str) -> Iterator[Path]:
        """A temporary folder for a job, which is deleted when its process dies."""
        parent = self._data / FOLDER
        parent.mkdir(mode=0o700, exist_ok=True)
        with locked_folder(parent / f"{job_id}-{secrets.token_hex(4)}") as folder:
            yield folder

    def store(self, scope: TenantScope, path: Path) -> str:
        """Moves a file to a new place, which a row must name within a day.  StorageFull."""
        receiver = self._places.receiver()
        try:
            with full_disks(), path.open("rb") as source:
                for piece in iter(lambda: source.read(PIECE), b""):
                    receiver.write(piece)
            received = receiver.finish()
        except BaseException:
            receiver.discard()
            raise
        path.unlink()
        return self.adopt(scope, received)

    def adopt(self, scope: TenantScope, received: ReceivedFile) -> str:
        """The same for a received file, which is consumed."""
        place = f"{scope.tenant_id}/jobs/{secrets.token_hex(16)}"
        try:
            self._places.adopt(received.path, place)
        finally:
            received.discard()
        return place

    def read(self, place: str, size: int) -> Pieces:
        """All bytes of a file in pieces.  NotFound if it is missing: a restored or moved appliance has no files of jobs."""
        try:
            return self._places.read(place, 0, size)
        except FileNotFoundError as error:
            raise NotFound("the file of this job is not stored here any more; delete the job and start again") from error

    @contextmanager
    def open(self, place: str, size: int) -> Iterator[io.BufferedReader]:
        """A file, to be read once from its start."""
        with io.BufferedReader(_PiecesFile(self.read(place, size)), PIECE) as file:
            yield cast(io.BufferedReader, file)

    def delete(self, places: list[str]) -> None:
        """Deletes the files at these places."""
        for place in places:
            self._places.delete(place)

    def delete_leftovers(self) -> None:
        """Deletes the temporary folders of killed processes, and what earlier releases have stored."""
        for path in _entries(self._data / FOLDER):
            if is_abandoned(path) and _is_older(path, _YOUNG_MS):
                shutil.rmtree(path, ignore_errors=True)
        for folder in FORMER_FOLDERS:
            for path in _entries(self._data / folder):
                if _is_older(path, _DEAD_MS):
                    _delete(path)


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _is_older(path: Path, age_ms: int) -> bool:
    with suppress(OSError):  # it may just have been deleted
        return path.stat().st_mtime * 1000 < clock.now_ms() - age_ms
    return False


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


class _PiecesFile(io.RawIOBase):
    """A file object over pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest, self._has_ended = pieces, b"", False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest and not self._has_ended:
            piece = next(self._pieces, None)
            self._rest, self._has_ended = piece or b"", piece is None
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
