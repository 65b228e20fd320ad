"""The host of a replayed step: answers its calls from the journal only."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from appliance.core import clock
from appliance.core.errors import TimedOut
from appliance.processes.engine.store import JournalEntry
from appliance.processes.host.model_calls import recorded_args
from appliance.sandbox import HostCall, Settled

from .difference import is_same_json

CallView = dict[str, Any]


class ReplayDiverged(Exception):
    """The code makes another call than was recorded; `recorded` or `replayed` is None where there is no call."""

    def __init__(self, call: int | None, recorded: CallView | None, replayed: CallView | None) -> None:
        super().__init__(f"call {call}" if call else "the step")
        self.call, self.recorded, self.replayed = call, recorded, replayed


class EndOfRecord(Exception):
    """The code waits for the answer to `call`, which the recorded run never received (or, not `is_recorded`, never made)."""

    def __init__(self, call: HostCall, *, is_recorded: bool) -> None:
        super().__init__(f"call {call.id}")
        self.call, self.is_recorded = call, is_recorded


class ReplayHost:
    """Answers calls in the recorded order.

    `is_cut_off`: the recorded run failed, so calls missing from the journal may have been in flight.  `open_answer` turns a
    journal entry into the value for the code.
    """

    def __init__(
        self, recorded: Sequence[JournalEntry], open_answer: Callable[[JournalEntry], Any], ends: float, *, is_cut_off: bool
    ) -> None:
        self._recorded = {entry.call: entry for entry in recorded}
        entries = sorted((entry for entry in recorded if entry.position >= 0), key=lambda entry: entry.position)
        self._due = deque(entry.call for entry in entries)
        self._open_answer = open_answer
        self._ends = ends
        self._is_cut_off = is_cut_off
        self._submitted: dict[int, HostCall] = {}
        self._answered: set[int] = set()

    def submit(self, call: HostCall, clock: list[int]) -> None:
        """Compares a call with the recorded one; raises Diverged when it differs."""
        entry = self._recorded.get(call.id)
        if entry is None and not self._is_cut_off:
            raise ReplayDiverged(call.id, None, to_view(call.method, call.args))
        args = recorded_args(call.method, call.args)
        if entry is not None and (entry.method != call.method or not is_same_json(entry.args, args)):
            raise ReplayDiverged(call.id, to_view(entry.method, entry.args), to_view(call.method, args))
        self._submitted[call.id] = call

    def poll(self) -> None:
        """Called several times a second while the step computes; raises TimedOut after the deadline of the replay."""
        if clock.monotonic() > self._ends:
            raise TimedOut(timeout_message())

    def wait(self, timeout: float) -> Settled | None:
        """The next recorded answer; raises RecordEnds when there is none left."""
        if not self._due:
            call = next(call for number, call in self._submitted.items() if number not in self._answered)
            raise EndOfRecord(call, is_recorded=call.id in self._recorded)
        number = self._due.popleft()
        self._answered.add(number)
        entry = self._recorded[number]
        if number not in self._submitted:
            raise ReplayDiverged(number, to_view(entry.method, entry.args), None)
        return Settled(number, entry.ok, self._open_answer(entry))

    def check_all_repeated(self) -> None:
        """Raises Diverged when the code ended without making every call of the recorded run."""
        missing = sorted(self._recorded.keys() - self._submitted.keys())
        if missing:
            entry = self._recorded[missing[0]]
            raise ReplayDiverged(entry.call, to_view(entry.method, entry.args), None)


def to_view(method: str, args: Any) -> CallView:
    """A call as it is reported in a divergence."""
    return {"method": method, "args": args}


def timeout_message() -> str:
    return "the replay took longer than limits.replay_seconds; replay a single step with `step`"
