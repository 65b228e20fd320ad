"""What differs between two texts, line by line, the words that differ in a line marked; pure."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

# Comparing takes time with the product of both lengths in the worst case; this is about a second for all texts together.
MOST_WORK = 20_000_000
MOST_LINES = 3_000
LONGEST_LINE = 1_000
AROUND = 3
# Lines less alike than this are told as one taken out and one put in, without marks: there would be nothing but marks.
ALIKE = 0.4
_WORD = re.compile(r"\w+|\s+|[^\w\s]")

Happened = Literal["added", "removed", "changed"]
Sign = Literal["same", "removed", "added"]


@dataclass(frozen=True)
class Piece:
    """A part of a line; `is_changed`: its words are not in the other text's line."""

    text: str
    is_changed: bool = False


@dataclass(frozen=True)
class Line:
    """One line with its number in either text."""

    sign: Sign
    old: int | None
    new: int | None
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Hunk:
    """Lines that differ with some around them; `passed` lines before them are the same in both."""

    passed: int
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class TextDiff:
    """One text that differs; `hunks` is None where the texts are too long to be compared."""

    name: str
    happened: Happened
    hunks: tuple[Hunk, ...] | None

    @property
    def added(self) -> int:
        return self._count("added")

    @property
    def removed(self) -> int:
        return self._count("removed")

    def _count(self, sign: Sign) -> int:
        return sum(line.sign == sign for hunk in self.hunks or () for line in hunk.lines)


def compare_texts(texts: Iterable[tuple[str, str | None, str | None]]) -> list[TextDiff]:
    """Those of (name, old, new) that differ; None stands for a text that is not there."""
    found, work, shown = [], MOST_WORK, 0
    for name, old, new in texts:
        if old == new:
            continue
        happened: Happened = "added" if old is None else "removed" if new is None else "changed"
        before, after = (old or "").splitlines(), (new or "").splitlines()
        work -= len(before) * len(after)
        hunks = tuple(_hunks(before, after)) if work >= 0 else None
        shown += sum(len(hunk.lines) for hunk in hunks or ())
        found.append(TextDiff(name, happened, hunks if shown <= MOST_LINES else None))
    return found


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[Hunk]:
    told = 0
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(AROUND):
        lines = tuple(line for code in group for line in _lines(old, new, code))
        yield Hunk(group[0][1] - told, lines)
        told = group[-1][2]


def _lines(old: Sequence[str], new: Sequence[str], code: tuple[str, int, int, int, int]) -> Iterator[Line]:
    """The lines of one of difflib's codes."""
    tag, i1, i2, j1, j2 = code
    if tag == "equal":
        for index, text in enumerate(old[i1:i2]):
            yield Line("same", i1 + index + 1, j1 + index + 1, (Piece(text),))
        return
    pairs = [_words(one, other) for one, other in zip(old[i1:i2], new[j1:j2], strict=False)]
    for index, text in enumerate(old[i1:i2]):
        yield Line("removed", i1 + index + 1, None, pairs[index][0] if index < len(pairs) else (Piece(text),))
    for index, text in enumerate(new[j1:j2]):
        yield Line("added", None, j1 + index + 1, pairs[index][1] if index < len(pairs) else (Piece(text),))


def _words(one: str, other: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Both lines in pieces; whole where they have too little in common."""
    if max(len(one), len(other)) > LONGEST_LINE:
        return (Piece(one),), (Piece(other),)
    words = _WORD.findall(one), _WORD.findall(other)
    matcher = difflib.SequenceMatcher(None, *words, autojunk=False)
    if matcher.ratio() < ALIKE:
        return (Piece(one),), (Piece(other),)
    codes = matcher.get_opcodes()
    return (
        tuple(Piece("".join(words[0][i1:i2]), tag != "equal") for tag, i1, i2, _, _ in codes if i1 != i2),
        tuple(Piece("".join(words[1][j1:j2]), tag != "equal") for tag, _, _, j1, j2 in codes if j1 != j2),
    )
