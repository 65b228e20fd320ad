"""Reads untrusted archives (zip, tar, tar.gz) one member at a time, within limits and without extracting to disk.

Refused, naming the member: links and devices, paths that are unsafe or misleading, names that some systems treat as equal,
encrypted members, unusual compression, overlapping members; and archives with too many members, too much unpacked data or
a suspicious compression ratio.  An archive inside an archive is treated as an ordinary file.
"""

import gzip
import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from appliance.core.errors import ApplianceError, InvalidRequest, PayloadTooLarge, ValidationFailed
from appliance.core.sentences import Sentence

from .paths import Paths, check_path

RATIO, RATIO_FREE = 200, 16 << 20  # the highest ratio of unpacked to packed size, and the unpacked size below which any is allowed
CHUNK = 1 << 16
_BLOCK = 512
_TAR_OVERHEAD = 4 * _BLOCK  # headers and padding of one member
_MAX_TAR_EXTENSION = 1 << 16  # a long name, or the attributes of a member
_DIRECTORY_ENTRY = 384  # of a zip's directory, per member
# The exceptions of the standard library's readers for invalid data (NotImplementedError is a RuntimeError).
_READ_ERRORS = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    RuntimeError,
    OverflowError,
)


@dataclass(frozen=True)
class ArchiveLimits:
    """The maximum number of members and of unpacked bytes in total; `advice` is appended to the error about the size."""

    files: int
    bytes: int
    advice: str = ""

    def too_many(self) -> PayloadTooLarge:
        return PayloadTooLarge(Sentence("the archive has more than %(files)s members", files=self.files))

    def too_large(self) -> PayloadTooLarge:
        return PayloadTooLarge(
            Sentence("the archive has more than %(bytes)s MiB unpacked%(advice)s", bytes=self.bytes >> 20, advice=self.advice)
        )


@dataclass(frozen=True)
class Member:
    """A file of an archive; its `pieces` must be consumed before the next member is requested."""

    path: str
    pieces: Iterator[bytes]

    def read(self) -> bytes:
        return b"".join(self.pieces)


def read_members(file: BinaryIO, limits: ArchiveLimits) -> Iterator[Member]:
    """Yields the files of a zip, tar or tar.gz in a seekable file.

    Raises InvalidRequest for a damaged or other file, ValidationFailed naming a member that is refused, and PayloadTooLarge
    beyond the limits.  Errors are raised when they are found, after earlier members have been yielded.
    """
    file.seek(0)
    head = file.read(_BLOCK)
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    account = _Budget(limits, size)
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        members = _zip_members(file, account)
    elif head[:2] == b"\x1f\x8b":
        members = _tar_members(gzip.GzipFile(fileobj=file), account)
    elif head[257:262] == b"ustar":
        members = _tar_members(file, account)
    else:
        raise InvalidRequest("the body must be a zip, tar or tar.gz archive")
    paths = Paths()
    for name, pieces in members:
        yield Member(paths.add(name), pieces)


class _Budget:
    """Counts what has been unpacked so far and enforces the limits."""

    def __init__(self, limits: ArchiveLimits, packed: int) -> None:
        self.limits = limits
        self._packed = packed
        self._members = 0
        self._unpacked = 0

    def member(self) -> None:
        self._members += 1
        if self._members > self.limits.files:
            raise self.limits.too_many()

    def take(self, name: str, size: int) -> None:
        """Counts `size` more unpacked bytes of a member."""
        self._unpacked += size
        if self._unpacked > self.limits.bytes:
            raise self.limits.too_large()
        if self._unpacked > max(RATIO_FREE, RATIO * self._packed):
            raise PayloadTooLarge(Sentence(
                "with the member %(name)s the archive unpacks to more than %(ratio)s times its size",
                name=repr(name[:100]), ratio=RATIO,
            ))


def _unreadable(error: Exception, name: str | None = None) -> InvalidRequest:
    where = Sentence("the archive member %(name)s", name=repr(name[:100])) if name else "the archive"
    return InvalidRequest(Sentence("%(where)s cannot be read (%(error)s); pack it again", where=where, error=str(error)[:100]))


# -- zip


