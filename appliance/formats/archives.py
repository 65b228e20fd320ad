"""Zip archives: members read without trust into one file, nothing extracted to a path; and documents packed into one."""

import fnmatch
import re
import stat
import struct
import unicodedata
import zipfile
import zlib
from typing import Any

from .failing import ContentInvalid, ContentTooLarge
from .request import Request

LONGEST_PATH = 300
CHUNK = 1 << 20
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\:*?\"<>|]")
_BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError, OverflowError)
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)  # equal documents give equal bytes


def load() -> None:
    """Loads what the standard library would load when it meets a name in the old encoding of zip."""
    import encodings.cp437  # noqa: F401


def unpack(request: Request) -> dict[str, Any]:
    """Every file that fits `only` (patterns), one behind the other in the output; `files` says where each lies."""
    files: list[dict[str, Any]] = []
    try:
        with zipfile.ZipFile(request.content) as archive:
            members = _checked(archive.infolist(), request)
            at = 0
            for info in members:
                size = _copy(archive, info, request)
                files.append({"path": info.filename, "offset": at, "size": size})
                at += size
    except _BROKEN as error:
        raise ContentInvalid(f"the content is no zip archive that can be read ({str(error)[:100]}); pack it again") from error
    return {"files": files, "count": len(files)}


def _checked(members: list[zipfile.ZipInfo], request: Request) -> list[zipfile.ZipInfo]:
    """The files that are wanted.  One that is not acceptable refuses the archive, wanted or not: it was made to harm."""
    limits = request.limits
    if len(members) > limits.files:
        raise ContentTooLarge(f"the archive has {len(members)} members; at most {limits.files} are unpacked")
    if sum(info.file_size for info in members) > limits.bytes:
        raise ContentTooLarge(f"the archive has more than {limits.bytes >> 20} MB unpacked")
    seen: dict[str, str] = {}
    files: list[zipfile.ZipInfo] = []
    for info in members:
        if not info.filename:  # what stood before a NUL character; the library asks for its last letter
            _check_path(info.filename)
        if info.is_dir():
            _check_path(info.filename.rstrip("/"))
            continue
        _check_path(info.filename)
        _check_kind(info)
        other = seen.setdefault(unicodedata.normalize("NFKC", info.filename).casefold(), info.filename)
        if other != info.filename:
            raise ContentInvalid(
                f"the archive holds {info.filename[:100]!r} twice, or in two spellings that many systems take for one"
            )
        files.append(info)
    if len({info.filename for info in files}) != len(files):
        raise ContentInvalid("the archive holds a file twice")
    patterns = request.options.get("only")
    return files if patterns is None else [info for info in files if any(fnmatch.fnmatch(info.filename, each) for each in patterns)]


def _check_path(name: str) -> None:
    parts = name.split("/")
    if (
        len(name) > LONGEST_PATH
        or any(part in ("", ".", "..") or part != part.strip() for part in parts)
        or _FORBIDDEN.search(name)
        or not name.isprintable()
    ):
        raise ContentInvalid(f"the archive member {name[:100]!r} is not accepted: its path is not plain, or leads outside")


def _check_kind(info: zipfile.ZipInfo) -> None:
    name = info.filename[:100]
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
        raise ContentInvalid(f"the archive member {name!r} is a link or a device; only files are accepted")
    if info.flag_bits & 0x1:
        raise ContentInvalid(f"the archive member {name!r} is encrypted; pack it without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ContentInvalid(f"the archive member {name!r} is compressed by an unusual method; use deflate")


def _copy(archive: zipfile.ZipFile, info: zipfile.ZipInfo, request: Request) -> int:
    """The reader gives no more than the declared size, which has been added up before."""
    size = 0
    try:
        with archive.open(info) as member:
            while chunk := member.read(CHUNK):
                request.output.write(chunk)
                size += len(chunk)
    except _BROKEN as error:
        if getattr(error, "errno", None):
            raise  # the output, not the archive
        raise ContentInvalid(f"the archive member {info.filename[:100]!r} is damaged ({str(error)[:80]})") from error
    return size


def pack(request: Request) -> dict[str, Any]:
    """The inputs under `names`; a name that comes again gets a number."""
    taken: set[str] = set()
    names = []
    with zipfile.ZipFile(request.output, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for wanted, content in zip(request.options["names"], request.inputs, strict=True):
            name = _free_name(wanted, taken)
            names.append(name)
            info = zipfile.ZipInfo(name, _FIXED_TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            with archive.open(info, "w", force_zip64=True) as member:
                while chunk := content.read(CHUNK):
                    member.write(chunk)
    return {"names": names, "count": len(names)}


def _free_name(wanted: str, taken: set[str]) -> str:
    plain = _FORBIDDEN.sub("_", wanted.replace("/", "_")).strip(" .") or "document"
    stem, dot, suffix = plain[-200:].rpartition(".")
    name, number = plain[-200:], 2
    while name.casefold() in taken:
        name, number = f"{stem} ({number}){dot}{suffix}" if stem else f"{suffix} ({number})", number + 1
    taken.add(name.casefold())
    return name
