"""What two sequences have in common, in order, by few edits and within a number of steps; pure."""

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Run(NamedTuple):
    """`size` items from `old` and from `new` on are the same."""

    old: int
    new: int
    size: int


class Part(NamedTuple):
    """From `i1` to `i2` of the old, from `j1` to `j2` of the new: the same in both, or the one instead of the other."""

    is_same: bool
    i1: int
    i2: int
    j1: int
    j2: int


class Work:
    """The steps that may still be taken; whoever compares takes them from here."""

    def __init__(self, steps: int) -> None:
        self.left = steps


def find_runs(old: Sequence[str], new: Sequence[str], work: Work, most: int) -> tuple[list[Run], bool]:
    """The runs in order, and whether they are all: with more than `most` steps they are no more than what begins and ends alike.

    The equal beginning and end are cut first; they cost nothing but their length.
    """
    short = min(len(old), len(new))
    start = next((index for index in range(short) if old[index] != new[index]), short)
    end = next((index for index in range(short - start) if old[-1 - index] != new[-1 - index]), short - start)
    between = _find_between(old[start : len(old) - end], new[start : len(new) - end], work, most)
    runs = [Run(0, 0, start), *(Run(start + each.old, start + each.new, each.size) for each in between or ())]
    runs.append(Run(len(old) - end, len(new) - end, end))
    return [each for each in runs if each.size], between is not None


def find_parts(old: Sequence[str], new: Sequence[str], work: Work) -> list[Part]:
    """What is the same and what is not, in turn; never more than half of the work that is left, so that others have some too.

    What takes more is compared item by item where it is as long as before, and is one thing instead of another where it is not.
    """
    runs, is_all = find_runs(old, new, work, work.left // 2)
    if not is_all and len(old) == len(new):
        runs = _same_places(old, new)
    return list(parts_of(runs, len(old), len(new)))


def _same_places(old: Sequence[str], new: Sequence[str]) -> list[Run]:
    runs: list[Run] = []
    for index, (one, other) in enumerate(zip(old, new, strict=True)):
        if one != other:
            continue
        began = runs.pop().old if runs and runs[-1].old + runs[-1].size == index else index
        runs.append(Run(began, began, index + 1 - began))
    return runs


def parts_of(runs: Sequence[Run], width: int, height: int) -> Iterator[Part]:
    """What lies in the runs and between them; both are so long."""
    i = j = 0
    for run in (*runs, Run(width, height, 0)):
        if (i, j) != (run.old, run.new):
            yield Part(False, i, run.old, j, run.new)
        i, j = run.old + run.size, run.new + run.size
        if run.size:
            yield Part(True, run.old, i, run.new, j)


def group_parts(parts: Sequence[Part], around: int) -> Iterator[list[Part]]:
    """What differs, with so many of the same around it; what is near to each other is in one group."""
    group: list[Part] = []
    for index, part in enumerate(parts):
        size = part.i2 - part.i1
        before = around if index + 1 < len(parts) else 0
        after = around if index else 0
        if not part.is_same or size <= before + after:
            group.append(part)
            continue
        if after:
            yield [*group, part._replace(i2=part.i1 + after, j2=part.j1 + after)]
        group = [part._replace(i1=part.i2 - before, j1=part.j2 - before)] if before else []
    if group:
        yield group


def _find_between(old: Sequence[str], new: Sequence[str], work: Work, most: int) -> list[Run] | None:
    if not old or not new:
        return []
    numbers: dict[str, int] = {}
    one, other = ([numbers.setdefault(each, len(numbers)) for each in items] for items in (old, new))
    reached = _reach(one, other, min(most, work.left))
    steps = sum(len(row) for row in reached) + len(one) if reached else min(most, work.left)
    work.left -= min(steps, work.left)
    return None if reached is None else _go_back(reached, len(one), len(other))


def _first(edits: int, length: int) -> int:
    """The outermost diagonal on one side after so many edits; those further out have come to the edge before."""
    return edits if edits <= length else 2 * length - edits


def _reach(old: Sequence[int], new: Sequence[int], most: int) -> "list[array[int]] | None":
    """By number of edits: how far into `old` one comes on every other diagonal; None where that is too much work (Myers, 1986)."""
    width, height = len(old), len(new)
    furthest = [-1] * (width + height + 3)
    furthest[1] = 0
    rows: list[array[int]] = []
    for edits in range(width + height + 1):
        low, high = -_first(edits, height), _first(edits, width)
        for diagonal in range(low, high + 1, 2):
            below, above = furthest[diagonal - 1], furthest[diagonal + 1]
            x = began = above if below < above else below + 1
            while x < width and x - diagonal < height and old[x] == new[x - diagonal]:
                x += 1
            furthest[diagonal] = x
            most -= 1 + x - began
            if most < 0:
                return None
        rows.append(array("q", [furthest[diagonal] for diagonal in range(low, high + 1, 2)]))
        if low <= width - height <= high and furthest[width - height] >= width and (width - height - low) % 2 == 0:
            return rows
    raise AssertionError("every sequence becomes every other one by as many edits as both have items")


def _go_back(rows: "Sequence[array[int]]", width: int, height: int) -> list[Run]:
    """The runs on the way that `_reach` found."""

    def reached(edits: int, diagonal: int) -> int:
        index = diagonal + _first(edits, height)
        return rows[edits][index // 2] if 0 <= index < 2 * len(rows[edits]) else -1

    runs, x, y = [], width, height
    for edits in range(len(rows) - 1, 0, -1):
        below, above = reached(edits - 1, x - y - 1), reached(edits - 1, x - y + 1)
        began = above if below < above else below + 1
        runs.append(Run(began, began - (x - y), x - began))
        x, y = (above, above - (x - y) - 1) if below < above else (below, below - (x - y) + 1)
    runs.append(Run(0, 0, x))
    return [each for each in reversed(runs) if each.size]
