"""The file format of backups: a tar stream, compressed by Zstandard, encrypted if there is a passphrase, manifest last.

Without a passphrase `tar --zstd -tf` lists it.  The manifest lists every part except the contents of documents and
WebApps, which the database lists by place and SHA-256.
"""

import hashlib
import io
import json
import os
import secrets
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, Protocol, cast

import zstandard

from appliance.core.errors import AlreadyExists, StorageFull
from appliance.core.sentences import Sentence

from .envelope import MAGIC, OpeningReader, SealingWriter
from .problems import BackupInvalid, full_disks

MANIFEST = "manifest.json"
MOST_MANIFEST = 64 << 20
PIECE = 1 << 20
_READ_AHEAD = 4 * PIECE  # read in addition to the parts: headers and the reader's buffer
_SPARE = 64 << 20  # disk space left free for other processes
_ZSTD = b"\x28\xb5\x2f\xfd"


class BackupSource(Protocol):
    """A file on a disk, which is a `Path`, or an object in a bucket; printed, it is its path or address."""

    @property
    def name(self) -> str: ...
    def open(self, mode: Literal["rb"]) -> io.BufferedReader: ...


@dataclass(frozen=True)
class Part:
    """The name, size and digest of one part."""

    name: str
    size: int
    sha256: str


class PartsWriter:
    """Writes the parts of a file one after the other."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = _Counting(target)
        # Not tarfile's streaming mode, which also writes when it is garbage-collected.
        self._tar = tarfile.open(fileobj=cast(BinaryIO, self._target), mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115

    def add(self, name: str, size: int, pieces: Iterable[bytes]) -> Part:
        """Writes a part whose size is known."""
        about = tarfile.TarInfo(name)
        about.size, about.mode = size, 0o600
        source = _Pieces(pieces)
        self._tar.addfile(about, cast(BinaryIO, source))
        self._tar.members.clear()  # type: ignore[attr-defined]  # it would keep every part in memory
        return Part(name, size, source.digest.hexdigest())

    def add_file(self, name: str, path: Path) -> Part:
        """Writes a file as a part."""
        with path.open("rb") as file:
            return self.add(name, os.fstat(file.fileno()).st_size, iter(lambda: file.read(PIECE), b""))

    def add_bytes(self, name: str, content: bytes) -> Part:
        """Writes a small part."""
        return self.add(name, len(content), [content])

    def finish(self, manifest: dict[str, Any]) -> None:
        """Writes the manifest, which ends the file."""
        self.add_bytes(MANIFEST, json.dumps(manifest, ensure_ascii=False, indent=1).encode())
        self._tar.close()


class _Counting:
    """The write-only stream that tarfile needs, with the methods of a file."""

    def __init__(self, target: BinaryIO) -> None:
        self._target, self._written = target, 0

    def write(self, data: bytes) -> int:
        self._target.write(data)
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written


class _Pieces:
    """Reads pieces like a file and computes their digest."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self._buffer, self.digest = iter(pieces), b"", hashlib.sha256()

    def read(self, size: int) -> bytes:
        while len(self._buffer) < size and (piece := next(self._pieces, b"")):
            self._buffer += piece
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        self.digest.update(data)
        return data


@contextmanager
def new_file(path: Path, passphrase: str | None) -> Iterator[PartsWriter]:
    """Yields the writer of a new file, which gets its name when the block succeeds and is deleted otherwise.

    Raises AlreadyExists instead of overwriting a file, and StorageFull.
    """
    if path.exists():
        raise AlreadyExists(
            Sentence("%(path)s exists already and is not overwritten; name another file, or move it away", path=path)
        )
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with full_disks(), os.fdopen(descriptor, "wb") as file:
            sealing = SealingWriter(file, passphrase) if passphrase else None
            target = cast(BinaryIO, sealing or file)
            with zstandard.ZstdCompressor(level=3, write_checksum=True).stream_writer(target, closefd=False) as packed:
                yield PartsWriter(cast(BinaryIO, packed))
            if sealing is not None:
                sealing.finish()
            file.flush()
            os.fsync(file.fileno())
        name_file(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def name_file(draft: Path, path: Path) -> None:
    """Gives the file its final name durably; raises AlreadyExists when that is in use.  The draft's name may remain."""
    try:
        os.link(draft, path)
    except FileExistsError as error:
        raise AlreadyExists(
            Sentence("%(path)s exists already and is not overwritten; name another file, or move it away", path=path)
        ) from error
    except OSError:  # a file system without links
        if path.exists():
            raise AlreadyExists(
                Sentence("%(path)s exists already and is not overwritten; name another file, or move it away", path=path)
            ) from None
        draft.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_sealed(path: BackupSource) -> bool:
    """Whether the file is encrypted; raises BackupInvalid when it is not a backup or export."""
    with path.open("rb") as file:
        return _is_sealed(file.read(len(MAGIC)), path)


def _is_sealed(start: bytes, path: BackupSource) -> bool:
    if start == MAGIC:
        return True
    if start.startswith(_ZSTD):
        return False
    raise BackupInvalid(
        Sentence("%(path)s is not a backup or an export; choose a file created by `gos backup` or `gos tenant export`", path=path)
    )


@dataclass(frozen=True)
class OpenPart:
    """A part being read; `pieces` must be consumed before the next part."""

    name: str
    size: int
    pieces: Iterator[bytes]


@contextmanager
def parts_of(path: BackupSource, passphrase: str | None) -> Iterator[Iterator[OpenPart]]:
    """Yields the parts of a file in order; raises BackupInvalid when the file is damaged."""
    with path.open("rb") as file, parts_in(file, path, passphrase) as parts:
        yield parts


@contextmanager
def parts_in(file: io.BufferedReader, path: BackupSource, passphrase: str | None) -> Iterator[Iterator[OpenPart]]:
    """The same for an open file, read once from its start; `path` is its name in errors."""
    sealed = _is_sealed(file.peek(len(MAGIC))[: len(MAGIC)], path)
    if sealed and not passphrase:
        raise BackupInvalid(
            Sentence("%(path)s is encrypted; give its passphrase with --passphrase-file FILE or GOS_BACKUP_PASSPHRASE", path=path)
        )
    with full_disks():
        source = cast(BinaryIO, OpeningReader(file, passphrase or "")) if sealed else file
        try:
            with (
                zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=False) as packed,
                tarfile.open(fileobj=cast(BinaryIO, bounded := _Bounded(packed)), mode="r|", bufsize=PIECE) as tar,
            ):
                yield _members(tar, bounded)
        except (tarfile.TarError, zstandard.ZstdError, EOFError) as error:
            raise BackupInvalid(Sentence("%(path)s is damaged or incomplete; use another copy of it", path=path)) from error


