"""The timeline of an execution: its steps in order, each with its position in time; runs of a loop are grouped."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from appliance.console.pages.processes.outline import StepLine, kind_name
from appliance.core import clock
from appliance.processes import Execution, StepRunRow
from appliance.processes.executions import Attempt, StepCount

LEAST_WIDTH = 0.6
# Which state represents all runs of a step, by priority: problems before progress before success.
_FIRST = ("failed", "timed_out", "running", "retrying", "waiting", "queued", "pending", "cancelled", "succeeded")


@dataclass(frozen=True)
class Bar:
    """The position of a step within the execution's time, in percent; `ticks` mark the ends of failed attempts."""

    start: float
    width: float
    ticks: tuple[float, ...] = ()


@dataclass(frozen=True)
class StepEntry:
    """One step of the timeline: its single `run`, or in a loop the `runs` that are shown out of `total`."""

    path: str
    step: str
    kind: str
    kind_name: str
    text: str
    depth: int
    status: str
    bar: Bar | None = None
    duration_ms: int | None = None
    run: StepRunRow | None = None
    runs: Sequence[StepRunRow] = ()
    total: int = 0
    counts: Sequence[tuple[str, int]] = ()
    is_loop: bool = False
    tries: Sequence[Attempt] = ()

    @property
    def key(self) -> str:
        """The id of the step's elements on the page."""
        return self.path.replace("/", "-")


@dataclass(frozen=True)
class RunHistory:
    """What has run: counts by step, runs outside of loops, the shown runs in loops, and attempts by (path, item)."""

    counts: Sequence[StepCount]
    runs: Mapping[str, StepRunRow]
    in_loops: Mapping[str, Sequence[StepRunRow]]
    tries: Mapping[tuple[str, str], Sequence[Attempt]]


def build_timeline(execution: Execution, history: RunHistory, steps: Sequence[StepLine]) -> list[StepEntry]:
    """The steps that have run, in the order of the definition, followed by those that have not."""
    texts = dict(_texts(steps, ""))
    span = _Span(execution, history.counts)
    order = {path: index for index, path in enumerate(texts)}
    counts = sorted(history.counts, key=lambda each: order.get(each.path, len(order)))
    entries = [_entry(each, history, texts.get(each.path, ""), span) for each in counts]
    paths_run = {each.path for each in history.counts}
    return entries + [_pending(line) for line in steps if line.id not in paths_run]


def _texts(steps: Iterable[StepLine], above: str) -> Iterable[tuple[str, str]]:
    for line in steps:
        path = f"{above}/{line.id}" if above else line.id
        yield path, line.name or line.text
        for group in line.groups:
            yield from _texts(group.steps, path)


class _Span:
    """The time from the execution's start to its end, or to now."""

    def __init__(self, execution: Execution, counts: Sequence[StepCount]) -> None:
        begins = [each.started for each in counts if each.started is not None]
        self.start = min([execution.started_at or execution.created_at, *begins])
        self.end = max(execution.finished_at or clock.now_ms(), self.start + 1)

    def bar(self, begin: int, end: int, tries: Sequence[Attempt] = ()) -> Bar:
        width = max(LEAST_WIDTH, self._share(begin, end))
        ticks = tuple(round(min(self._share(self.start, each.at), 100), 2) for each in tries[:-1])
        return Bar(round(min(self._share(self.start, begin), 100 - LEAST_WIDTH), 2), round(min(width, 100), 2), ticks)

    def _share(self, begin: int, end: int) -> float:
        whole: int = self.end - self.start
        return 100 * (end - begin) / whole


def _entry(count: StepCount, history: RunHistory, text: str, span: _Span) -> StepEntry:
    run = None if count.is_loop else history.runs.get(count.path)
    tries = history.tries.get((count.path, ""), ()) if run is not None else ()
    end = span.end if count.ended is None else count.ended
    bar = span.bar(count.started, end, tries) if count.started is not None else None
    took = count.ended - count.started if count.started is not None and count.ended is not None else None
    most = sorted(count.by_status.items(), key=lambda each: -each[1])
    return StepEntry(
        path=count.path, step=count.step, kind=count.kind, kind_name=kind_name(count.kind), text=text, depth=count.path.count("/"),
        status=state_of(count.by_status), bar=bar, duration_ms=took, run=run,
        runs=history.in_loops.get(count.path, ()) if count.is_loop else (), total=count.total, counts=most, is_loop=count.is_loop,
        tries=tries,
    )  # fmt: skip


def state_of(by_status: Mapping[str, int]) -> str:
    """The state that represents all runs of a step."""
    return next((each for each in _FIRST if by_status.get(each)), "skipped")


def _pending(line: StepLine) -> StepEntry:
    return StepEntry(
        path=line.id, step=line.id, kind=line.kind, kind_name=line.kind_name, text=line.name or line.text, depth=0,
        status="pending",
    )
