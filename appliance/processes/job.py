"""One claimed execution in this process: what is under way, how long it has been active, and the names its expressions see."""

import threading
from collections.abc import Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from appliance.core import clock

from .compiled import Compiled
from .engine import History, Key, StepRun
from .store import Claim
from .task import Result


@dataclass(eq=False)
class Begun:
    """An attempt under way, since `at` of the monotonic clock; `shown` once its row says so."""

    run: StepRun
    at: float
    shown: bool = False


@dataclass
class Job:
    """One claimed execution.  `limit_ms` is the active time it may take; `attempts` are what the heartbeat shows."""

    claim: Claim
    compiled: Compiled
    history: History
    limit_ms: int
    began: float = field(default_factory=clock.monotonic)
    cancel: threading.Event = field(default_factory=threading.Event)
    attempts: dict[Key, Begun] = field(default_factory=dict)
    prolonged: float = field(default_factory=clock.monotonic)
    answered: Future[None] = field(default_factory=Future)

    def note_answer(self) -> None:
        """From any thread: something has been answered that a step of it waits for."""
        with suppress(InvalidStateError):  # noted already, and not looked at yet
            self.answered.set_result(None)

    def is_cut_short(self) -> bool:
        """Whether nobody waits any more for what is under way: it is being cancelled, or a step has ended it."""
        return self.cancel.is_set() or self.history.stopped is not None

    def active_ms(self) -> int:
        return self.claim.active_ms + int((clock.monotonic() - self.began) * 1000)

    def left_ms(self) -> int:
        return self.limit_ms - self.active_ms()

    def names(self, iteration: str, path: str | None = None) -> dict[str, Any]:
        """What expressions and code of the step at `path` see in this iteration."""
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
        return names | self._item_names(path, iteration) if iteration and path else names

    def _item_names(self, path: str, iteration: str) -> dict[str, Any]:
        """The item and index of every for_each around `path` in this iteration; an inner one hides an outer of its name."""
        names: dict[str, Any] = {}
        indexes = iteration.split(".")
        depth = 0
        for part in _ancestors(path):
            step = self.compiled.steps[part]
            if step.kind != "for_each" or depth >= len(indexes):
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
    """A finished attempt, ready to be committed: `attempt` was made, `run` is the step run after it."""

    run: StepRun
    result: Result
    attempt: int