class _Directory(io.RawIOBase):
    """Wraps the file while its directory is read, so that an oversized directory is never loaded into memory."""

    def __init__(self, file: BinaryIO, limits: ArchiveLimits) -> None:
        self._file = file
        self._limits = limits
        self.opening = True

    def read(self, size: int | None = -1) -> bytes:
        most = (1 << 17) + self._limits.files * _DIRECTORY_ENTRY
        if self.opening and size is not None and size > most:
            raise self._limits.too_many()
        data = self._file.read(most + 1 if size is None or size < 0 else size)
        if self.opening and data.count(b"PK\x01\x02") > self._limits.files + 1:
            raise self._limits.too_many()
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True


def _zip_members(file: BinaryIO, account: _Budget) -> Iterator[tuple[str, Iterator[bytes]]]:
    guarded = _Directory(file, account.limits)
    try:
        archive = zipfile.ZipFile(guarded)
    except ApplianceError:
        raise
    except _READ_ERRORS as error:
        raise _unreadable(error) from error
    guarded.opening = False
    with archive:
        if len(archive.infolist()) > account.limits.files:
            raise account.limits.too_many()
        _refuse_overlaps(archive.infolist())
        for info in archive.infolist():
            account.member()
            if not info.filename:  # empty before a NUL character, which makes the library fail
                check_path(info.orig_filename)
            _refuse_special(info)
            if info.is_dir():
                check_path(info.orig_filename.rstrip("/"))
                continue
            yield info.orig_filename, _unzip(archive, info, account)


def _refuse_overlaps(members: list[zipfile.ZipInfo]) -> None:
    """Refuses members that share bytes: they can unpack to 100,000 times the archive although each looks normal."""
    end = 0
    for info in sorted(members, key=lambda each: each.header_offset):
        if info.header_offset < end:
            raise ValidationFailed(
                Sentence("the archive member %(filename)s overlaps another; pack it again", filename=repr(info.filename[:100]))
            )
        end = info.header_offset + 30 + len(info.orig_filename) + info.compress_size


def _refuse_special(info: zipfile.ZipInfo) -> None:
    name = info.filename[:100]
    if stat.S_IFMT(info.external_attr >> 16) not in ((0, stat.S_IFDIR) if info.is_dir() else (0, stat.S_IFREG)):
        raise ValidationFailed(
            Sentence("the archive member %(name)s is a link or a device; only files are accepted", name=repr(name))
        )
    if info.flag_bits & 0x2041:  # encrypted, strongly encrypted, with a masked directory
        raise ValidationFailed(Sentence("the archive member %(name)s is encrypted; send it unencrypted", name=repr(name)))
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValidationFailed(
            Sentence("the archive member %(name)s uses an unsupported compression method; use deflate", name=repr(name))
        )


def _unzip(archive: zipfile.ZipFile, info: zipfile.ZipInfo, account: _Budget) -> Iterator[bytes]:
    try:
        with archive.open(info) as member:
            while piece := member.read(CHUNK):
                account.take(info.filename, len(piece))
                yield piece
    except ApplianceError:
        raise
    except _READ_ERRORS as error:
        raise _unreadable(error, info.filename) from error


# -- tar


