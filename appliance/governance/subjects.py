"""Who acts, by which road, and what has touched the run that acts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from appliance.core.scope import TenantScope

Via = Literal["rest", "console", "process", "agent", "mcp"]
Kind = Literal["user", "key", "execution", "agent", "system"]


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

    `actor` is the scope's; `agent` and `run_id` name the run of an agent that acts; `tainted_by` names the sources outside
    the tenant whose content the run has read, empty while there is none.
    """

    actor: str
    via: Via
    agent: str = ""
    run_id: str = ""
    skills: tuple[SkillUsed, ...] = ()
    tainted_by: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        """What acts; whoever comes by MCP may be steered by a model, so `via` tells more than the kind of a key."""
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
    return Subject(scope.actor, "process" if scope.actor.startswith("execution:") else "rest")
