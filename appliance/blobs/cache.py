"""A bounded cache of small contents of a bucket, in a local folder that all processes with this data folder share.

A file is named after the place of its content, and a place after the sha256 of its content.  Nothing is cached or served whose
bytes have another sha256, so neither a crash nor a damaged disk can change what is delivered, and files need not be synced.
That check costs less than the request that it saves.
"""

import fcntl
import hashlib
import logging
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from appliance.core import clock

from .pieces import MemoryPieces, Pieces
from .receiving import Receiver
from .service import Places

log = logging.getLogger(__name__)
CACHE_FOLDER = "content-cache"
LARGEST_CONTENT = 1 << 20  # larger ones would displace many small ones, and their transfer takes longer than the request
FREE_BYTES = 1 << 30  # left on the disk for everything else
UNFINISHED_MS = 3_600_000  # after which an unfinished file has been left by a process that died
_BLOCK = 4096  # of the file system: what even the smallest file takes
_OWN = "+"  # begins the names of files that are no contents, as `quote` never does
_SIZE = "+size"
_PLACE = re.compile(r"[^/]+/[0-9a-f]{2}/([0-9a-f]{64})\.[0-9a-f]+")
_AT_ONCE = 500


@dataclass(frozen=True)
class _Entry:
    """A file of the cache: when it was last used (epoch ns), and the bytes that it takes."""

    used_ns: int
    size: int
    path: Path


