"""Where a browser may be sent after a sign-in: paths of the same host that every reader resolves alike."""

from urllib.parse import unquote

LONGEST_TARGET = 2000
_MOST_DECODINGS = 4


def is_own_path(target: str) -> bool:
    """Whether it is a path, with or without a query, that no browser and no proxy takes for another one or another host.

    Dot segments, doubled slashes, backslashes and control characters are refused in plain and in percent-encoding, also where
    that was applied several times.
    """
    if not (target.startswith("/") and target.isascii() and target.isprintable() and len(target) < LONGEST_TARGET):
        return False
    if {"\\", " ", "#"} & set(target):
        return False
    path = target.partition("?")[0]
    for _ in range(_MOST_DECODINGS):
        if "//" in path or "\\" in path or not path.isprintable() or {".", ".."} & set(path.split("/")):
            return False
        if path == (path := unquote(path)):
            return True
    return False
