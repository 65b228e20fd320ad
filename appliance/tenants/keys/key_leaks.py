"""Finds API keys in contents that everybody could read."""

import re
from collections.abc import Iterable

from .keys import is_key_text

_KEY = re.compile(rb"gos_[A-Za-z0-9]{1,40}_[0-9A-Za-z]{36}(?![0-9A-Za-z])")
_OVERLAP = 128


def holds_key(pieces: Iterable[bytes]) -> bool:
    """Whether a text of the form of an API key, with check digits that fit, is in the pieces or across two of them."""
    before = b""
    for piece in pieces:
        window = before + piece
        if any(is_key_text(found.decode()) for found in _KEY.findall(window)):
            return True
        before = window[-_OVERLAP:]
    return False
