"""The dependencies of steps on other domains, provided by the composition root."""

from dataclasses import dataclass

from appliance.core.crypto import Sealer
from appliance.documents import Documents
from appliance.formats import Formats
from appliance.processes.definitions.dependencies import FindActions, find_no_actions
from appliance.processes.triggers.polls import PollSource

from .agent_runs import Agents
from .model_calls import ModelCalls
from .protocols import Actions, Data


@dataclass(frozen=True)
class Ports:
    """Everything steps need from other domains."""

    data: Data
    actions: Actions
    sealer: Sealer
    documents: Documents
    formats: Formats
    polls: PollSource
    find_actions: FindActions = find_no_actions
    models: ModelCalls | None = None
    agents: Agents | None = None
