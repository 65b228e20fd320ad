"""Makes texts of an outside server safe to display: finds invisible characters, and writes them as code points."""

import unicodedata
from collections.abc import Iterator
from typing import Any

# Formats, controls, surrogates, private use and unassigned: all invisible, and many reorder or hide the text around them.
_INVISIBLE_CATEGORIES = frozenset({"Cf", "Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
_WHITESPACE = frozenset("\n\t\r")
# Blank letters and fillers outside the format categories, and selectors that can hide bytes behind a visible character.
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5")
_SELECTORS = (range(0xFE00, 0xFE0F), range(0xE0100, 0xE01F0), range(0x180B, 0x1810))


def is_invisible(char: str) -> bool:
    """Whether a character is invisible, or changes the order of others.

    A single emoji selector U+FE0F is allowed: many descriptions use it after a plain symbol.
    """
    if char in _WHITESPACE:
        return False
    return unicodedata.category(char) in _INVISIBLE_CATEGORIES or char in _BLANK or any(ord(char) in each for each in _SELECTORS)


def find_invisible(value: Any) -> str | None:
    """The first invisible character in the texts and names of a JSON value, as `U+200B`; None without one."""
    for text in _texts(value):
        before = ""
        for char in text:
            if is_invisible(char) or (char == before == "\ufe0f"):
                return f"U+{ord(char):04X}"
            before = char
    return None


def escape_invisible(text: str, max_length: int = 4000) -> str:
    """The text with invisible characters written as `\\u{200b}`, cut to `longest` characters."""
    escaped = "".join(f"\\u{{{ord(char):x}}}" if is_invisible(char) else char for char in text[:max_length])
    return escaped if len(text) <= max_length else f"{escaped}…"


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
