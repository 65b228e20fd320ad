"""Detects API keys in content that is about to become public."""

import re
from collections.abc import Iterable

from .keys import is_key_text

_KEY = re.compile(rb"gos_[A-Za-z0-9]{1,40}_[0-9A-Za-z]{36}(?![0-9A-Za-z])")
_OVERLAP = 128


def contains_key(pieces: Iterable[bytes]) -> bool:
    """Whether the pieces, or the boundary between two of them, contain text in the form of an API key with valid check digits."""
    before = b""
    for piece in pieces:
        window = before + piece
        if any(is_key_text(match.decode()) for match in _KEY.findall(window)):
            return True
        before = window[-_OVERLAP:]
    return False
