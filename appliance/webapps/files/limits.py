"""Limits for the size and number of files, and validation of a new version."""

import re
from dataclasses import dataclass

from appliance.blobs import Paths
from appliance.core.errors import PayloadTooLarge, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.webapps.records import NewVersion, Settings
from appliance.webapps.routes.routes import find_conflicts, parse_routes

LONGEST_TEXT = 500
LONGEST_RULES = 1 << 18
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Limits:
    """Per version: number of files, total bytes, bytes per file. Per app: bytes stored by all versions (0: no limit)."""

    files: int
    bytes: int
    file_bytes: int
    stored_bytes: int = 0


def validate_texts(name: str, description: str) -> tuple[str, str]:
    """The validated name and description of an app; ValidationFailed."""
    name = name.strip()
    if not 1 <= len(name) <= 200 or not name.isprintable():
        raise ValidationFailed("a name has 1 to 200 characters", pointer="/name")
    if len(description) > 2000 or "\0" in description:
        raise ValidationFailed("a description has at most 2000 characters", pointer="/description")
    return name, description


def check_settings(settings: Settings) -> Settings:
    for name in ("redirects", "headers"):
        if len(getattr(settings, name)) > LONGEST_RULES:
            raise ValidationFailed(
                Sentence("%(name)s has at most %(longest_rules)s KiB", name=name, longest_rules=LONGEST_RULES >> 10),
                pointer=f"/{name}",
            )
    return settings


def check_files(new: NewVersion, limits: Limits) -> None:
    """PayloadTooLarge when a limit is exceeded; ValidationFailed for an invalid path or sha256, or a text that is too long."""
    if not new.files:
        raise ValidationFailed("a version holds at least one file", pointer="/files")
    if len(new.files) > limits.files:
        raise PayloadTooLarge(Sentence("a version has at most %(files)s files", files=limits.files))
    if sum(spec.size for spec in new.files.values()) > limits.bytes:
        raise PayloadTooLarge(Sentence("a version has at most %(bytes)s MiB", bytes=limits.bytes >> 20))
    paths = Paths("the version")
    for path, spec in new.files.items():
        paths.add(path)
        if not _SHA256.fullmatch(spec.sha256):
            raise ValidationFailed(
                Sentence("%(path)s: sha256 must be 64 lower-case hex digits", path=path), pointer=f"/files/{path}/sha256"
            )
        if not 0 <= spec.size <= limits.file_bytes:
            raise PayloadTooLarge(
                Sentence("%(path)s: a file has at most %(file_bytes)s MiB", path=path, file_bytes=limits.file_bytes >> 20)
            )
    for name, text in (("message", new.message), ("source", new.source.commit), ("source", new.source.ci_url)):
        if len(text) > LONGEST_TEXT or "\0" in text:
            raise ValidationFailed(
                Sentence("%(name)s has at most %(longest_text)s characters", name=name, longest_text=LONGEST_TEXT),
                pointer=f"/{name}",
            )
    check_settings(new.settings)
    if conflicts := find_conflicts(parse_routes(new.settings.routes), new.files):
        raise ValidationFailed(conflicts[0].message, details=conflicts[:100])
