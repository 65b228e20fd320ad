"""Reads archives of solution folders into memory, and writes them."""

import io
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from appliance.blobs import ArchiveLimits as Limits
from appliance.blobs import check_path, read_members

__all__ = ["LARGEST_BYTES", "ArchiveLimits", "check_path", "read_archive", "write_zip"]
LARGEST_BYTES = 16 << 20  # solutions consist of text; larger files do not belong in them
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class ArchiveLimits(Limits):
    """The maximum number of members, and of unpacked bytes in total."""

    bytes: int = LARGEST_BYTES
    advice: str = "; keep data and media out of a solution"


def read_archive(data: bytes | BinaryIO, limits: ArchiveLimits) -> dict[str, bytes]:
    """The files of a zip, tar or tar.gz by path; a single folder around everything is removed.

    InvalidRequest if it is none of these or damaged, ValidationFailed for a member that is not allowed (a link, a path that
    leads outside, a duplicate name), PayloadTooLarge above the limits.
    """
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    return _without_wrapper({member.path: member.read() for member in read_members(file, limits)})


def _without_wrapper(files: dict[str, bytes]) -> dict[str, bytes]:
    roots = {path.partition("/")[0] for path in files}
    if len(roots) == 1 and all("/" in path for path in files):
        return {path.partition("/")[2]: content for path, content in files.items()}
    return files


def write_zip(files: Mapping[str, bytes]) -> bytes:
    """A zip of the files; the same files always give the same bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(files):
            info = zipfile.ZipInfo(path, _FIXED_TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, files[path])
    return out.getvalue()
