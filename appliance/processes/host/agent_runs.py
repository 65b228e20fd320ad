"""The port through which steps start agent runs; the agents package, a higher layer, provides the implementation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.processes.definitions.nodes import Grants
from appliance.processes.engine.store import Claim
from appliance.processes.engine.suspension import RunKey

RUN = "agents.run"


@dataclass(frozen=True)
class AgentRunRequest:
    """A step's request to run an agent: its input, and the grants that apply in addition to the agent's own definition.

    `is_trusted` is true when the input is a literal of the definition or the builder vouches for it; any other input may
    come from outside.
    """

    agent_id: str
    input: Any
    run_key: RunKey
    step: str
    grants: Grants
    is_trusted: bool = False


@dataclass(frozen=True)
class PreparedRun:
    """A validated run: `insert` records and starts it, and returns its id; called in the write that suspends the step."""

    insert: Callable[[], str]


@dataclass(frozen=True)
class AgentEffect:
    """A side effect of a run: the tool it called (`integration/operation` for an action), and whether that surely happened."""

    target: str
    certain: bool


class Agents(Protocol):
    """Starts agent runs and reports what they did."""

    def output_of(self, scope: TenantScope, agent_id: str) -> Mapping[str, Any] | None:
        """The JSON Schema of the agent's answer, empty for plain text; None when the agent does not exist."""

    def prepare(self, claim: Claim, request: AgentRunRequest) -> PreparedRun:
        """Validates a run before it is recorded; call it outside a write.

        Raises NotFound when the agent does not exist, ValidationFailed when the input is too large.
        """

    def effects_of(self, scope: TenantScope, execution_id: str, path: str, iteration: str) -> list[AgentEffect]:
        """The side effects of the agent runs of a step run, in order."""

    def move_durations(self, by_ms: int) -> None:
        """Moves the deadlines of runs after the machine's clock was set, see `clock_jumps`; inside a write."""


class NoAgents:
    """Used where no agents package is wired up: no agent exists."""

    def output_of(self, scope: TenantScope, agent_id: str) -> Mapping[str, Any] | None:
        return None

    def prepare(self, claim: Claim, request: AgentRunRequest) -> PreparedRun:
        raise NotFound(Sentence("there is no agent %(agent_id)s here", agent_id=repr(request.agent_id)))

    def effects_of(self, scope: TenantScope, execution_id: str, path: str, iteration: str) -> list[AgentEffect]:
        return []

    def move_durations(self, by_ms: int) -> None:
        return
