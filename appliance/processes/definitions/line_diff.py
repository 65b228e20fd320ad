"""What differs between two texts, line by line, the words that differ in a line marked; pure."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from .common_runs import Part, Work, find_parts, find_runs, group_parts, parts_of

# Steps of comparing for all texts together, lines and words, a fraction of a second.
MOST_WORK = 600_000
# Of these, at most so many for the words of two lines: 200 words that differ much; beyond it all between the equal beginning and
# end of both are marked.
WORK_OF_WORDS = 30_000
# What is shown of all texts together, in bytes of a page with what stands around each line and each mark.
MOST_SHOWN, AROUND_LINE, AROUND_MARK = 64_000, 230, 11
# A longer piece of a line is shown with its beginning and its end.
LONGEST_PIECE = 1_000
AROUND = 3
# Of so many lines instead of others, the old and the new are told in turn: the end may be left out, and then both are seen.
AT_ONCE = 40
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
    """One line with its number in either text; `cut` characters of it are not shown."""

    sign: Sign
    old: int | None
    new: int | None
    pieces: tuple[Piece, ...]
    cut: int = 0


@dataclass(frozen=True)
class Hunk:
    """Lines that differ with some around them; `passed` lines before them are the same in both."""

    passed: int
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class TextDiff:
    """One text that differs, how many lines of it do, and what of it is shown."""

    name: str
    happened: Happened
    hunks: tuple[Hunk, ...]
    removed: int = 0
    added: int = 0

    @property
    def left_out(self) -> int:
        """How many of the lines that differ are not shown."""
        return self.removed + self.added - sum(line.sign != "same" for hunk in self.hunks for line in hunk.lines)


def compare_texts(texts: Iterable[tuple[str, str | None, str | None]]) -> list[TextDiff]:
    """Those of (name, old, new) that differ; None stands for a text that is not there."""
    work, found, room = Work(MOST_WORK), [], MOST_SHOWN
    for name, old, new in texts:
        if old == new:
            continue
        happened: Happened = "added" if old is None else "removed" if new is None else "changed"
        before, after = (old or "").splitlines(), (new or "").splitlines()
        parts = find_parts(before, after, work)
        hunks, room = _shown(before, after, list(group_parts(parts, AROUND)), work, room)
        changed = [part for part in parts if not part.is_same]
        removed, added = sum(part.i2 - part.i1 for part in changed), sum(part.j2 - part.j1 for part in changed)
        found.append(TextDiff(name, happened, hunks, removed, added))
    return found


def _shown(
    old: Sequence[str], new: Sequence[str], groups: Sequence[Sequence[Part]], work: Work, room: int
) -> tuple[tuple[Hunk, ...], int]:
    """The hunks that there is room for, and what is left of it."""
    hunks, told = [], 0
    for group in groups:
        lines: list[Line] = []
        hunks.append((group[0].i1 - told, lines))
        told = group[-1].i2
        for line in (each for part in _in_turn(group) for each in _lines(old, new, part, work)):
            if _size(line) > room:
                return tuple(Hunk(passed, tuple(some)) for passed, some in hunks if some), room
            room -= _size(line)
            lines.append(line)
    return tuple(Hunk(passed, tuple(some)) for passed, some in hunks), room


def _size(line: Line) -> int:
    return AROUND_LINE + sum(len(escape(each.text).encode()) + AROUND_MARK * each.is_changed for each in line.pieces)


def _in_turn(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts, long ones in pieces: the old and the new of each piece are told together."""
    for part in parts:
        rest = part
        while not rest.is_same and min(rest.i2 - rest.i1, rest.j2 - rest.j1) > AT_ONCE:
            i, j = rest.i1 + AT_ONCE // 2, rest.j1 + AT_ONCE // 2
            yield rest._replace(i2=i, j2=j)
            rest = rest._replace(i1=i, j1=j)
        yield rest


def _lines(old: Sequence[str], new: Sequence[str], part: Part, work: Work) -> Iterator[Line]:
    """The lines of a part, one after the other: whoever has no room for more stops."""
    _, i1, i2, j1, j2 = part
    if part.is_same:
        for index, text in enumerate(old[i1:i2]):
            yield _line("same", i1 + index + 1, j1 + index + 1, (Piece(text),))
    else:
        pairs = [_words(one, other, work) for one, other in zip(old[i1:i2], new[j1:j2], strict=False)]
        for index, text in enumerate(old[i1:i2]):
            yield _line("removed", i1 + index + 1, None, pairs[index][0] if index < len(pairs) else (Piece(text),))
        for index, text in enumerate(new[j1:j2]):
            yield _line("added", None, j1 + index + 1, pairs[index][1] if index < len(pairs) else (Piece(text),))


def _line(sign: Sign, old: int | None, new: int | None, pieces: tuple[Piece, ...]) -> Line:
    cut = sum(max(0, len(each.text) - LONGEST_PIECE) for each in pieces)
    return Line(sign, old, new, tuple(_shortened(each) for each in pieces) if cut else pieces, cut)


def _shortened(piece: Piece) -> Piece:
    half = LONGEST_PIECE // 2
    return piece if len(piece.text) <= LONGEST_PIECE else Piece(f"{piece.text[:half]}…{piece.text[-half:]}", piece.is_changed)


def _words(one: str, other: str, work: Work) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Both lines in pieces; whole where they have too little in common."""
    whole = (Piece(one),), (Piece(other),)
    work.left -= min(len(one) + len(other), work.left)
    if not work.left:
        return whole
    old, new = _WORD.findall(one), _WORD.findall(other)
    if _alike(sum((Counter(old) & Counter(new)).values()), old, new) < ALIKE:
        return whole
    runs, _ = find_runs(old, new, work, WORK_OF_WORDS)
    if _alike(sum(run.size for run in runs), old, new) < ALIKE:
        return whole
    parts = list(parts_of(runs, len(old), len(new)))
    return (
        tuple(Piece("".join(old[i1:i2]), not is_same) for is_same, i1, i2, _, _ in parts if i1 != i2),
        tuple(Piece("".join(new[j1:j2]), not is_same) for is_same, _, _, j1, j2 in parts if j1 != j2),
    )


def _alike(common: int, old: Sequence[str], new: Sequence[str]) -> float:
    return 2 * common / ((len(old) + len(new)) or 1)
