"""The host of a step that is replayed: its calls are answered from the journal, and nothing ever goes out."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from appliance.core import clock
from appliance.core.errors import TimedOut
from appliance.processes.engine.store import JournalEntry
from appliance.processes.host.model_calls import recorded_args
from appliance.sandbox import HostCall, Settled

from .difference import is_same

Asked = dict[str, Any]


class Diverged(Exception):
    """The code asks something else than was recorded; None: nothing was recorded, or nothing is asked now."""

    def __init__(self, call: int | None, recorded: Asked | None, replayed: Asked | None) -> None:
        super().__init__(f"call {call}" if call else "the step")
        self.call, self.recorded, self.replayed = call, recorded, replayed


class RecordEnds(Exception):
    """The code waits for the answer to `call`, which never came in the recorded run; the journal may not even have it."""

    def __init__(self, call: HostCall, *, is_recorded: bool) -> None:
        super().__init__(f"call {call.id}")
        self.call, self.is_recorded = call, is_recorded


class ReplayHost:
    """Answers calls in the order in which they were answered then.

    `is_cut_off`: the recorded run failed, so that calls which the journal does not have may have been on their way.
    `open_answer` makes what the code is given of what the journal has.
    """

    def __init__(
        self, recorded: Sequence[JournalEntry], open_answer: Callable[[JournalEntry], Any], ends: float, *, is_cut_off: bool
    ) -> None:
        self._recorded = {entry.call: entry for entry in recorded}
        answered = sorted((entry for entry in recorded if entry.position >= 0), key=lambda entry: entry.position)
        self._due = deque(entry.call for entry in answered)
        self._open_answer = open_answer
        self._ends = ends
        self._is_cut_off = is_cut_off
        self._asked: dict[int, HostCall] = {}
        self._answered: set[int] = set()

    def submit(self, call: HostCall, clock: list[int]) -> None:
        """Compare a call with the recorded one."""
        entry = self._recorded.get(call.id)
        if entry is None and not self._is_cut_off:
            raise Diverged(call.id, None, asked(call.method, call.args))
        args = recorded_args(call.method, call.args)
        if entry is not None and (entry.method != call.method or not is_same(entry.args, args)):
            raise Diverged(call.id, asked(entry.method, entry.args), asked(call.method, args))
        self._asked[call.id] = call

    def poll(self) -> None:
        """Asked several times a second while the step computes: the replay as a whole has its time too."""
        if clock.monotonic() > self._ends:
            raise TimedOut(out_of_time())

    def wait(self, timeout: float) -> Settled | None:
        """The next recorded answer."""
        if not self._due:
            call = next(call for number, call in self._asked.items() if number not in self._answered)
            raise RecordEnds(call, is_recorded=call.id in self._recorded)
        number = self._due.popleft()
        self._answered.add(number)
        entry = self._recorded[number]
        if number not in self._asked:
            raise Diverged(number, asked(entry.method, entry.args), None)
        return Settled(number, entry.ok, self._open_answer(entry))

    def check_all_asked(self) -> None:
        """Diverged when the code ended without asking what it asked in the recorded run."""
        missing = sorted(self._recorded.keys() - self._asked.keys())
        if missing:
            entry = self._recorded[missing[0]]
            raise Diverged(entry.call, asked(entry.method, entry.args), None)


def asked(method: str, args: Any) -> Asked:
    """A call as a divergence tells it."""
    return {"method": method, "args": args}


def out_of_time() -> str:
    return "the replay took longer than limits.replay_seconds; replay one step of it, with `step`"
