"""Who acts, by which road, and what has touched the run that acts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from appliance.core.scope import TenantScope

Via = Literal["rest", "console", "process", "agent", "mcp"]
Kind = Literal["user", "key", "execution", "agent", "system"]
Credential = Literal["service", "agent"]


@dataclass(frozen=True)
class SkillUsed:
    """A skill that a run has loaded; `digest` is that of its set of files, `is_trusted` whether a person approves of it now.

    `granted` are the tools with which a run that follows it may change something by itself, None where nobody asks that.
    """

    name: str
    digest: str
    is_trusted: bool = False
    granted: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Subject:
    """Who wants something done.

    `actor` is the scope's, `credential` the kind of its key, empty without one;
    `agent` and `run_id` name the run of an agent that acts; `tainted_by` names the sources outside
    the tenant whose content the run has read, empty while there is none.
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
        """Whether an agent acts with a key of its own; nobody else comes by MCP."""
        return not self.agent and (self.credential == "agent" or self.via == "mcp")

    @property
    def road(self) -> Via:
        """The road as rules see it: that of an agent key is always MCP, so that another one leads past no rule."""
        return "mcp" if self.has_agent_key else self.via

    @property
    def judged_credential(self) -> str:
        """The kind of the key as rules see it; empty for whoever acts without one."""
        if self.has_agent_key:
            return "agent"
        return "service" if self.kind == "key" else ""

    @property
    def kind(self) -> Kind:
        """What acts; a key in the hands of an agent is a key, `credential` tells."""
        if self.agent:
            return "agent"
        name = self.actor.partition(":")[0]
        return name if name in ("user", "key", "execution") else "system"  # type: ignore[return-value]

    @property
    def is_tainted(self) -> bool:
        return bool(self.tainted_by)


def subject_from(kept: Mapping[str, Any]) -> Subject:
    """The subject of which `asdict` made this."""
    skills = tuple(SkillUsed(**each) for each in kept["skills"])
    skills = tuple(each if each.granted is None else replace(each, granted=tuple(each.granted)) for each in skills)
    return Subject(**{**kept, "skills": skills, "tainted_by": tuple(kept["tainted_by"])})


def subject_of(scope: TenantScope) -> Subject:
    """The one behind a scope that came by REST or from an execution."""
    if scope.actor.startswith("execution:"):
        return Subject(scope.actor, "process")
    return Subject(scope.actor, "rest", credential=credential_of(scope))


def credential_of(scope: TenantScope) -> Credential | Literal[""]:
    """The kind of the key that acts; empty when none does."""
    if not scope.actor.startswith("key:"):
        return ""
    return "agent" if scope.has_agent_key else "service"
