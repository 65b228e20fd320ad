"""Line-by-line differences of texts, with the differing words of a line marked; pure."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from .sequence_diff import Part, WorkBudget, find_matches, find_parts, group_parts, split_parts

# The budget of comparison steps for the lines and words of all texts together; a fraction of a second.
MAX_WORK = 600_000
# The part of it that the words of two lines may use: about 200 very different words.  Beyond it, everything between the common
# beginning and end of both lines is marked.
MAX_WORD_WORK = 30_000
# How much of all texts is shown, in bytes of HTML, and the markup around each line and each mark.
MAX_BYTES, LINE_OVERHEAD, MARK_OVERHEAD = 64_000, 230, 11
# A longer piece of a line is shortened in its middle.
MAX_PIECE = 1_000
CONTEXT_LINES = 3
# Longer replacements are split into chunks that alternate old and new lines, so that both are seen if the end is cut off.
MAX_CHUNK = 40
# Lines less similar than this are shown as removed and added without marks: nearly every word would be marked.
MIN_SIMILARITY = 0.4
_WORD = re.compile(r"\w+|\s+|[^\w\s]")

ChangeKind = Literal["added", "removed", "changed"]
Sign = Literal["same", "removed", "added"]


@dataclass(frozen=True)
class Piece:
    """A part of a line; `is_changed`: its words are missing in the matching line of the other text."""

    text: str
    is_changed: bool = False


@dataclass(frozen=True)
class Line:
    """One line with its number in each text (None where it is missing); `cut` characters of it are not shown."""

    sign: Sign
    old: int | None
    new: int | None
    pieces: tuple[Piece, ...]
    cut: int = 0


@dataclass(frozen=True)
class Hunk:
    """Differing lines with context; `passed` equal lines before them are not shown."""

    passed: int
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class TextDiff:
    """One text that differs, with the number of removed and added lines and the hunks that are shown."""

    name: str
    happened: ChangeKind
    hunks: tuple[Hunk, ...]
    removed: int = 0
    added: int = 0

    @property
    def left_out(self) -> int:
        """How many differing lines are not shown."""
        return self.removed + self.added - sum(line.sign != "same" for hunk in self.hunks for line in hunk.lines)


def compare_texts(texts: Iterable[tuple[str, str | None, str | None]]) -> list[TextDiff]:
    """The differences of those (name, old, new) that differ; None stands for a missing text."""
    work, diffs, room = WorkBudget(MAX_WORK), [], MAX_BYTES
    for name, old, new in texts:
        if old == new:
            continue
        happened: ChangeKind = "added" if old is None else "removed" if new is None else "changed"
        before, after = (old or "").splitlines(), (new or "").splitlines()
        parts = find_parts(before, after, work)
        hunks, room = _build_hunks(before, after, list(group_parts(parts, CONTEXT_LINES)), work, room)
        changed = [part for part in parts if not part.is_same]
        removed, added = sum(part.i2 - part.i1 for part in changed), sum(part.j2 - part.j1 for part in changed)
        diffs.append(TextDiff(name, happened, hunks, removed, added))
    return diffs


def _build_hunks(
    old: Sequence[str], new: Sequence[str], groups: Sequence[Sequence[Part]], work: WorkBudget, room: int
) -> tuple[tuple[Hunk, ...], int]:
    """The hunks that fit into `room` bytes, and the bytes that remain."""
    hunks, end_of_previous = [], 0
    for group in groups:
        lines: list[Line] = []
        hunks.append((group[0].i1 - end_of_previous, lines))
        end_of_previous = group[-1].i2
        for line in (each for part in _split_long(group) for each in _lines(old, new, part, work)):
            if _size(line) > room:
                return tuple(Hunk(passed, tuple(shown_lines)) for passed, shown_lines in hunks if shown_lines), room
            room -= _size(line)
            lines.append(line)
    return tuple(Hunk(passed, tuple(shown_lines)) for passed, shown_lines in hunks), room


def _size(line: Line) -> int:
    return LINE_OVERHEAD + sum(len(escape(each.text).encode()) + MARK_OVERHEAD * each.is_changed for each in line.pieces)


def _split_long(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts, with long replacements split into chunks."""
    for part in parts:
        rest = part
        while not rest.is_same and min(rest.i2 - rest.i1, rest.j2 - rest.j1) > MAX_CHUNK:
            i, j = rest.i1 + MAX_CHUNK // 2, rest.j1 + MAX_CHUNK // 2
            yield rest._replace(i2=i, j2=j)
            rest = rest._replace(i1=i, j1=j)
        yield rest


def _lines(old: Sequence[str], new: Sequence[str], part: Part, work: WorkBudget) -> Iterator[Line]:
    """The lines of a part, one by one, so that the caller can stop when it has no more room."""
    _, i1, i2, j1, j2 = part
    if part.is_same:
        for index, text in enumerate(old[i1:i2]):
            yield _line("same", i1 + index + 1, j1 + index + 1, (Piece(text),))
    else:
        pairs = [_mark_words(one, other, work) for one, other in zip(old[i1:i2], new[j1:j2], strict=False)]
        for index, text in enumerate(old[i1:i2]):
            yield _line("removed", i1 + index + 1, None, pairs[index][0] if index < len(pairs) else (Piece(text),))
        for index, text in enumerate(new[j1:j2]):
            yield _line("added", None, j1 + index + 1, pairs[index][1] if index < len(pairs) else (Piece(text),))


def _line(sign: Sign, old: int | None, new: int | None, pieces: tuple[Piece, ...]) -> Line:
    cut = sum(max(0, len(each.text) - MAX_PIECE) for each in pieces)
    return Line(sign, old, new, tuple(_shortened(each) for each in pieces) if cut else pieces, cut)


def _shortened(piece: Piece) -> Piece:
    half = MAX_PIECE // 2
    return piece if len(piece.text) <= MAX_PIECE else Piece(f"{piece.text[:half]}…{piece.text[-half:]}", piece.is_changed)


def _mark_words(one: str, other: str, work: WorkBudget) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Both lines split into equal and changed pieces; each in one piece if they have too little in common."""
    whole = (Piece(one),), (Piece(other),)
    work.remaining -= min(len(one) + len(other), work.remaining)
    if not work.remaining:
        return whole
    old, new = _WORD.findall(one), _WORD.findall(other)
    if _similarity(sum((Counter(old) & Counter(new)).values()), old, new) < MIN_SIMILARITY:
        return whole
    runs, _ = find_matches(old, new, work, MAX_WORD_WORK)
    if _similarity(sum(run.size for run in runs), old, new) < MIN_SIMILARITY:
        return whole
    parts = list(split_parts(runs, len(old), len(new)))
    return (
        tuple(Piece("".join(old[i1:i2]), not is_same) for is_same, i1, i2, _, _ in parts if i1 != i2),
        tuple(Piece("".join(new[j1:j2]), not is_same) for is_same, _, _, j1, j2 in parts if j1 != j2),
    )


def _similarity(common: int, old: Sequence[str], new: Sequence[str]) -> float:
    return 2 * common / ((len(old) + len(new)) or 1)
