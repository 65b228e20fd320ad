"""Texts of an outside server made safe to look at: what cannot be seen is found, and shown as its code point."""

import unicodedata
from collections.abc import Iterator
from typing import Any

# Other formats, controls, halves of pairs, private and unassigned: nothing of it is visible, much of it turns or hides the rest.
_UNSEEN = frozenset({"Cf", "Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
_USUAL = frozenset("\n\t\r")
# Blank letters and fillers that are no formats by their category, and selectors that hide bytes behind a visible character.
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5")
_SELECTORS = (range(0xFE00, 0xFE0F), range(0xE0100, 0xE01F0), range(0x180B, 0x1810))


def is_unseen(letter: str) -> bool:
    """Whether a character cannot be seen, or changes the order in which others are.

    The emoji selector U+FE0F alone is let through: plain symbols of many descriptions carry it.
    """
    if letter in _USUAL:
        return False
    return unicodedata.category(letter) in _UNSEEN or letter in _BLANK or any(ord(letter) in each for each in _SELECTORS)


def unseen_in(value: Any) -> str | None:
    """The first character of a JSON value's texts, names included, that cannot be seen, as `U+200B`; None without one."""
    for text in _texts(value):
        before = ""
        for letter in text:
            if is_unseen(letter) or (letter == before == "\ufe0f"):
                return f"U+{ord(letter):04X}"
            before = letter
    return None


def shown(text: str, longest: int = 4000) -> str:
    """The text with everything unseen written as `\\u{200b}`, cut to `longest` characters."""
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
