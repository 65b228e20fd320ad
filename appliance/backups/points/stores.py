"""Where archives of points are: files in a folder or objects in a bucket, each complete or absent."""

import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from appliance.backups.buckets.addresses import is_bucket
from appliance.backups.parts import sync_folder
from appliance.backups.problems import full_disks
from appliance.core.config import Config
from appliance.core.errors import NotFound
from appliance.core.sentences import Sentence

_DRAFT = ".draft-"


@dataclass(frozen=True)
class StoredFile:
    """A stored file: its name with slashes, its size, and when it was written (epoch ms)."""

    name: str
    size: int
    written_at: int


class PointStore(Protocol):
    """A store of files by name."""

    @property
    def address(self) -> str: ...
    def put(self, name: str, pieces: Iterable[bytes]) -> int: ...
    def open(self, name: str) -> BinaryIO: ...
    def has(self, name: str) -> bool: ...
    def list(self, prefix: str = "") -> Iterator[StoredFile]: ...
    def delete(self, name: str) -> None: ...
    def tidy(self, prefix: str) -> None: ...


class FolderStore:
    """Files below a folder, which must exist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def address(self) -> str:
        return str(self._folder)

    def put(self, name: str, pieces: Iterable[bytes]) -> int:
        """Store a file, durable when this returns its size; NotFound without the folder, StorageFull."""
        if not self._folder.is_dir():
            raise NotFound(Sentence("the folder %(folder)s does not exist; create it, or mount its disk", folder=self._folder))
        path = self._folder / name
        draft = path.with_name(f"{_DRAFT}{secrets.token_hex(8)}")
        self._make_folders(path.parent)
        size = 0
        try:
            with full_disks(), os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                for piece in pieces:
                    size += file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            draft.rename(path)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(path.parent)
        return size

    def _make_folders(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folders(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(folder.parent)

    def open(self, name: str) -> BinaryIO:
        """The file, to read it; NotFound."""
        try:
            return (self._folder / name).open("rb")
        except FileNotFoundError as error:
            raise NotFound(Sentence("%(name)s is missing in %(place)s", name=name, place=self.address)) from error

    def has(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return (self._folder / name).is_file()

    def list(self, prefix: str = "") -> Iterator[StoredFile]:
        """The files below a folder of the store, without drafts."""
        for folder, _, names in os.walk(self._folder / prefix):
            for name in names:
                path = Path(folder, name)
                if name.startswith(_DRAFT):
                    continue
                try:
                    about = path.stat()
                except FileNotFoundError:  # deleted meanwhile
                    continue
                yield StoredFile(path.relative_to(self._folder).as_posix(), about.st_size, about.st_mtime_ns // 1_000_000)

    def delete(self, name: str) -> None:
        """Delete a file, if there is one, and its folders once they are empty."""
        path = self._folder / name
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == self._folder or any(folder.iterdir()):
                return
            folder.rmdir()

    def tidy(self, prefix: str) -> None:
        """Delete the drafts that killed processes have left below a folder of the store."""
        for path in (self._folder / prefix).rglob(f"{_DRAFT}*"):
            path.unlink(missing_ok=True)


def open_point_store(config: Config, place: str, *, retries: int = 3) -> PointStore:
    """The store of a folder or an `s3://` address."""
    if not is_bucket(place):
        return FolderStore(Path(place))
    from .bucket_store import BucketStore  # its library takes 5 MB, and most appliances have no bucket

    return BucketStore(config, place, retries=retries)


def read_all(store: PointStore, name: str) -> bytes:
    """A small file; NotFound."""
    with store.open(name) as file:
        return file.read()
