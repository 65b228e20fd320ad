"""Differences between two versions of a process: its own members, its steps one by one, and its files line by line."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from appliance.core.errors import ValidationFailed
from appliance.core.scope import TenantScope
from appliance.processes.rehearsal.difference import Change, list_changes

from . import versions
from .nodes import BLOCK_KINDS
from .sequence_diff import WorkBudget, find_matches, find_parts, group_parts

ChangeKind = Literal["added", "removed", "changed"]
# The budget of comparison steps for all files together, a fraction of a second; beyond it whole blocks count as replaced.
MAX_WORK = 600_000
CONTEXT_LINES = 3
MAX_DIFF = 200_000


@dataclass(frozen=True)
class StepChange:
    """One step that was added, removed or changed; `changes` are those of its own members, not of the steps in it.

    `moved`: its position among the steps of both versions has changed.
    """

    step: str
    happened: ChangeKind
    moved: bool = False
    changes: list[Change] = field(default_factory=list)


@dataclass(frozen=True)
class FileChange:
    """One file; `diff` is a unified diff, None if it is too long."""

    path: str
    happened: ChangeKind
    diff: str | None


@dataclass(frozen=True)
class VersionDiff:
    """The changes from one version to another."""

    changes: list[Change]
    steps: list[StepChange]
    files: list[FileChange]

    @property
    def is_identical(self) -> bool:
        return not (self.changes or self.steps or self.files)


Content = tuple[Mapping[str, Any], Mapping[str, str]]
VersionRef = int | Literal["draft"]


@dataclass(frozen=True)
class Comparison:
    """The difference from an older to a newer version; the draft is the newest, 0 stands for an empty process."""

    older: VersionRef
    newer: VersionRef
    diff: VersionDiff


def compare(scope: TenantScope, process_id: str, version: int, against: VersionRef | None) -> Comparison:
    """Compare a version with another one, the draft, or (None) its predecessor; NotFound if one does not exist."""
    other = version - 1 if against is None else against
    if other == version:
        raise ValidationFailed("a version cannot be compared with itself; give another one, or draft", pointer="/against")
    older, newer = (version, other) if other == "draft" or other > version else (other, version)
    return Comparison(
        older, newer, compare_versions(load_content(scope, process_id, older), load_content(scope, process_id, newer))
    )


def load_content(scope: TenantScope, process_id: str, version: VersionRef) -> Content:
    """Definition and files of a version or the draft; NotFound if it does not exist."""
    if version == 0:
        return {}, {}
    row = versions.get_process(scope, process_id) if version == "draft" else versions.get_version(scope, process_id, version)
    return row.definition, row.files


def compare_versions(old: Content, new: Content) -> VersionDiff:
    """The changes from the old definition and files to the new ones."""
    (before, files_before), (after, files_after) = old, new
    own = [{name: value for name, value in each.items() if name != "steps"} for each in (before, after)]
    paths = sorted(files_before.keys() | files_after.keys())
    work, files = WorkBudget(MAX_WORK), []
    for path in paths:
        texts = files_before.get(path), files_after.get(path)
        if texts[0] != texts[1]:
            files.append(_file_change(path, texts, work))
    return VersionDiff(list_changes(own[0], own[1]), list(_step_changes(before, after)), files)


# -- steps


@dataclass(frozen=True)
class _PlacedStep:
    """A step with its own members and the block it belongs to."""

    members: Any
    block: str


def _step_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[StepChange]:
    old, new = dict(_steps(before.get("steps"), "")), dict(_steps(after.get("steps"), ""))
    moved_steps = _find_moved(old, new)
    for name, step in new.items():
        if name not in old:
            yield StepChange(name, "added", changes=list_changes(None, step.members))
            continue
        changes = list_changes(old[name].members, step.members)
        if changes or name in moved_steps:
            yield StepChange(name, "changed", name in moved_steps, changes)
    for name, step in old.items():
        if name not in new:
            yield StepChange(name, "removed", changes=list_changes(step.members, None))


def _find_moved(old: Mapping[str, _PlacedStep], new: Mapping[str, _PlacedStep]) -> set[str]:
    """The steps of both versions whose block or order has changed."""
    moved = {name for name in old.keys() & new.keys() if old[name].block != new[name].block}
    orders = [[name for name in each if name in old and name in new and name not in moved] for each in (old, new)]
    runs, _ = find_matches(orders[0], orders[1], WorkBudget(MAX_WORK), MAX_WORK)
    in_place = {name for run in runs for name in orders[0][run.old : run.old + run.size]}
    return moved | (set(orders[0]) - in_place)


def _steps(value: Any, block: str) -> Iterator[tuple[str, _PlacedStep]]:
    """Every step by its id, outer before inner; a draft may contain anything, so invalid steps are skipped."""
    for step in value if isinstance(value, list) else ():
        if not isinstance(step, dict) or not isinstance(step.get("id"), str):
            continue
        kind = next((name for name in BLOCK_KINDS if name in step), None)
        inner = list(_blocks(kind, step[kind])) if kind else []
        own = step if kind is None else {**step, kind: _without_steps(kind, step[kind])}
        yield step["id"], _PlacedStep(own, block)
        for name, steps in inner:
            yield from _steps(steps, f"{step['id']}/{name}")


def _blocks(kind: str, value: Any) -> Iterator[tuple[str, Any]]:
    if kind == "for_each" and isinstance(value, dict):
        yield "", value.get("steps")
    elif kind == "parallel" and isinstance(value, dict):
        yield from ((str(name), steps) for name, steps in value.items())
    elif kind == "branch" and isinstance(value, list):
        yield from ((str(index), each.get("steps")) for index, each in enumerate(value) if isinstance(each, dict))


def _without_steps(kind: str, value: Any) -> Any:
    if kind == "for_each" and isinstance(value, dict):
        return {name: value for name, value in value.items() if name != "steps"}
    if kind == "parallel" and isinstance(value, dict):
        return sorted(str(name) for name in value)
    if kind == "branch" and isinstance(value, list):
        return [{k: v for k, v in each.items() if k != "steps"} if isinstance(each, dict) else each for each in value]
    return value


# -- files


def _file_change(path: str, texts: tuple[str | None, str | None], work: WorkBudget) -> FileChange:
    """One file that differs."""
    happened: ChangeKind = "added" if texts[0] is None else "removed" if texts[1] is None else "changed"
    names = ("/dev/null" if texts[0] is None else f"a/{path}", "/dev/null" if texts[1] is None else f"b/{path}")
    output, size = [f"--- {names[0]}\n+++ {names[1]}\n"], 0
    old, new = ((text or "").splitlines(keepends=True) for text in texts)
    for line in _unified(old, new, work):
        output.append(line)
        size += len(line)
        if size > MAX_DIFF:
            return FileChange(path, happened, None)
    return FileChange(path, happened, "".join(output) if size else "")


def _unified(old: list[str], new: list[str], work: WorkBudget) -> Iterator[str]:
    for group in group_parts(find_parts(old, new, work), CONTEXT_LINES):
        first, last = group[0], group[-1]
        yield f"@@ -{_range(first.i1, last.i2)} +{_range(first.j1, last.j2)} @@\n"
        for part in group:
            if part.is_same:
                yield from (_terminated(f" {line}") for line in old[part.i1 : part.i2])
                continue
            yield from (_terminated(f"-{line}") for line in old[part.i1 : part.i2])
            yield from (_terminated(f"+{line}") for line in new[part.j1 : part.j2])


def _range(start: int, end: int) -> str:
    """A line range as in a unified diff: a single line without a count, an empty range by the line before it."""
    if end - start == 1:
        return str(end)
    return f"{start + (end > start)},{end - start}"


def _terminated(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