class _Bounded:
    """A stream with a read limit, because a crafted header could demand any amount of memory."""

    def __init__(self, source: Any) -> None:
        self._source, self.left = source, _READ_AHEAD

    def read(self, size: int) -> bytes:
        piece: bytes = self._source.read(size)
        self.left -= len(piece)
        if self.left < 0:
            raise BackupInvalid("the file has a header that is too large; do not use this file")
        return piece


def _members(tar: tarfile.TarFile, packed: _Bounded) -> Iterator[OpenPart]:
    while (about := tar.next()) is not None:
        tar.members.clear()  # type: ignore[attr-defined]  # it would keep every part in memory
        name = PurePosixPath(about.name)
        if not about.isreg() or about.issparse() or name.is_absolute() or ".." in name.parts or str(name) != about.name:
            raise BackupInvalid(
                Sentence("the part %(name)s of the file is invalid; do not use this file", name=repr(about.name[:80]))
            )
        packed.left = about.size + _READ_AHEAD
        yield OpenPart(about.name, about.size, _pieces_of(tar, about))
        packed.left = _READ_AHEAD
    while packed.read(PIECE):  # to the end, where the checksum is
        continue


def _pieces_of(tar: tarfile.TarFile, about: tarfile.TarInfo) -> Iterator[bytes]:
    file = tar.extractfile(about)
    if file is None:
        return
    left = about.size
    while left:
        piece = file.read(min(PIECE, left))
        if not piece:
            raise BackupInvalid("the backup is damaged or incomplete; use another copy of it")
        left -= len(piece)
        yield piece


def read_small(part: OpenPart, most: int = MOST_MANIFEST) -> bytes:
    """All bytes of a part; raises BackupInvalid when it has more than `most`."""
    if part.size > most:
        raise BackupInvalid(Sentence("the part %(name)s is too large; do not use this file", name=part.name))
    return b"".join(part.pieces)


def store_part(part: OpenPart, target: Path) -> Part:
    """Writes a part to a new file readable only by its owner; raises BackupInvalid when the part occurs twice."""
    digest = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if part.size > shutil.disk_usage(target.parent).free - _SPARE:
        raise StorageFull(Sentence(
            "the part %(name)s (%(size)s MiB) does not fit on the disk; free some space. Nothing was changed",
            name=part.name[:80], size=part.size >> 20,
        ))
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise BackupInvalid(
            Sentence("the part %(name)s occurs twice; use another copy of the file", name=part.name[:80])
        ) from error
    with os.fdopen(descriptor, "wb") as file:
        for piece in part.pieces:
            digest.update(piece)
            file.write(piece)
    return Part(part.name, part.size, digest.hexdigest())


def digest_of(part: OpenPart) -> Part:
    """Reads a part only to compute its size and digest."""
    digest = hashlib.sha256()
    for piece in part.pieces:
        digest.update(piece)
    return Part(part.name, part.size, digest.hexdigest())


def parse_manifest(content: bytes) -> dict[str, Any]:
    """Parses the manifest; raises BackupInvalid when it is not one."""
    with suppress(ValueError, io.UnsupportedOperation):
        manifest = json.loads(content)
        if isinstance(manifest, dict) and isinstance(manifest.get("format"), int):
            return manifest
    raise BackupInvalid("the manifest of the backup cannot be read; use another copy of it")
