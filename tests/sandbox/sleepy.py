"""A host that lets steps sleep, and assertions about outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from appliance.sandbox import SUSPEND, HostCall, Outcome, Settled, Snapshot, Suspend


class SleepyHost:
    """Answers reads at once, keeps all other calls open, and lets the step sleep when nothing is left to answer."""

    def __init__(self, *answers: Settled) -> None:
        self.calls: list[HostCall] = []
        self.clocks: list[list[int]] = []
        self._answers = list(answers)

    def submit(self, call: HostCall, clock: list[int]) -> None:
        self.calls.append(call)
        self.clocks.append(clock)
        if call.method == "datapool.query":
            page = call.args[1]["page"]
            self._answers.append(Settled(call.id, True, {"items": [page * 10 + 1, page * 10 + 2]}))

    def wait(self, timeout: float) -> Settled | Suspend | None:
        return self._answers.pop(0) if self._answers else SUSPEND


def suspended(outcome: Outcome) -> Snapshot:
    assert outcome.failure is None
    assert outcome.snapshot is not None
    return outcome.snapshot


def finished(outcome: Outcome) -> Any:
    assert outcome.failure is None
    assert outcome.snapshot is None
    return outcome.output


def failed(outcome: Outcome) -> tuple[str, str | None]:
    assert outcome.failure is not None
    assert outcome.snapshot is None
    return outcome.failure.failure_class, outcome.failure.code


def answers(snapshot: Snapshot, *values: Any) -> Sequence[Settled]:
    return [Settled(number, True, value) for number, value in zip(snapshot.pending, values, strict=True)]
