"""Paths below the integration's root: relative, with `/` between names, and never a way out."""

import re

from appliance.connectors.contract import ConfigError

_MOST = 1000
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]")


def clean(path: str, *, may_be_root: bool = False) -> str:
    """The path without a slash at its end; ConfigError for one that is absolute, climbs or holds what no name should."""
    trimmed = path.rstrip("/") if path != "/" else path
    if not trimmed:
        if may_be_root and not path.startswith("/"):
            return ""
        raise ConfigError("The path is empty; name a file or folder below the integration's root.")
    if trimmed.startswith("/"):
        raise ConfigError(f"The path {path[:200]!r} is absolute; write it relative to the integration's root.")
    if _FORBIDDEN.search(trimmed) or len(trimmed) > _MOST:
        raise ConfigError("The path holds a backslash or control character, or is longer than 1,000 characters; rename the file.")
    if any(name in ("", ".", "..") for name in trimmed.split("/")):
        raise ConfigError(f"The path {path[:200]!r} holds an empty name, `.` or `..`; write the path it means.")
    return trimmed


def join(folder: str, name: str) -> str:
    """The path of a name in a folder, which may be the root."""
    return f"{folder}/{name}" if folder else name


def split(path: str) -> tuple[str, str]:
    """The folder and the name of a clean path."""
    folder, _, name = path.rpartition("/")
    return folder, name
