"""An execution as a timeline: its steps in order, the runs of a loop counted together, each with its place in time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from appliance.console.pages.processes.outline import StepLine, kind_name
from appliance.core import clock
from appliance.processes import Execution, StepRunRow
from appliance.processes.executions import StepCount, Try

LEAST_WIDTH = 0.6
# The state that stands for all runs of a step: trouble before progress before success.
_FIRST = ("failed", "timed_out", "running", "retrying", "waiting", "queued", "pending", "cancelled", "succeeded")


@dataclass(frozen=True)
class Bar:
    """Where something lies in the execution's time, in percent; `ticks` are where attempts ended."""

    start: float
    width: float
    ticks: tuple[float, ...] = ()


@dataclass(frozen=True)
class StepEntry:
    """One step: its only `run`, or a loop's `runs` that are shown out of `total`."""

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
    tries: Sequence[Try] = ()

    @property
    def key(self) -> str:
        """Names its elements on the page."""
        return self.path.replace("/", "-")


@dataclass(frozen=True)
class Ran:
    """What has run: counted by step, the runs outside of loops, those in loops that are shown, and attempts by path and item."""

    counts: Sequence[StepCount]
    runs: Mapping[str, StepRunRow]
    in_loops: Mapping[str, Sequence[StepRunRow]]
    tries: Mapping[tuple[str, str], Sequence[Try]]


def make_timeline(execution: Execution, ran: Ran, steps: Sequence[StepLine]) -> list[StepEntry]:
    """The steps that have run in the order of the definition, then those still to come."""
    texts = dict(_texts(steps, ""))
    span = _Span(execution, ran.counts)
    order = {path: index for index, path in enumerate(texts)}
    counts = sorted(ran.counts, key=lambda each: order.get(each.path, len(order)))
    entries = [_entry(each, ran, texts.get(each.path, ""), span) for each in counts]
    known = {each.path for each in ran.counts}
    return entries + [_pending(line) for line in steps if line.id not in known]


def _texts(steps: Iterable[StepLine], above: str) -> Iterable[tuple[str, str]]:
    for line in steps:
        path = f"{above}/{line.id}" if above else line.id
        yield path, line.name or line.text
        for group in line.groups:
            yield from _texts(group.steps, path)


class _Span:
    """The time from the execution's beginning to its end, or to now."""

    def __init__(self, execution: Execution, counts: Sequence[StepCount]) -> None:
        begins = [each.began for each in counts if each.began is not None]
        self.start = min([execution.started_at or execution.created_at, *begins])
        self.end = max(execution.finished_at or clock.now_ms(), self.start + 1)

    def bar(self, begin: int, end: int, tries: Sequence[Try] = ()) -> Bar:
        width = max(LEAST_WIDTH, self._share(begin, end))
        ticks = tuple(round(min(self._share(self.start, each.at), 100), 2) for each in tries[:-1])
        return Bar(round(min(self._share(self.start, begin), 100 - LEAST_WIDTH), 2), round(min(width, 100), 2), ticks)

    def _share(self, begin: int, end: int) -> float:
        whole: int = self.end - self.start
        return 100 * (end - begin) / whole


def _entry(count: StepCount, ran: Ran, text: str, span: _Span) -> StepEntry:
    run = None if count.is_loop else ran.runs.get(count.path)
    tries = ran.tries.get((count.path, ""), ()) if run is not None else ()
    end = span.end if count.ended is None else count.ended
    bar = span.bar(count.began, end, tries) if count.began is not None else None
    took = count.ended - count.began if count.began is not None and count.ended is not None else None
    most = sorted(count.by_status.items(), key=lambda each: -each[1])
    return StepEntry(
        count.path, count.step, count.kind, kind_name(count.kind), text, count.path.count("/"),
        state_of(count.by_status), bar, took, run,
        ran.in_loops.get(count.path, ()) if count.is_loop else (), count.total, most, count.is_loop, tries,
    )  # fmt: skip


def state_of(by_status: Mapping[str, int]) -> str:
    """The state that stands for all runs of a step."""
    return next((each for each in _FIRST if by_status.get(each)), "skipped")


def _pending(line: StepLine) -> StepEntry:
    return StepEntry(line.id, line.id, line.kind, line.kind_name, line.name or line.text, 0, "pending")
