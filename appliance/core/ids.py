"""Identifiers: sortable, prefixed ids of rows, and slugs of resources that people name."""

import re
import secrets
import threading
import time
import unicodedata

from appliance.core.sentences import Sentence

from .errors import ValidationFailed

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
RESERVED = frozenset({"cdn", "content", "www", "api", "connectors", "batch"})
_SLUG = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_NOT_IN_SLUG = re.compile(r"[^a-z0-9]+")
_VERSION_LIKE = re.compile(r"v\d+(-.*)?")
_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]
_lock = threading.Lock()
_last = 0


def base62(number: int, width: int) -> str:
    """`number` in base 62, left-padded to `width` characters; sorts like the number."""
    out = []
    for _ in range(width // 2):  # Two digits at a time, because this runs for every request.
        number, rest = divmod(number, 3844)
        out.append(_PAIRS[rest])
    if width % 2:
        out.append(ALPHABET[number % 62])
    out.reverse()
    return "".join(out)


def new(kind: str) -> str:
    """A new id `<kind>_<9 characters of time><12 random>`; ids of one process sort by creation."""
    global _last
    with _lock:
        _last = max(_last + 1, time.time_ns() // 1000)
        moment = _last
    return f"{kind}_{base62(moment, 9)}{base62(secrets.randbits(71), 12)}"


def slug_of(text: str, *, longest: int = 63) -> str:
    """A slug derived from a text, such as `grosse-auftrage-2` from `Große Aufträge 2`; empty if it has no Latin letter."""
    plain = unicodedata.normalize("NFKD", text.casefold()).encode("ascii", "ignore").decode()
    return _NOT_IN_SLUG.sub("-", plain.replace("'", "")).lstrip("-0123456789")[:longest].strip("-")


def check_slug(text: str, *, pointer: str = "", longest: int = 63) -> str:
    """The slug, if it is valid; otherwise ValidationFailed.  Tenants and apps pass `longest=24`."""
    if len(text) > longest or not _SLUG.fullmatch(text) or "--" in text:
        raise ValidationFailed(
            Sentence(
                "%(text)s is not a valid name: start with a letter, and use at most %(longest)s lower-case letters, digits and "
                "single hyphens",
                text=repr(text[:80]), longest=longest,
            ),
            pointer=pointer,
        )
    if text in RESERVED or (longest <= 24 and _VERSION_LIKE.fullmatch(text)):
        raise ValidationFailed(Sentence("%(text)s is a reserved name; choose another", text=repr(text)), pointer=pointer)
    return text
