"""Runs of agents as steps start them: the agents' own part is above this one and registers itself here."""

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
class WantedRun:
    """A run that a step wants: of which agent, with what, and all that it may reach beside what the agent's definition says.

    `is_trusted`: its input is written in the definition, or the builder answers for it; any other may come from outside.
    """

    agent_id: str
    input: Any
    run_key: RunKey
    step: str
    grants: Grants
    is_trusted: bool = False


@dataclass(frozen=True)
class PreparedRun:
    """A run to be: `insert`, inside the write that has the step wait, records it, sets it going and answers its id."""

    insert: Callable[[], str]


@dataclass(frozen=True)
class MadeCall:
    """What a run did beside reading: the tool (of an action `integration/operation`), and whether it is `certain`."""

    target: str
    certain: bool


class Agents(Protocol):
    """The agents of the tenants."""

    def output_of(self, scope: TenantScope, agent_id: str) -> Mapping[str, Any] | None:
        """The JSON Schema of what the agent answers, empty for a text; None when there is no such agent."""

    def prepare(self, claim: Claim, wanted: WantedRun) -> PreparedRun:
        """NotFound without the agent; ValidationFailed for an input that is too large.  Outside of a write."""

    def effects_of(self, scope: TenantScope, execution_id: str, path: str, iteration: str) -> list[MadeCall]:
        """What the runs of a step run did, in order."""

    def move_durations(self, by_ms: int) -> None:
        """Inside a write: the machine's clock was set by so much, see `clock_jumps`."""


class NoAgents:
    """Where nothing is wired there are no agents."""

    def output_of(self, scope: TenantScope, agent_id: str) -> Mapping[str, Any] | None:
        return None

    def prepare(self, claim: Claim, wanted: WantedRun) -> PreparedRun:
        raise NotFound(Sentence("there is no agent %(agent_id)s here", agent_id=repr(wanted.agent_id)))

    def effects_of(self, scope: TenantScope, execution_id: str, path: str, iteration: str) -> list[MadeCall]:
        return []

    def move_durations(self, by_ms: int) -> None:
        return
