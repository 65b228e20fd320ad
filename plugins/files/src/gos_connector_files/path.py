"""Paths below the integration's root: relative, separated by `/`, and unable to leave the root."""

import re

from appliance.connectors.contract import ConfigError

_MOST = 1000
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]")


def clean(path: str, *, may_be_root: bool = False) -> str:
    """Return the path without a trailing slash; ConfigError if it is absolute, contains `..` or has forbidden characters."""
    trimmed = path.rstrip("/") if path != "/" else path
    if not trimmed:
        if may_be_root and not path.startswith("/"):
            return ""
        raise ConfigError("The path is empty; name a file or folder below the integration's root.")
    if trimmed.startswith("/"):
        raise ConfigError(f"The path {path[:200]!r} is absolute; write it relative to the integration's root.")
    if _FORBIDDEN.search(trimmed) or len(trimmed) > _MOST:
        raise ConfigError(
            "The path contains a backslash or control character, or is longer than 1,000 characters; rename the file."
        )
    if any(name in ("", ".", "..") for name in trimmed.split("/")):
        raise ConfigError(f"The path {path[:200]!r} contains an empty name, `.` or `..`; write the path without them.")
    return trimmed


def join(folder: str, name: str) -> str:
    """Return the path of a name in a folder, which may be the root."""
    return f"{folder}/{name}" if folder else name


def split(path: str) -> tuple[str, str]:
    """Return the folder and the name of a clean path."""
    folder, _, name = path.rpartition("/")
    return folder, name
