"""The integrations of a solution's test case: actions are previewed, never executed."""

from dataclasses import dataclass
from typing import Any

from appliance.core.errors import ConnectorFailed
from appliance.core.sentences import Sentence
from appliance.processes.engine.store import Claim
from appliance.processes.host.protocols import ActionCall, Actions


@dataclass(frozen=True)
class PreviewOnlyActions:
    """Previews actions and refuses to execute them; a reading action needs a mock."""

    actions: Actions

    def preview(self, claim: Claim, call: ActionCall) -> str:
        return self.actions.preview(claim, call)

    def execute(self, claim: Claim, call: ActionCall, seconds: float) -> Any:
        name = f"integrations.execute/{call.integration}/{call.action}"
        raise ConnectorFailed(Sentence("a test case calls no foreign system; add a mock for %(name)s", name=name))
