"""The declaration of a tool: its name, schemas, effect and scopes, and the function it calls."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from appliance.connectors.contract import Effect
from appliance.core.scope import TenantScope
from appliance.governance import Subject
from appliance.governance.policies import ToolAction

APPROVAL_ID = "approval_id"
"""The argument with the approval of exactly this call; it is removed before policies see the arguments."""
APPROVAL_ID_SCHEMA = {
    "type": "string",
    "maxLength": 80,
    "description": "The id of an approval of exactly this call, if one is required; request it with request_human_input.",
}


def _nothing() -> None:
    """Consume nothing: the call needed no approval."""


@dataclass(frozen=True)
class JournalPlace:
    """The place of a call in a run's journal, which identifies the call after a crash.

    `dispatch` records what the call starts with, inside the transaction that starts its effect; `begun` is that record from
    before the crash, or None.
    """

    dispatch: Callable[[Mapping[str, Any]], None]
    dispatched: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Caller:
    """The caller of a tool: its scope, and the subject that policies evaluate.

    `consume` uses up the approval of the call, inside the transaction that dispatches it; see `Tool.consumes`.  `place` is set
    for callers that can resume after a crash; `execution_id` for a run that a step started.
    """

    scope: TenantScope
    subject: Subject
    consume: Callable[[], None] = _nothing
    place: JournalPlace | None = None
    execution_id: str | None = None

    @property
    def has_started(self) -> bool:
        """Whether this call had started before a crash; a tool that `consumes` then only looks up the result."""
        return self.place is not None and self.place.dispatched is not None


@dataclass(frozen=True)
class PendingResult:
    """A pending result.

    `look(False)` returns the result, or None while it is pending; `look(True)` returns the current state once `seconds` have
    passed.  `over` completes when it is worth looking; without it, callers poll.  `look` may use the database.
    """

    look: Callable[[bool], dict[str, Any] | None]
    seconds: float
    ready: "Future[Any] | None" = None


@dataclass(frozen=True)
class Hints:
    """Hints about a tool for MCP clients, in addition to its effect."""

    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    read_only: bool | None = None


@dataclass(frozen=True)
class Tool:
    """A tool that agents and MCP clients can call by name.

    The caller needs all `scopes`; policies evaluate `effect`.  `call` gets arguments that match `input_schema` and returns an
    object that matches `output_schema`, or a `PendingResult`.  `long` lists the members of a result that may be truncated (and are
    then named in `truncated`): an array loses its last elements, a text its end, any other optional member is removed.

    If an approval is needed, the call runs inside the transaction that consumes it.  A tool with `consumes` does that itself,
    in the transaction that starts its effect, because work that starts before a commit must not depend on another transaction;
    called again after a crash with `has_begun`, it starts nothing.  A tool with `describe` knows more about its action than
    name and arguments, and passes the gate itself.  `defaults` computes arguments that the call left open; they are fixed
    before policies are evaluated, so that exactly what was approved is executed.

    `reaches` returns the kinds and names of the processes, collections and integrations that a call is about.  Limited keys cannot
    use a tool without it, nor one for a resource outside their limits.
    """

    name: str
    title: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    effect: Effect
    scopes: frozenset[str]
    call: Callable[[Caller, Mapping[str, Any]], "dict[str, Any] | PendingResult"]
    hints: Hints = Hints()
    long: tuple[str, ...] = ()
    consumes: bool = False
    describe: "Callable[[Caller, Mapping[str, Any]], ToolAction] | None" = None
    defaults: Mapping[str, Callable[[Caller, Mapping[str, Any]], Any]] = field(default_factory=dict)
    reaches: "Callable[[Caller, Mapping[str, Any]], Iterable[tuple[str, str]]] | None" = None

    @property
    def is_read_only(self) -> bool:
        """Whether the tool changes nothing anywhere."""
        return self.effect == "read" if self.hints.read_only is None else self.hints.read_only
