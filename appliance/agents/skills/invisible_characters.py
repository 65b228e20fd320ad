"""Finds characters in a text that are invisible to people but read by models."""

import re
import unicodedata

_MARKS_IN_A_ROW = 4
_JOINERS = re.compile("[\u200c\u200d\ufe0e\ufe0f]")  # joiners of scripts and emoji; text or emoji variant selectors
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
# Blank characters that Unicode classifies as letters, marks or symbols, and unassigned code points reserved for invisible
# characters.  Other unassigned code points are allowed: they are displayed as boxes, and newer emoji are among them.
_BLANKS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufdd0-\ufdef\ufe00-\ufe0d\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)


def find_invisible(text: str, *, allowed: str = "") -> int | None:
    """The index of the first character that is invisible, or that reorders or hides its neighbours; None if there is none.

    These are control and format characters (direction marks, zero-width characters, tags), blank fillers, variation selectors,
    private code points, and more than four combining marks in a row.  Joiners and emoji selectors are allowed where they have
    an effect: between or after visible characters outside ASCII.  Control characters in `allowed` are accepted.
    """
    characters = set(text)
    invisible = (char for char in characters if char not in allowed and not _JOINERS.match(char) and not _is_visible(char))
    indexes = [text.index(char) for char in invisible]
    indexes += [at.start() for at in _JOINERS.finditer(text) if not _is_effective_joiner(text, at.start())][:1]
    if marks := "".join(char for char in characters if unicodedata.category(char) in ("Mn", "Me")):
        pile = re.search(f"[{re.escape(marks)}]{{{_MARKS_IN_A_ROW + 1},}}", text)
        indexes += [pile.end() - 1] if pile else []
    return min(indexes, default=None)


def _is_visible(char: str) -> bool:
    return unicodedata.category(char) not in _INVISIBLE_CATEGORIES and not _BLANKS.match(char) and ord(char) & 0xFFFE != 0xFFFE


def _is_effective_joiner(text: str, index: int) -> bool:
    before = index - 1
    if text[index] >= "\ufe0e":
        return _is_visible_non_ascii(text, before) or text[max(before, 0) : index] in tuple("0123456789#*")  # keycaps
    if before >= 0 and text[before] == "\ufe0f":
        before -= 1
    return _is_visible_non_ascii(text, before) and _is_visible_non_ascii(text, index + 1)


def _is_visible_non_ascii(text: str, index: int) -> bool:
    """Whether there is a visible character outside ASCII at this index."""
    return 0 <= index < len(text) and not text[index].isascii() and not _JOINERS.match(text[index]) and _is_visible(text[index])


def describe_character(char: str) -> str:
    """The code point and Unicode name of a character, such as `U+202E (RIGHT-TO-LEFT OVERRIDE)`."""
    name = unicodedata.name(char, "")
    return f"U+{ord(char):04X}" + (f" ({name})" if name else "")
