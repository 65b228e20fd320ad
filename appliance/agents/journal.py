"""What a run did, entry by entry, and what that says about how to go on; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["asked", "answered", "unanswered", "called", "returned", "dispatched", "waiting", "resumed", "ended"]


@dataclass(frozen=True)
class Entry:
    """One thing that a run did.  `call` counts the tool calls of a turn from 1; 0 is the turn itself.

    `asked`: a model's turn began; `answered` and `unanswered` say what came of it.  `called`: a tool call began, with its
    arguments and its key; `dispatched`, with what its effect began, in the very write that began it; `returned` says what came
    of it.  `waiting`: a person is asked in the middle of a call; `resumed` says what they decided.  `ended`: how the run ended.
    """

    kind: Kind
    turn: int
    call: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    at: int = 0


@dataclass
class CallState:
    """Where a tool call stands."""

    begun: Mapping[str, Any] | None = None
    waiting: Mapping[str, Any] | None = None
    resumed: Mapping[str, Any] | None = None
    dispatched: Mapping[str, Any] | None = None
    returned: Mapping[str, Any] | None = None


class Journal:
    """The entries of one run, with what the next steps have to know of them."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.last = 0
        self.answers: dict[int, Mapping[str, Any]] = {}
        self.failures: dict[int, int] = {}
        self.calls: dict[tuple[int, int], CallState] = {}
        self.refused: dict[str, str] = {}
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Note an entry that is durable."""
        self.last = max(self.last, entry.number)
        if entry.kind == "answered":
            self.answers[entry.turn] = entry.data
        elif entry.kind == "unanswered":
            self.failures[entry.turn] = self.failures.get(entry.turn, 0) + 1
        elif entry.kind in ("called", "dispatched", "waiting", "resumed", "returned"):
            self._note_call(self.call(entry.turn, entry.call), entry)

    def call(self, turn: int, call: int) -> CallState:
        """Where this call stands."""
        return self.calls.setdefault((turn, call), CallState())

    def _note_call(self, state: CallState, entry: Entry) -> None:
        if entry.kind == "called":
            state.begun = entry.data
        elif entry.kind == "returned":
            state.returned = entry.data
        elif entry.kind == "dispatched":
            state.dispatched = entry.data
        elif entry.kind == "waiting":  # asked anew: what the call did before no longer permits anything
            state.waiting, state.resumed, state.dispatched = entry.data, None, None
        else:
            state.resumed = entry.data
            digest = (state.waiting or {}).get("digest")
            if digest and entry.data["status"] != "approved":
                self.refused[digest] = str(entry.data["status"])

    @property
    def tool_calls(self) -> int:
        """How many tool calls were begun."""
        return sum(state.begun is not None for state in self.calls.values())