class _Blocks:
    """Reads a tar sequentially; skipped data of a member is counted too."""

    def __init__(self, source: BinaryIO | gzip.GzipFile, account: _Budget) -> None:
        self._source = source
        self._account = account
        self._overhead = account.limits.files * _TAR_OVERHEAD
        self.name = "its beginning"

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes; raises InvalidRequest when the archive ends before."""
        data = self._some(size)
        if len(data) < size:
            raise InvalidRequest(Sentence("the archive ends in the middle, at %(name)s; pack it again", name=repr(self.name[:100])))
        return data

    def _some(self, size: int) -> bytes:
        parts = []
        while size > 0 and (part := self._read(min(size, CHUNK))):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _read(self, size: int) -> bytes:
        try:
            return self._source.read(size)
        except _READ_ERRORS as error:
            raise _unreadable(error, None if self.name == "its beginning" else self.name) from error

    def header(self) -> bytes:
        """The next header block; empty at the end, after which only zeros may follow."""
        self._overhead -= _BLOCK
        if self._overhead < 0:
            raise self._account.limits.too_many()
        block = self._some(_BLOCK)
        if len(block) == _BLOCK and any(block):
            return block
        if len(block) < _BLOCK:
            raise InvalidRequest(
                Sentence("the archive is incomplete: it ends at %(name)s; send all of it", name=repr(self.name[:100]))
            )
        trailing = 0
        while block:
            if any(block):
                raise InvalidRequest("the archive has data after its end; pack it again")
            trailing += len(block)
            if trailing > 1 << 20:
                raise self._account.limits.too_large()
            block = self._some(CHUNK)
        return b""

    def pieces(self, size: int) -> Iterator[bytes]:
        """The content of a member; also skips the padding after it."""
        remaining = size
        while remaining:
            piece = self.read(min(CHUNK, remaining))
            self._account.take(self.name, len(piece))
            remaining -= len(piece)
            yield piece
        self.read(-size % _BLOCK)


def _tar_members(source: BinaryIO | gzip.GzipFile, account: _Budget) -> Iterator[tuple[str, Iterator[bytes]]]:
    blocks = _Blocks(source, account)
    attributes: dict[str, str] = {}
    while block := blocks.header():
        info = _parse_header(block, blocks.name)
        if info.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE):
            attributes |= _read_extension(blocks, info)
            continue
        account.member()
        name = attributes.get("path", info.name)
        size = int(attributes["size"]) if attributes.get("size", "").isdecimal() else info.size
        sparse = any(key.startswith("GNU.sparse") for key in attributes)
        attributes = {}
        blocks.name = name
        if info.type == tarfile.DIRTYPE and not size:
            if name.rstrip("/") not in (".", ""):
                check_path(name.removeprefix("./").rstrip("/"))
            continue
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or sparse:
            raise ValidationFailed(
                Sentence("the archive member %(name)s is not a regular file; only files are accepted", name=repr(name[:100]))
            )
        pieces = blocks.pieces(size)
        yield name.removeprefix("./"), pieces
        for _ in pieces:  # skips what the caller did not read
            pass


def _parse_header(block: bytes, after: str) -> tarfile.TarInfo:
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise InvalidRequest(Sentence(
            "the archive has no valid header after %(after)s (%(error)s); pack it again",
            after=repr(after[:100]), error=str(error)[:80],
        )) from error
    if info.size < 0:
        raise InvalidRequest(Sentence("the archive member %(name)s has a negative size; pack it again", name=repr(info.name[:100])))
    return info


def _read_extension(blocks: _Blocks, info: tarfile.TarInfo) -> dict[str, str]:
    """The attributes that a GNU or POSIX extension header sets for the next member; {} for a global header, as git writes."""
    if info.size > _MAX_TAR_EXTENSION:
        raise ValidationFailed(Sentence(
            "the archive has a member after %(name)s with more than 64 KiB of attributes; pack it again",
            name=repr(blocks.name[:100]),
        ))
    data = blocks.read(info.size)
    blocks.read(-info.size % _BLOCK)
    try:
        if info.type == tarfile.GNUTYPE_LONGNAME:
            return {"path": data.rstrip(b"\0").decode("utf8")}
        attributes = _parse_records(data)
    except ValueError as error:
        raise _unreadable(error, blocks.name) from error
    if info.type == tarfile.XGLTYPE:
        if attributes.keys() & {"path", "size", "linkpath"}:
            raise ValidationFailed("the archive sets one name or size for all of its members; pack it again")
        return {}
    return attributes


def _parse_records(data: bytes) -> dict[str, str]:
    """Parses consecutive records `<length> <key>=<value>\\n`; raises ValueError."""
    records: dict[str, str] = {}
    while data.strip(b"\0"):
        length = int(data[: data.index(b" ")])
        record = data[:length]
        key, equals, value = record[record.index(b" ") + 1 : -1].partition(b"=")
        if length > len(data) or record[-1:] != b"\n" or not equals:
            raise ValueError("a member has an invalid attribute")
        records[key.decode("utf8")] = value.decode("utf8")
        data = data[length:]
    return records
