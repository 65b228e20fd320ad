"""How much a version may hold, and what of it is accepted."""

import re
from dataclasses import dataclass

from appliance.blobs import Paths
from appliance.core.errors import PayloadTooLarge, ValidationFailed
from appliance.webapps.records import NewVersion, Settings
from appliance.webapps.routes.routes import find_conflicts, parse_routes

LONGEST_TEXT = 500
LONGEST_RULES = 1 << 18
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Limits:
    """Of one version: most files, most bytes of all, most bytes of one; and most bytes of all versions of an app (0: no limit)."""

    files: int
    bytes: int
    file_bytes: int
    stored_bytes: int = 0


def check_words(name: str, description: str) -> tuple[str, str]:
    """Name and description of an app; ValidationFailed."""
    name = name.strip()
    if not 1 <= len(name) <= 200 or not name.isprintable():
        raise ValidationFailed("a name has 1 to 200 characters", pointer="/name")
    if len(description) > 2000 or "\0" in description:
        raise ValidationFailed("a description has at most 2000 characters", pointer="/description")
    return name, description


def check_settings(settings: Settings) -> Settings:
    for name in ("redirects", "headers"):
        if len(getattr(settings, name)) > LONGEST_RULES:
            raise ValidationFailed(f"{name} has at most {LONGEST_RULES >> 10} KiB", pointer=f"/{name}")
    return settings


def check_files(new: NewVersion, limits: Limits) -> None:
    """PayloadTooLarge over the limits; ValidationFailed for a path or a sha256 that is none, and for too long texts."""
    if not new.files:
        raise ValidationFailed("a version holds at least one file", pointer="/files")
    if len(new.files) > limits.files:
        raise PayloadTooLarge(f"a version has at most {limits.files} files")
    if sum(spec.size for spec in new.files.values()) > limits.bytes:
        raise PayloadTooLarge(f"a version has at most {limits.bytes >> 20} MiB")
    paths = Paths("the version")
    for path, spec in new.files.items():
        paths.add(path)
        if not _SHA256.fullmatch(spec.sha256):
            raise ValidationFailed(f"{path}: the sha256 is 64 hexadecimal digits in lower case", pointer=f"/files/{path}/sha256")
        if not 0 <= spec.size <= limits.file_bytes:
            raise PayloadTooLarge(f"{path}: a file has at most {limits.file_bytes >> 20} MiB")
    for name, text in (("message", new.message), ("source", new.source.commit), ("source", new.source.ci_url)):
        if len(text) > LONGEST_TEXT or "\0" in text:
            raise ValidationFailed(f"{name} has at most {LONGEST_TEXT} characters", pointer=f"/{name}")
    check_settings(new.settings)
    if hidden := find_conflicts(parse_routes(new.settings.routes), new.files):
        raise ValidationFailed(hidden[0].message, details=hidden[:100])
