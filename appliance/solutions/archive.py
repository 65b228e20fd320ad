"""Archives of solution folders: read into memory, and written."""

import io
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from appliance.blobs import ArchiveLimits as Limits
from appliance.blobs import check_path, read_members

__all__ = ["LARGEST_BYTES", "ArchiveLimits", "check_path", "read_archive", "write_zip"]
LARGEST_BYTES = 16 << 20  # a solution is text: what is larger does not belong into it
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class ArchiveLimits(Limits):
    """Most members, and most bytes of all of them unpacked."""

    bytes: int = LARGEST_BYTES
    advice: str = "; keep data and media out of a solution"


def read_archive(data: bytes | BinaryIO, limits: ArchiveLimits) -> dict[str, bytes]:
    """The files of a zip, tar or tar.gz by path; a single folder around everything is taken away.

    InvalidRequest when it is neither or broken, ValidationFailed that names a member which is not accepted
    (a link, a path that leads outside, a second one of the same name), PayloadTooLarge over the limits.
    """
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    return _without_wrapper({member.path: member.read() for member in read_members(file, limits)})


def _without_wrapper(files: dict[str, bytes]) -> dict[str, bytes]:
    roots = {path.partition("/")[0] for path in files}
    if len(roots) == 1 and all("/" in path for path in files):
        return {path.partition("/")[2]: content for path, content in files.items()}
    return files


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
