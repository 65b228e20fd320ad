"""Subjects: who acts, through which edge, and what has tainted the run that acts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from appliance.core.scope import TenantScope

Via = Literal["rest", "console", "process", "agent", "mcp"]
Kind = Literal["user", "key", "execution", "agent", "system"]
Credential = Literal["service", "agent"]


@dataclass(frozen=True)
class SkillUsed:
    """A skill that a run has loaded; `digest` covers its set of files, `is_trusted` says whether a person trusts it now.

    `granted` are the tools with which a run that follows the skill may make changes without approval; None means no limit.
    """

    name: str
    digest: str
    is_trusted: bool = False
    granted: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Subject:
    """The subject of an action: who requests it.

    `actor` is the scope's actor, `credential` the kind of its key, empty without one; `agent` and `run_id` name the agent run
    that acts; `tainted_by` names the sources outside the tenant whose content the run has read.
    """

    actor: str
    via: Via
    agent: str = ""
    run_id: str = ""
    skills: tuple[SkillUsed, ...] = ()
    tainted_by: tuple[str, ...] = ()
    credential: Credential | Literal[""] = ""

    @property
    def has_agent_key(self) -> bool:
        """Whether an agent acts with its own key, as every MCP client does."""
        return not self.agent and (self.credential == "agent" or self.via == "mcp")

    @property
    def policy_via(self) -> Via:
        """The edge as rules see it: always MCP for an agent key, so that using another edge cannot bypass a rule."""
        return "mcp" if self.has_agent_key else self.via

    @property
    def policy_credential(self) -> str:
        """The kind of the key as rules see it; empty if there is none."""
        if self.has_agent_key:
            return "agent"
        return "service" if self.kind == "key" else ""

    @property
    def kind(self) -> Kind:
        """The kind of actor; an agent's own key is a `key`, distinguished by `credential`."""
        if self.agent:
            return "agent"
        name = self.actor.partition(":")[0]
        return name if name in ("user", "key", "execution") else "system"  # type: ignore[return-value]

    @property
    def is_tainted(self) -> bool:
        return bool(self.tainted_by)


def load_subject(stored: Mapping[str, Any]) -> Subject:
    """Restore a subject from its `asdict` form."""
    skills = tuple(SkillUsed(**each) for each in stored["skills"])
    skills = tuple(each if each.granted is None else replace(each, granted=tuple(each.granted)) for each in skills)
    return Subject(**{**stored, "skills": skills, "tainted_by": tuple(stored["tainted_by"])})


def subject_of(scope: TenantScope) -> Subject:
    """The subject of a scope from REST or from an execution."""
    if scope.actor.startswith("execution:"):
        return Subject(scope.actor, "process")
    return Subject(scope.actor, "rest", credential=credential_of(scope))


def credential_of(scope: TenantScope) -> Credential | Literal[""]:
    """The kind of the key that acts; empty if the actor is not a key."""
    if not scope.actor.startswith("key:"):
        return ""
    return "agent" if scope.has_agent_key else "service"
