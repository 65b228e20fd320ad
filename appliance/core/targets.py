"""Redirect targets after sign-in: only paths of the same host that all browsers and proxies resolve in the same way."""

from urllib.parse import unquote

MAX_TARGET_LENGTH = 2000
_MAX_DECODINGS = 4


def is_own_path(target: str) -> bool:
    """Whether the target is a path, optionally with a query, that cannot be mistaken for another path or host.

    Dot segments, double slashes, backslashes and control characters are rejected, also if they are percent-encoded one or
    more times.
    """
    if not (target.startswith("/") and target.isascii() and target.isprintable() and len(target) < MAX_TARGET_LENGTH):
        return False
    if {"\\", " ", "#"} & set(target):
        return False
    path = target.partition("?")[0]
    for _ in range(_MAX_DECODINGS):
        if "//" in path or "\\" in path or not path.isprintable() or {".", ".."} & set(path.split("/")):
            return False
        if path == (path := unquote(path)):
            return True
    return False
