"""A tool as it is declared: its name, schemas, effect and scopes, and the verb it calls."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from appliance.connectors.contract import Effect
from appliance.core.scope import TenantScope
from appliance.governance import Subject
from appliance.governance.policies import ToolAction

APPROVAL_ID = "approval_id"
"""The argument that names an approval of exactly this call; no policy sees it."""
APPROVAL_ID_SCHEMA = {
    "type": "string",
    "maxLength": 80,
    "description": "The id of an approval of exactly this call, where one is required: request_human_input asks for it.",
}


def _nothing() -> None:
    """No approval was needed, so none is used up."""


@dataclass(frozen=True)
class Place:
    """The place of a call in a run, by which it is the same call after a crash.

    `dispatch` notes, inside the write that begins what the call does, what it begins with; `begun` is that note of before the
    crash, None while there is none.
    """

    dispatch: Callable[[Mapping[str, Any]], None]
    begun: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Caller:
    """Who calls a tool: what they may reach, and as whom policies see them.

    `consume` uses up the approval that a call needed, inside the write that dispatches it; see `Tool.consumes`.  Whoever goes on
    after a crash has a `place`; a run that a step started, the `execution_id` of that step.
    """

    scope: TenantScope
    subject: Subject
    consume: Callable[[], None] = _nothing
    place: Place | None = None
    execution_id: str | None = None

    @property
    def has_begun(self) -> bool:
        """Whether this very call had begun before a crash: a tool that consumes then looks what came of it."""
        return self.place is not None and self.place.begun is not None


@dataclass(frozen=True)
class Waiting:
    """A result that is yet to come.

    `look(False)` answers it once it is there, None until then; `look(True)` answers what there is when `seconds` are over.
    `over` is done when a look is worth it; without it one looks again and again.  A look may use the database.
    """

    look: Callable[[bool], dict[str, Any] | None]
    seconds: float
    over: "Future[Any] | None" = None


@dataclass(frozen=True)
class Hints:
    """What a client may tell its person about a tool, beside its effect."""

    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    read_only: bool | None = None


@dataclass(frozen=True)
class Tool:
    """Something that can be asked for by name.

    `scopes` are all needed; `effect` is what policies judge.  `call` gets arguments that fit `input_schema` and answers an
    object that fits `output_schema`, or that it comes later.  `long` are members of the answer that may be cut when it is too
    long, which `truncated` then tells: an array loses its last elements, a text its end, another optional member goes.

    Where an approval is needed the call runs inside the write that uses it up, unless it `consumes` it by itself, in the write
    that makes it happen (what begins before a commit must not be in another's); called again after a crash for what
    `has_begun`, it begins nothing.  A tool that can `describe` its action knows more about it than its name and arguments, and
    passes the gate by itself.  `settles` has what arguments that a call leaves open mean for now: it is named before the call
    is judged, so that exactly what was judged and approved is done.
    """

    name: str
    title: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    effect: Effect
    scopes: frozenset[str]
    call: Callable[[Caller, Mapping[str, Any]], "dict[str, Any] | Waiting"]
    hints: Hints = Hints()
    long: tuple[str, ...] = ()
    consumes: bool = False
    describe: "Callable[[Caller, Mapping[str, Any]], ToolAction] | None" = None
    settles: Mapping[str, Callable[[Caller, Mapping[str, Any]], Any]] = field(default_factory=dict)

    @property
    def is_read_only(self) -> bool:
        """Whether the tool changes nothing anywhere."""
        return self.effect == "read" if self.hints.read_only is None else self.hints.read_only