class ContentCache:
    """Contents by their place, at most `most_bytes` together; the one that was used longest ago is deleted first.

    Errors of the disk are logged, and then count as a content that is not cached.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder, self._most = folder, most_bytes
        self._is_counted = self._is_failing = False

    def read(self, place: str) -> bytes | None:
        """The content, if it is cached undamaged."""
        digest, path = digest_of(place), self._folder / quote(place, safe="")
        if digest is None:
            return None
        try:
            with path.open("rb", buffering=0) as file:
                content = file.read()
                _mark_used(file.fileno())
        except FileNotFoundError:
            return None
        except OSError as error:
            self._failed(error)
            return None
        if hashlib.sha256(content).hexdigest() == digest:
            return content
        log.warning("A cached content was damaged and has been deleted.", extra={"fields": {"place": place}})
        self.discard(place)
        return None

    def store(self, place: str, content: bytes) -> None:
        """Caches a content, unless it is too large or is not the whole content of the place."""
        size = _size_on_disk(len(content))
        if len(content) > LARGEST_CONTENT or size > self._most or hashlib.sha256(content).hexdigest() != digest_of(place):
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if shutil.disk_usage(self._folder).free < FREE_BYTES + size:
                return
            self._write(self._folder / quote(place, safe=""), content, size)
        except OSError as error:
            self._failed(error)
        else:
            self._is_failing = False

    def discard(self, place: str) -> None:
        """Deletes the content, if it is cached."""
        try:
            (self._folder / quote(place, safe="")).unlink(missing_ok=True)
        except OSError as error:
            self._failed(error)

    def delete_unnamed(self, find_named: Callable[[Sequence[str]], set[str]]) -> int:
        """Deletes the contents of places that `find_named` does not return, and what crashes left; returns their number."""
        before_ns = (clock.now_ms() - UNFINISHED_MS) * 1_000_000
        unfinished = [each.path for each in self._entries() if each.path.name.startswith(_OWN) and each.used_ns < before_ns]
        places = [unquote(each.path.name) for each in self._entries() if not each.path.name.startswith(_OWN)]
        unnamed: list[str] = []
        for start in range(0, len(places), _AT_ONCE):
            part = places[start : start + _AT_ONCE]
            current = find_named(part)
            unnamed += [place for place in part if place not in current]
        for place in unnamed:
            self.discard(place)
        for path in unfinished:
            path.unlink(missing_ok=True)
        return len(unnamed) + len(unfinished)

    def _write(self, path: Path, content: bytes, size: int) -> None:
        """Writes the file completely before it gets its name, and its size before that: a crash can only make it too large."""
        draft = self._folder / f"{_OWN}{secrets.token_hex(16)}"
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0) as file:
                view = memoryview(content)
                while view:
                    view = view[file.write(view) :]
                _mark_used(file.fileno())
            with self._locked_size() as sizes:
                if not path.exists():
                    total = _read_size(sizes) if self._is_counted else None  # it may be older than a crash of the machine
                    if total is None or total + size > self._most:
                        total = self._make_room(size, draft)
                        self._is_counted = True
                    os.pwrite(sizes, b"%020d" % (total + size), 0)
                    draft.rename(path)
        finally:
            draft.unlink(missing_ok=True)

    @contextmanager
    def _locked_size(self) -> Iterator[int]:
        """The file with the size of all others, locked for all threads and processes; the lock ends with the process, too."""
        descriptor = os.open(self._folder / _SIZE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _make_room(self, size: int, draft: Path) -> int:
        """Deletes what was used longest ago, if there is no room, until an eighth is free, and at least `size`; returns the
        bytes of the files without the draft."""
        entries = sorted((each for each in self._entries() if each.path != draft), key=lambda each: each.used_ns, reverse=True)
        total = sum(each.size for each in entries)
        most = self._most if total + size <= self._most else self._most - max(size, self._most // 8)
        while entries and total > most:
            oldest = entries.pop()
            oldest.path.unlink(missing_ok=True)
            total -= oldest.size
        return total

    def _entries(self) -> list[_Entry]:
        """All files but that with the size."""
        try:
            with os.scandir(self._folder) as names:
                return [entry for each in names if each.name != _SIZE and (entry := _entry(each)) is not None]
        except FileNotFoundError:
            return []

    def _failed(self, error: OSError) -> None:
        if not self._is_failing:
            log.warning("Contents of the bucket cannot be cached.", extra={"fields": {"error": str(error)}})
        self._is_failing = True


class CachedPlaces:
    """Places whose small contents are cached; documented by `LocalPlaces`."""

    def __init__(self, places: Places, cache: ContentCache) -> None:
        self._places, self._cache, self.signer = places, cache, places.signer

    def receiver(self) -> Receiver:
        return self._places.receiver()

    def adopt(self, path: Path, place: str) -> None:
        self._places.adopt(path, place)

    def adopt_all(self, files: Sequence[tuple[Path, str]]) -> None:
        self._places.adopt_all(files)

    def holds(self, place: str, size: int) -> bool:
        return self._places.holds(place, size)

    def read(self, place: str, start: int, end: int) -> Pieces:
        """Reads from the cache if the content is there; else from the bucket, and caches what turns out to be whole."""
        content = self._cache.read(place)
        if content is not None:
            return MemoryPieces(content[start:end])
        pieces = self._places.read(place, start, end)
        if start > 0 or not 0 < end <= LARGEST_CONTENT:
            return pieces
        content = b"".join(pieces)
        self._cache.store(place, content)
        return MemoryPieces(content)

    def delete(self, place: str) -> None:
        self._places.delete(place)
        self._cache.discard(place)

    def walk(self) -> Iterator[tuple[str, int]]:
        return self._places.walk()

    def delete_incoming(self, before_ms: int) -> int:
        return self._places.delete_incoming(before_ms)

    def delete_copies(self, find_named: Callable[[Sequence[str]], set[str]]) -> None:
        self._cache.delete_unnamed(find_named)


def digest_of(place: str) -> str | None:
    """The sha256 of the content of a place, as its name says; None when it is not the place of a blob."""
    match = _PLACE.fullmatch(place)
    return match[1] if match else None


def _size_on_disk(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _mark_used(descriptor: int) -> None:
    now = clock.now_ms() * 1_000_000
    os.utime(descriptor, ns=(now, now))


def _read_size(descriptor: int) -> int | None:
    """The recorded size; None when there is none, or the file is damaged."""
    text = os.pread(descriptor, 21, 0)
    return int(text) if re.fullmatch(rb"\d{20}", text) else None


def _entry(entry: "os.DirEntry[str]") -> _Entry | None:
    try:
        status = entry.stat()
    except FileNotFoundError:  # deleted meanwhile
        return None
    return _Entry(status.st_mtime_ns, _size_on_disk(status.st_size), Path(entry.path))
