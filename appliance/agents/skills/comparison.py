"""Compares two versions of a skill, line by line for text files of a reasonable size."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from appliance.processes.definitions import WorkBudget, find_parts, group_parts

MOST_WORK = 600_000  # comparison steps for all files together: a fraction of a second
LONGEST_TEXT = 64 << 10
MOST_LINES = 2_000
LONGEST_ALL = 256 << 10
CONTEXT = 3


@dataclass(frozen=True)
class DiffLine:
    """A line of a comparison; `gap` stands for omitted lines that are the same in both."""

    kind: Literal["same", "added", "removed", "gap"]
    text: str


@dataclass(frozen=True)
class FileChange:
    """A file that differs; `lines` is None if it is binary or too long to compare."""

    path: str
    kind: Literal["added", "changed", "removed"]
    lines: tuple[DiffLine, ...] | None


def compare_texts(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> list[FileChange]:
    """The files that differ, sorted by path; None as a text means that the file is binary or too long."""
    left, work = LONGEST_ALL, WorkBudget(MOST_WORK)
    changes = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path, ""), after.get(path, "")
        kind: Literal["added", "changed", "removed"] = (
            "added" if path not in before else "removed" if path not in after else "changed"
        )
        lines = None
        if old is not None and new is not None and len(old) + len(new) <= left and _is_short(old) and _is_short(new):
            left -= len(old) + len(new)
            lines = tuple(_lines(old.splitlines(), new.splitlines(), work))
        changes.append(FileChange(path, kind, lines))
    return changes


def _is_short(text: str) -> bool:
    return len(text) <= LONGEST_TEXT and text.count("\n") <= MOST_LINES


def _lines(old: list[str], new: list[str], work: WorkBudget) -> Iterator[DiffLine]:
    for number, group in enumerate(group_parts(find_parts(old, new, work), CONTEXT)):
        if number or group[0].i1 or group[0].j1:
            yield DiffLine("gap", "")
        for is_same, i1, i2, j1, j2 in group:
            if is_same:
                yield from (DiffLine("same", line) for line in old[i1:i2])
            else:
                yield from (DiffLine("removed", line) for line in old[i1:i2])
                yield from (DiffLine("added", line) for line in new[j1:j2])
