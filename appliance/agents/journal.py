"""The journal of a run, entry by entry, and the state that a replay derives from it.  Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["asked", "answered", "unanswered", "called", "returned", "dispatched", "waiting", "resumed", "ended"]


@dataclass(frozen=True)
class Entry:
    """One event of a run.  `call` counts the tool calls of a turn from 1; 0 is the turn itself.

    `asked`: a model turn started; `answered` or `unanswered`: it succeeded or failed.  `called`: a tool call started, with its
    arguments and idempotency key; `dispatched`: its effect started, recorded in the same transaction; `returned`: its result.
    `waiting`: the call waits for a person; `resumed`: their decision.  `ended`: the status with which the run ended.
    """

    kind: Kind
    turn: int
    call: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    at: int = 0


@dataclass
class CallState:
    """The state of one tool call: the data of its latest journal entry of each kind."""

    called: Mapping[str, Any] | None = None
    waiting: Mapping[str, Any] | None = None
    resumed: Mapping[str, Any] | None = None
    dispatched: Mapping[str, Any] | None = None
    returned: Mapping[str, Any] | None = None


class Journal:
    """The entries of one run, indexed for replay."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.last = 0
        self.answers: dict[int, Mapping[str, Any]] = {}
        self.failures: dict[int, int] = {}
        self.calls: dict[tuple[int, int], CallState] = {}
        self.refused: dict[str, str] = {}
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Add an entry that has been committed."""
        self.last = max(self.last, entry.number)
        if entry.kind == "answered":
            self.answers[entry.turn] = entry.data
        elif entry.kind == "unanswered":
            self.failures[entry.turn] = self.failures.get(entry.turn, 0) + 1
        elif entry.kind in ("called", "dispatched", "waiting", "resumed", "returned"):
            self._note_call(self.call(entry.turn, entry.call), entry)

    def call(self, turn: int, call: int) -> CallState:
        """The state of a call, empty if it has no entries."""
        return self.calls.setdefault((turn, call), CallState())

    def _note_call(self, state: CallState, entry: Entry) -> None:
        if entry.kind == "called":
            state.called = entry.data
        elif entry.kind == "returned":
            state.returned = entry.data
        elif entry.kind == "dispatched":
            state.dispatched = entry.data
        elif entry.kind == "waiting":  # a new request invalidates earlier decisions
            state.waiting, state.resumed, state.dispatched = entry.data, None, None
        else:
            state.resumed = entry.data
            digest = (state.waiting or {}).get("digest")
            if digest and entry.data["status"] != "approved":
                self.refused[digest] = str(entry.data["status"])

    @property
    def tool_calls(self) -> int:
        """The number of tool calls that were started."""
        return sum(state.called is not None for state in self.calls.values())
