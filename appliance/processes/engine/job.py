"""One claimed execution in this process: running attempts, active time, and the names available to its expressions."""

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from appliance.core import clock
from appliance.processes.definitions.compiled import CompiledVersion

from .decide import History, Key, StepRun, is_undoable
from .store import Claim
from .task import Result


@dataclass(eq=False)
class RunningAttempt:
    """A running attempt, started `at` (monotonic clock); `shown` once its row says that it is running."""

    run: StepRun
    started: float
    is_shown: bool = False


@dataclass
class Job:
    """One claimed execution.  `limit_ms` is its maximum active time; `attempts` are the running ones, for the heartbeat.

    `after` describes its end once that is decided; compensation then has the same time again.  `refusal` is why it must not
    run at all.  `apart` is the clock offset at which its history was read.
    """

    claim: Claim
    compiled: CompiledVersion
    history: History
    limit_ms: int
    started: float = field(default_factory=clock.monotonic)
    cancel: threading.Event = field(default_factory=threading.Event)
    attempts: dict[Key, RunningAttempt] = field(default_factory=dict)
    lease_renewed: float = field(default_factory=clock.monotonic)
    answer_signal: Future[None] = field(default_factory=Future)
    compensation: Mapping[str, Any] | None = None
    last_undo_order: int | None = None
    refusal: dict[str, Any] | None = None
    clock_offset: int | None = None

    def note_answer(self) -> None:
        """From any thread: a call that one of its steps waits for has been answered."""
        with suppress(InvalidStateError):  # already set, and not yet handled
            self.answer_signal.set_result(None)

    def is_cut_short(self) -> bool:
        """Whether running attempts are no longer needed: the execution is being cancelled, or a step has ended it."""
        return self.compensation is None and (self.cancel.is_set() or self.history.stopped is not None)

    def start_compensation(self, compensation: Mapping[str, Any], history: History) -> None:
        """Switch to compensation: the end is decided; `history` was loaded with the same status."""
        self.limit_ms += compensation["from_ms"]
        self.compensation, self.history = compensation, history

    def with_undo_order(self, performed: "Performed") -> "Performed":
        """The same with the next `undo_order`, if the run can be undone."""
        run = performed.run
        if run.undo_order is not None or not is_undoable(self.compiled.steps[run.path], run):
            return performed
        if self.last_undo_order is None:
            self.last_undo_order = max((each.undo_order or 0 for each in self.history.runs.values()), default=0)
        self.last_undo_order += 1
        return replace(performed, run=replace(run, undo_order=self.last_undo_order))

    def active_ms(self) -> int:
        return self.claim.active_ms + int((clock.monotonic() - self.started) * 1000)

    def remaining_ms(self) -> int:
        return self.limit_ms - self.active_ms()

    def names(self, iteration: str, path: str | None = None) -> dict[str, Any]:
        """The names available to expressions and code of the step at `path` in this iteration."""
        claim = self.claim
        names: dict[str, Any] = {
            "input": claim.input,
            "steps": self.history.outputs_for(iteration),
            "errors": self.history.errors_for(iteration),
            "execution": {
                "id": claim.execution_id, "process_id": claim.process_id, "version": claim.version, "label": claim.label,
                "created_at": clock.rfc3339(claim.created_at), "started_at": clock.rfc3339(claim.started_at),
            },
            "tenant": {"id": claim.scope.tenant_id},
        }  # fmt: skip
        if path is None:
            return names
        if iteration:
            names |= self._item_names(path, iteration)
        return names | self._compensation_names(path, iteration) if self.compensation is not None else names

    def _compensation_names(self, path: str, iteration: str) -> dict[str, Any]:
        """The error that ended the execution, and for steps that undo another one its output."""
        names: dict[str, Any] = {"error": (self.compensation or {})["error"]}
        steps, parts = self.compiled.steps, path.split("/")
        loops = 0
        for depth in range(1, len(parts)):
            around = steps.get("/".join(parts[:depth]))
            if around is not None and around.undo and parts[depth] == "undo":
                place = ".".join(iteration.split(".")[:loops])
                return names | {"output": self.history.runs[around.path, place].output}
            loops += around is not None and around.kind == "for_each"
        return names

    def _item_names(self, path: str, iteration: str) -> dict[str, Any]:
        """The item and index of every for_each around `path` in this iteration; inner ones shadow outer ones."""
        names: dict[str, Any] = {}
        indexes = iteration.split(".")
        depth = 0
        for part in _ancestors(path):
            step = self.compiled.steps.get(part)  # the path part "undo" is not a step
            if step is None or step.kind != "for_each" or depth >= len(indexes):
                continue
            run = self.history.runs[part, ".".join(indexes[:depth])]
            index = int(indexes[depth])
            names |= {step.settings["as"]: run.state["items"][index], "index": index}
            depth += 1
        return names


def _ancestors(path: str) -> Iterable[str]:
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))


@dataclass(frozen=True)
class Performed:
    """A finished attempt to commit: `attempt` is its number, `run` the step run after it."""

    run: StepRun
    result: Result
    attempt: int
