"""An execution as a timeline: its steps in order, the runs of a loop together, each with its place in time."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from appliance.core import clock
from appliance.processes.executions import Execution, StepRunRow

from .outline import KIND_NAMES, StepLine

SHOWN_RUNS = 25
TROUBLE = ("failed", "retrying", "timed_out", "cancelled", "running", "waiting")
LEAST_WIDTH = 0.6


@dataclass(frozen=True)
class Bar:
    """Where something lies in the execution's time, in percent."""

    start: float
    width: float


@dataclass(frozen=True)
class StepEntry:
    """One step: its only run, or the `runs` of a loop's step that are shown out of `total`."""

    path: str
    step: str
    kind: str
    kind_name: str
    text: str
    depth: int
    status: str
    bar: Bar | None
    duration_ms: int | None
    runs: list[StepRunRow]
    total: int
    counts: list[tuple[str, int]]
    is_loop: bool
    key: str


def make_timeline(execution: Execution, runs: Sequence[StepRunRow], steps: Sequence[StepLine]) -> list[StepEntry]:
    """The steps that have run, those of loops grouped, then those still to come."""
    texts = dict(_texts(steps, ""))
    by_path: dict[str, list[StepRunRow]] = {}
    for run in runs:
        by_path.setdefault(run.path, []).append(run)
    span = _Span(execution, runs)
    order = {path: index for index, path in enumerate(texts)}
    paths = sorted(by_path, key=lambda path: order.get(path, len(order)))
    entries = [_entry(path, by_path[path], texts.get(path, ""), span) for path in paths]
    return entries + [_pending(line) for line in steps if line.id not in by_path]


def _texts(steps: Iterable[StepLine], above: str) -> Iterable[tuple[str, str]]:
    for line in steps:
        path = f"{above}/{line.id}" if above else line.id
        yield path, line.name or line.text
        for group in line.groups:
            yield from _texts(group.steps, path)


class _Span:
    """The time from the execution's beginning to its end, or to now."""

    def __init__(self, execution: Execution, runs: Sequence[StepRunRow]) -> None:
        begins = [run.started_at for run in runs if run.started_at is not None]
        self.start = min([execution.started_at or execution.created_at, *begins])
        self.end = max(execution.finished_at or clock.now_ms(), self.start + 1)

    def bar(self, begin: int, end: int) -> Bar:
        whole = self.end - self.start
        width = max(LEAST_WIDTH, 100 * (end - begin) / whole)
        return Bar(round(min(100 * (begin - self.start) / whole, 100 - LEAST_WIDTH), 2), round(min(width, 100), 2))


def _entry(path: str, runs: list[StepRunRow], text: str, span: _Span) -> StepEntry:
    first = runs[0]
    counts = Counter(run.status for run in runs)
    begins = [run.started_at for run in runs if run.started_at is not None]
    ends = [run.finished_at or span.end for run in runs if run.started_at is not None]
    bar = span.bar(min(begins), max(ends)) if begins else None
    finished = all(run.finished_at is not None for run in runs)
    # The runs that need attention first; of those that went well, the earliest.
    shown = sorted(runs, key=lambda run: (run.status not in TROUBLE, _order(run.iteration)))[:SHOWN_RUNS]
    return StepEntry(
        path, first.step, first.kind, KIND_NAMES.get(first.kind, first.kind), text, path.count("/"), _status(counts), bar,
        max(ends) - min(begins) if begins and finished else None, shown, len(runs), counts.most_common(),
        len(runs) > 1 or bool(first.iteration), path.replace("/", "-"),
    )  # fmt: skip


def _order(iteration: str) -> tuple[int, ...]:
    return tuple(int(part) for part in iteration.replace("/", ".").split(".") if part.isdigit())


def _status(counts: "Counter[str]") -> str:
    """The state that stands for all runs of a step: trouble before progress before success."""
    for status in ("failed", "timed_out", "running", "retrying", "waiting", "queued", "pending", "cancelled", "succeeded"):
        if counts[status]:
            return status
    return "skipped"


def _pending(line: StepLine) -> StepEntry:
    return StepEntry(
        line.id, line.id, line.kind, line.kind_name, line.name or line.text, 0, "pending", None, None, [], 0, [], False, line.id
    )  # fmt: skip
