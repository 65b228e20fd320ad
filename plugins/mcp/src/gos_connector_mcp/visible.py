"""Makes texts of an outside server safe to display: finds invisible characters, and writes them as code points."""

import unicodedata
from collections.abc import Iterator
from typing import Any

# Formats, controls, surrogates, private use and unassigned: all invisible, and many reorder or hide the text around them.
_UNSEEN = frozenset({"Cf", "Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
_USUAL = frozenset("\n\t\r")
# Blank letters and fillers outside the format categories, and selectors that can hide bytes behind a visible character.
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5")
_SELECTORS = (range(0xFE00, 0xFE0F), range(0xE0100, 0xE01F0), range(0x180B, 0x1810))


def is_unseen(letter: str) -> bool:
    """Whether a character is invisible, or changes the order of others.

    A single emoji selector U+FE0F is allowed: many descriptions use it after a plain symbol.
    """
    if letter in _USUAL:
        return False
    return unicodedata.category(letter) in _UNSEEN or letter in _BLANK or any(ord(letter) in each for each in _SELECTORS)


def unseen_in(value: Any) -> str | None:
    """The first invisible character in the texts and names of a JSON value, as `U+200B`; None without one."""
    for text in _texts(value):
        before = ""
        for letter in text:
            if is_unseen(letter) or (letter == before == "\ufe0f"):
                return f"U+{ord(letter):04X}"
            before = letter
    return None


def escape_invisible(text: str, longest: int = 4000) -> str:
    """The text with invisible characters written as `\\u{200b}`, cut to `longest` characters."""
    escaped = "".join(f"\\u{{{ord(letter):x}}}" if is_unseen(letter) else letter for letter in text[:longest])
    return escaped if len(text) <= longest else f"{escaped}…"


def _texts(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            pending += [*each.keys(), *each.values()]
        elif isinstance(each, list):
            pending += each
