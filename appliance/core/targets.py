"""Where a sign-in leads: to a provider, and then to a path of the same host that all browsers and proxies resolve alike."""

from urllib.parse import unquote, urlsplit

MAX_TARGET_LENGTH = 2000
_MAX_DECODINGS = 4
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


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


def is_issuer(text: str) -> bool:
    """Whether this can be the address of an OpenID Connect provider: https (or loopback), without query and fragment."""
    try:
        parts = urlsplit(text)
        plain = not (parts.query or parts.fragment or parts.username or "?" in text or "#" in text or " " in text)
        return plain and bool(parts.hostname) and (parts.scheme == "https" or is_loopback(text))
    except ValueError:
        return False


def is_loopback(url: str) -> bool:
    """Whether this is plain http to the local machine, which is allowed because it cannot have a certificate."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in _LOOPBACK
