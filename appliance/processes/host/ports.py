"""The dependencies of steps on other domains, provided by the composition root."""

from dataclasses import dataclass

from appliance.core.crypto import Sealer
from appliance.documents import Documents
from appliance.formats import Formats
from appliance.processes.definitions.surroundings import FindActions, know_no_actions
from appliance.processes.triggers.polls import Source

from .agent_runs import Agents
from .model_calls import ModelReach
from .reached import Actions, Data


@dataclass(frozen=True)
class Ports:
    """Everything steps need from other domains."""

    data: Data
    actions: Actions
    sealer: Sealer
    documents: Documents
    formats: Formats
    polls: Source
    find_actions: FindActions = know_no_actions
    models: ModelReach | None = None
    agents: Agents | None = None
