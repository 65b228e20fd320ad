"""Protocols of what steps call in other domains: stored data and actions of integrations."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from appliance.processes.engine.store import Claim

READS = frozenset({"datapool.find", "datapool.query", "documents.get", "documents.read"})
WRITES = frozenset(
    {"datapool.create", "datapool.update", "datapool.upsert", "datapool.delete", "datapool.batch", "documents.create"}
)
BEFORE_RECORDING = frozenset(method for method in READS | WRITES if method.startswith("datapool."))
"""Calls that may be made before the execution is recorded: they only read, or write in a commit that records it, too."""


class Data(Protocol):
    """Stored data of a tenant; `perform` returns JSON and, for a writing method, is called inside a write."""

    def perform(self, claim: Claim, method: str, args: list[Any]) -> Any: ...


class PreparedData(Data, Protocol):
    """Stored data whose calls can do part of their work before the write."""

    def prepare(self, claim: Claim, method: str, args: list[Any]) -> Callable[[], Any]:
        """Does the work that must precede the write; returns the rest, to be called inside it."""


@dataclass(frozen=True)
class ActionCall:
    """An action requested by a step.

    `where` (`step.call`) completes the idempotency key `execution.step.call`; `approval_id` is an approval of exactly
    this action.
    """

    integration: str
    action: str
    input: Any
    where: str
    documents: frozenset[str] = frozenset()
    approval_id: str | None = None
    step: str = ""
    """The `span_key` of the step run, for traces."""


class Actions(Protocol):
    """Executes actions of integrations for steps."""

    def execute(self, claim: Claim, call: ActionCall, seconds: float) -> Any:
        """The action's output, within `seconds`; raises ActionNeedsApproval when somebody must approve it first."""

    def preview(self, claim: Claim, call: ActionCall) -> str:
        """The effect the action would have: `read`, `idempotent` or `write`; raises the same refusals as `execute`."""
