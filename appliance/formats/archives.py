"""Zip archives: unpacks untrusted members into a single file, without extracting to paths, and packs documents."""

import fnmatch
import re
import stat
import struct
import unicodedata
import zipfile
import zlib
from typing import Any

from .errors import ContentInvalid, ContentTooLarge
from .request import Request

MAX_PATH_LENGTH = 300
CHUNK = 1 << 20
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\:*?\"<>|]")
_READ_ERRORS = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError, OverflowError)
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)  # A fixed time makes the bytes of an archive reproducible.


def load() -> None:
    """Load the legacy encoding of zip names, which the standard library would otherwise import on demand."""
    import encodings.cp437  # noqa: F401


def unpack(request: Request) -> dict[str, Any]:
    """Write every file that matches the patterns in `only` to the output, one after another; `files` has their offsets."""
    files: list[dict[str, Any]] = []
    try:
        with zipfile.ZipFile(request.content) as archive:
            members = _select_members(archive.infolist(), request)
            at = 0
            for info in members:
                size = _copy(archive, info, request)
                files.append({"path": info.filename, "offset": at, "size": size})
                at += size
    except _READ_ERRORS as error:
        raise ContentInvalid(f"the content is not a readable zip archive ({str(error)[:100]}); create the archive again") from error
    return {"files": files, "count": len(files)}


def _select_members(members: list[zipfile.ZipInfo], request: Request) -> list[zipfile.ZipInfo]:
    """The selected files.  A single unacceptable member, selected or not, rejects the archive, which is likely malicious."""
    limits = request.limits
    if len(members) > limits.files:
        raise ContentTooLarge(f"the archive has {len(members)} members; the maximum is {limits.files}")
    if sum(info.file_size for info in members) > limits.bytes:
        raise ContentTooLarge(f"the archive unpacks to more than {limits.bytes >> 20} MB")
    seen: dict[str, str] = {}
    files: list[zipfile.ZipInfo] = []
    for info in members:
        if not info.filename:  # The library cuts a name at a NUL character; `is_dir` fails on an empty name.
            _check_path(info.filename)
        if info.is_dir():
            _check_path(info.filename.rstrip("/"))
            continue
        _check_path(info.filename)
        _check_type(info)
        other = seen.setdefault(unicodedata.normalize("NFKC", info.filename).casefold(), info.filename)
        if other != info.filename:
            raise ContentInvalid(
                f"the archive contains {info.filename[:100]!r} twice, or in two spellings that many systems treat as the same"
            )
        files.append(info)
    if len({info.filename for info in files}) != len(files):
        raise ContentInvalid("the archive contains a file twice")
    patterns = request.options.get("only")
    return files if patterns is None else [info for info in files if any(fnmatch.fnmatch(info.filename, each) for each in patterns)]


def _check_path(name: str) -> None:
    parts = name.split("/")
    if (
        len(name) > MAX_PATH_LENGTH
        or any(part in ("", ".", "..") or part != part.strip() for part in parts)
        or _FORBIDDEN.search(name)
        or not name.isprintable()
    ):
        raise ContentInvalid(
            f"the archive member {name[:100]!r} is not accepted: its path is absolute, leads outside the archive or "
            "contains forbidden characters"
        )


def _check_type(info: zipfile.ZipInfo) -> None:
    name = info.filename[:100]
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
        raise ContentInvalid(f"the archive member {name!r} is a link or a device; only files are accepted")
    if info.flag_bits & 0x1:
        raise ContentInvalid(f"the archive member {name!r} is encrypted; create the archive without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ContentInvalid(f"the archive member {name!r} uses an unsupported compression method; use deflate")


def _copy(archive: zipfile.ZipFile, info: zipfile.ZipInfo, request: Request) -> int:
    """Copy a member to the output; the reader never returns more than the declared size, which was checked before."""
    size = 0
    try:
        with archive.open(info) as member:
            while chunk := member.read(CHUNK):
                request.output.write(chunk)
                size += len(chunk)
    except _READ_ERRORS as error:
        if getattr(error, "errno", None):
            raise  # The error comes from writing the output.
        raise ContentInvalid(f"the archive member {info.filename[:100]!r} is damaged ({str(error)[:80]})") from error
    return size


def pack(request: Request) -> dict[str, Any]:
    """Pack the inputs under `names`; a repeated name gets a number."""
    used_names: set[str] = set()
    names = []
    with zipfile.ZipFile(request.output, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for requested_name, content in zip(request.options["names"], request.inputs, strict=True):
            name = _unique_name(requested_name, used_names)
            names.append(name)
            info = zipfile.ZipInfo(name, _FIXED_TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            with archive.open(info, "w", force_zip64=True) as member:
                while chunk := content.read(CHUNK):
                    member.write(chunk)
    return {"names": names, "count": len(names)}


def _unique_name(requested_name: str, used_names: set[str]) -> str:
    plain = _FORBIDDEN.sub("_", requested_name.replace("/", "_")).strip(" .") or "document"
    stem, dot, suffix = plain[-200:].rpartition(".")
    name, number = plain[-200:], 2
    while name.casefold() in used_names:
        name, number = f"{stem} ({number}){dot}{suffix}" if stem else f"{suffix} ({number})", number + 1
    used_names.add(name.casefold())
    return name
