"""Archives of solution folders, read without trust: nothing is extracted, everything is bounded, links are refused."""

import gzip
import io
import re
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from appliance.core.errors import InvalidRequest, PayloadTooLarge, ValidationFailed

LARGEST_BYTES = 16 << 20  # a solution is text: what is larger does not belong into it
LARGEST_PATH = 300
_TAR_OVERHEAD = 2048  # header and padding of one member
_CHUNK = 1 << 16
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\:*?\"<>|]")
# What the readers of the standard library raise for bytes that make no sense (NotImplementedError is a RuntimeError).
_BROKEN = (zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError, OverflowError)
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class ArchiveLimits:
    """Most members, and most bytes of all of them unpacked."""

    files: int
    bytes: int = LARGEST_BYTES


def read_archive(data: bytes | BinaryIO, limits: ArchiveLimits) -> dict[str, bytes]:
    """The files of a zip or tar.gz by path; a single folder around everything is taken away.

    InvalidRequest when it is neither or broken, ValidationFailed that names a member which is not accepted
    (a link, a path that leads outside, a second one of the same name), PayloadTooLarge over the limits.
    """
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    head = file.read(4)
    file.seek(0)
    if head in (b"PK\x03\x04", b"PK\x05\x06"):
        members = _zip_members(file, limits)
    elif head[:2] == b"\x1f\x8b":
        members = _tar_members(file, limits)
    else:
        raise InvalidRequest("the body must be a zip or tar.gz archive of the solution folder")
    files: dict[str, bytes] = {}
    seen: dict[str, str] = {}
    for name, content in members:
        path = check_path(name)
        other = seen.setdefault(_folded(path), path)
        if path in files or other != path:
            raise ValidationFailed(f"the archive holds {path!r} twice, or in two spellings that many systems take for one")
        files[path] = content
    return _without_wrapper(files)


def check_path(name: str) -> str:
    """The path itself when it is relative, plain and stays inside; ValidationFailed names it otherwise."""
    parts = name.split("/")
    if (
        len(name) > LARGEST_PATH
        or any(part in ("", ".", "..") or part != part.strip() for part in parts)
        or _FORBIDDEN.search(name)
        or unicodedata.normalize("NFC", name) != name
        or not name.isprintable()
    ):
        raise ValidationFailed(f"the archive member {name[:100]!r} is not accepted: use plain relative paths without .. or \\")
    return name


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", path).casefold()


def _without_wrapper(files: dict[str, bytes]) -> dict[str, bytes]:
    roots = {path.partition("/")[0] for path in files}
    if len(roots) == 1 and all("/" in path for path in files):
        return {path.partition("/")[2]: content for path, content in files.items()}
    return files


def _too_large(limits: ArchiveLimits) -> PayloadTooLarge:
    return PayloadTooLarge(f"a solution has at most {limits.bytes >> 20} MiB unpacked; keep data and media out of it")


def _too_many(limits: ArchiveLimits) -> PayloadTooLarge:
    return PayloadTooLarge(f"the archive has more than {limits.files} members")


def _broken(error: Exception) -> InvalidRequest:
    return InvalidRequest(f"the archive cannot be read ({str(error)[:100]}); pack it again")


def _zip_members(file: BinaryIO, limits: ArchiveLimits) -> Iterator[tuple[str, bytes]]:
    left = limits.bytes
    try:
        with zipfile.ZipFile(file) as archive:
            if len(archive.infolist()) > limits.files:
                raise _too_many(limits)
            for info in archive.infolist():
                if info.is_dir():
                    check_path(info.filename.rstrip("/"))
                    continue
                _refuse_special(info)
                with archive.open(info) as member:
                    content = member.read(left + 1)
                left -= len(content)
                if left < 0:
                    raise _too_large(limits)
                yield info.filename, content
    except (zipfile.BadZipFile, *_BROKEN) as error:
        raise _broken(error) from error


def _refuse_special(info: zipfile.ZipInfo) -> None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise ValidationFailed(f"the archive member {info.filename[:100]!r} is a link or a device; only files are accepted")
    if info.flag_bits & 0x1:
        raise ValidationFailed(f"the archive member {info.filename[:100]!r} is encrypted; send it in the clear")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValidationFailed(f"the archive member {info.filename[:100]!r} is compressed by an unusual method; use deflate")


def _tar_members(file: BinaryIO, limits: ArchiveLimits) -> Iterator[tuple[str, bytes]]:
    plain = _gunzip(file, limits)
    try:
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
            for count, member in enumerate(archive, 1):
                if count > limits.files:
                    raise _too_many(limits)
                if member.isdir():
                    if member.name != ".":
                        check_path(member.name.removeprefix("./").rstrip("/"))
                    continue
                if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
                    raise ValidationFailed(f"the archive member {member.name[:100]!r} is no plain file; only files are accepted")
                opened = archive.extractfile(member)
                yield member.name.removeprefix("./"), opened.read() if opened else b""
    except (tarfile.TarError, *_BROKEN) as error:
        raise _broken(error) from error


def _gunzip(file: BinaryIO, limits: ArchiveLimits) -> bytes:
    """Unpacked in pieces, so that a bomb is noticed when it is a little too large and not when memory is gone."""
    most = limits.bytes + limits.files * _TAR_OVERHEAD
    parts: list[bytes] = []
    size = 0
    try:
        with gzip.GzipFile(fileobj=file) as stream:
            while part := stream.read(_CHUNK):
                size += len(part)
                if size > most:
                    raise _too_large(limits)
                parts.append(part)
    except _BROKEN as error:
        raise _broken(error) from error
    return b"".join(parts)


def write_zip(files: Mapping[str, bytes]) -> bytes:
    """A zip of the files; equal files give equal bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(files):
            info = zipfile.ZipInfo(path, _FIXED_TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, files[path])
    return out.getvalue()
