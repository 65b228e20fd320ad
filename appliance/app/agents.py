"""What runs of agents are driven with."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from appliance.agents import AgentRuns, Means
from appliance.agents.skills import Skills
from appliance.agents.tools import Toolbox
from appliance.core.config import Config
from appliance.core.database.presence import Presence
from appliance.core.queue import TaskQueue
from appliance.governance import Governor
from appliance.governance.approvals import ActionApprovals
from appliance.llm import LanguageModels

if TYPE_CHECKING:
    from appliance.agents import Asker, ProfileModel


@dataclass(frozen=True)
class Grounds:
    """What agents act through."""

    toolbox: Toolbox
    governor: Governor
    actions: ActionApprovals
    skills: Skills


def make_agents(config: Config, presence: Presence, queue: TaskQueue, models: LanguageModels, grounds: Grounds) -> AgentRuns:
    """Runs whose models are the tenant's LLM profiles, and whose skills its own."""

    def make_model(profile: str, asker: "Asker") -> "ProfileModel":
        from appliance.agents import ProfileModel

        return ProfileModel(models, profile, asker)

    means = Means(
        grounds.toolbox, grounds.governor, grounds.actions,
        make_model=make_model, describe_skill=grounds.skills.describe_skill,
    )  # fmt: skip
    return AgentRuns(config, presence, queue, means)
