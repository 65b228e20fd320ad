"""Compares two sequences (Myers diff) within a budget of steps; pure."""

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Match(NamedTuple):
    """`size` items are equal, beginning at index `old` in the one and `new` in the other."""

    old: int
    new: int
    size: int


class Part(NamedTuple):
    """Items `i1:i2` of the old and `j1:j2` of the new sequence: equal, or the old replaced by the new."""

    is_same: bool
    i1: int
    i2: int
    j1: int
    j2: int


class WorkBudget:
    """The budget of steps that comparisons share; each deducts what it uses."""

    def __init__(self, steps: int) -> None:
        self.remaining = steps


def find_matches(old: Sequence[str], new: Sequence[str], work: WorkBudget, max_steps: int) -> tuple[list[Match], bool]:
    """The equal runs in order, and whether they are complete: beyond `max_steps` only the common beginning and end are.

    The common beginning and end are cut off first; they cost only their length.
    """
    short = min(len(old), len(new))
    start = next((index for index in range(short) if old[index] != new[index]), short)
    end = next((index for index in range(short - start) if old[-1 - index] != new[-1 - index]), short - start)
    between = _find_between(old[start : len(old) - end], new[start : len(new) - end], work, max_steps)
    runs = [Match(0, 0, start), *(Match(start + each.old, start + each.new, each.size) for each in between or ())]
    runs.append(Match(len(old) - end, len(new) - end, end))
    return [each for each in runs if each.size], between is not None


def find_parts(old: Sequence[str], new: Sequence[str], work: WorkBudget) -> list[Part]:
    """Equal and different parts in order.  Uses at most half of the remaining budget, so that other comparisons have some too.

    Beyond that, sequences of equal length are compared item by item, and others are reported as one replacement.
    """
    runs, is_all = find_matches(old, new, work, work.remaining // 2)
    if not is_all and len(old) == len(new):
        runs = _equal_positions(old, new)
    return list(split_parts(runs, len(old), len(new)))


def _equal_positions(old: Sequence[str], new: Sequence[str]) -> list[Match]:
    runs: list[Match] = []
    for index, (one, other) in enumerate(zip(old, new, strict=True)):
        if one != other:
            continue
        start = runs.pop().old if runs and runs[-1].old + runs[-1].size == index else index
        runs.append(Match(start, start, index + 1 - start))
    return runs


def split_parts(runs: Sequence[Match], width: int, height: int) -> Iterator[Part]:
    """The parts of two sequences with `width` and `height` items: the runs, and what lies between them."""
    i = j = 0
    for run in (*runs, Match(width, height, 0)):
        if (i, j) != (run.old, run.new):
            yield Part(False, i, run.old, j, run.new)
        i, j = run.old + run.size, run.new + run.size
        if run.size:
            yield Part(True, run.old, i, run.new, j)


def group_parts(parts: Sequence[Part], context: int) -> Iterator[list[Part]]:
    """Groups of differing parts with up to `context` equal items as context; differences near each other share a group."""
    group: list[Part] = []
    for index, part in enumerate(parts):
        size = part.i2 - part.i1
        before = context if index + 1 < len(parts) else 0
        after = context if index else 0
        if not part.is_same or size <= before + after:
            group.append(part)
            continue
        if after:
            yield [*group, part._replace(i2=part.i1 + after, j2=part.j1 + after)]
        group = [part._replace(i1=part.i2 - before, j1=part.j2 - before)] if before else []
    if group:
        yield group


def _find_between(old: Sequence[str], new: Sequence[str], work: WorkBudget, max_steps: int) -> list[Match] | None:
    if not old or not new:
        return []
    numbers: dict[str, int] = {}
    old_numbers, new_numbers = ([numbers.setdefault(each, len(numbers)) for each in items] for items in (old, new))
    rows = _furthest_points(old_numbers, new_numbers, min(max_steps, work.remaining))
    steps = sum(len(row) for row in rows) + len(old_numbers) if rows else min(max_steps, work.remaining)
    work.remaining -= min(steps, work.remaining)
    return None if rows is None else _trace_back(rows, len(old_numbers), len(new_numbers))


def _outermost(edits: int, length: int) -> int:
    """The outermost diagonal on one side after `edits` edits; those further out have already reached the edge."""
    return edits if edits <= length else 2 * length - edits


def _furthest_points(old: Sequence[int], new: Sequence[int], remaining: int) -> "list[array[int]] | None":
    """By number of edits: the furthest index into `old` on every other diagonal; None beyond `remaining` steps (Myers, 1986)."""
    width, height = len(old), len(new)
    furthest = [-1] * (width + height + 3)
    furthest[1] = 0
    rows: list[array[int]] = []
    for edits in range(width + height + 1):
        low, high = -_outermost(edits, height), _outermost(edits, width)
        for diagonal in range(low, high + 1, 2):
            below, above = furthest[diagonal - 1], furthest[diagonal + 1]
            x = start = above if below < above else below + 1
            while x < width and x - diagonal < height and old[x] == new[x - diagonal]:
                x += 1
            furthest[diagonal] = x
            remaining -= 1 + x - start
            if remaining < 0:
                return None
        rows.append(array("q", [furthest[diagonal] for diagonal in range(low, high + 1, 2)]))
        if low <= width - height <= high and furthest[width - height] >= width and (width - height - low) % 2 == 0:
            return rows
    raise AssertionError("the number of edits never exceeds the length of both sequences")


def _trace_back(rows: "Sequence[array[int]]", width: int, height: int) -> list[Match]:
    """The equal runs on the path that `_furthest_points` computed, traced from its end."""

    def furthest(edits: int, diagonal: int) -> int:
        index = diagonal + _outermost(edits, height)
        return rows[edits][index // 2] if 0 <= index < 2 * len(rows[edits]) else -1

    runs, x, y = [], width, height
    for edits in range(len(rows) - 1, 0, -1):
        below, above = furthest(edits - 1, x - y - 1), furthest(edits - 1, x - y + 1)
        start = above if below < above else below + 1
        runs.append(Match(start, start - (x - y), x - start))
        x, y = (above, above - (x - y) - 1) if below < above else (below, below - (x - y) + 1)
    runs.append(Match(0, 0, x))
    return [each for each in reversed(runs) if each.size]
