"""Integrations as a case of a solution has them: looked at, and never reached."""

from dataclasses import dataclass
from typing import Any

from appliance.core.errors import ConnectorFailed
from appliance.core.sentences import Sentence
from appliance.processes.engine.store import Claim
from appliance.processes.host.reached import ActionCall, Actions


@dataclass(frozen=True)
class UnreachedActions:
    """Says what an action would do; one that reads needs a mock."""

    actions: Actions

    def preview(self, claim: Claim, call: ActionCall) -> str:
        return self.actions.preview(claim, call)

    def execute(self, claim: Claim, call: ActionCall, seconds: float) -> Any:
        name = f"integrations.execute/{call.integration}/{call.action}"
        raise ConnectorFailed(Sentence("a case reaches no foreign system; mock %(name)s", name=name))
