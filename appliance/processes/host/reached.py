"""What steps reach of the other domains, as they call it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from appliance.processes.engine.store import Claim


class Data(Protocol):
    """What steps store, as they reach it; `perform` answers JSON and, for writes, is called inside a write."""

    def perform(self, claim: Claim, method: str, args: list[Any]) -> Any: ...


class PreparedData(Data, Protocol):
    """The same, for who can do a part of it before the write."""

    def prepare(self, claim: Claim, method: str, args: list[Any]) -> Callable[[], Any]:
        """What is left to be done inside the write."""


@dataclass(frozen=True)
class ActionCall:
    """An action that a step wants done; `where` makes the idempotency key `execution.step.call`,
    `approval_id` names an approval of exactly this."""

    integration: str
    action: str
    input: Any
    where: str
    documents: frozenset[str] = frozenset()
    approval_id: str | None = None
    step: str = ""
    """The `span_key` of the step run, for traces."""


class Actions(Protocol):
    """Integrations as steps reach them."""

    def execute(self, claim: Claim, call: ActionCall, seconds: float) -> Any:
        """The action's output; it may take `seconds`.  ActionNeedsApproval when people must decide first."""

    def preview(self, claim: Claim, call: ActionCall) -> str:
        """The effect that it would have: `read`, `idempotent` or `write`; refuses what `execute` would."""
