"""Wires up agent runs with their dependencies."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from appliance.agents import AgentRuns, RunDependencies
from appliance.agents.skills import Skills
from appliance.agents.tools import Toolbox
from appliance.core.config import Config
from appliance.core.database.presence import Presence
from appliance.core.queue import TaskQueue
from appliance.governance import Governor
from appliance.governance.approvals import ActionApprovals
from appliance.llm import LanguageModels

if TYPE_CHECKING:
    from appliance.agents import ModelContext, ProfileModel


@dataclass(frozen=True)
class AgentDependencies:
    """The parts that agents act through: tools, policies, approvals and skills."""

    toolbox: Toolbox
    governor: Governor
    actions: ActionApprovals
    skills: Skills


def make_agents(
    config: Config, presence: Presence, queue: TaskQueue, models: LanguageModels, dependencies: AgentDependencies
) -> AgentRuns:
    """Build the agent runs, which use the tenant's LLM profiles as models and the tenant's skills."""

    def make_model(profile: str, asker: "ModelContext") -> "ProfileModel":
        from appliance.agents import ProfileModel

        return ProfileModel(models, profile, asker)

    context = RunDependencies(
        dependencies.toolbox, dependencies.governor, dependencies.actions,
        make_model=make_model, describe_skill=dependencies.skills.describe_skill,
    )  # fmt: skip
    return AgentRuns(config, presence, queue, context)
