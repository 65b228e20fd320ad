"""Requests to the governed executor, and their results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from appliance.connectors import Preview
from appliance.connectors.contract import Action, AddressNotAllowed, ConnectorError, Effect, RateLimited, Rejected, TransientError
from appliance.core import errors
from appliance.core.errors import ApplianceError, ConnectorFailed, Detail, PolicyDenied
from appliance.governance.governor import Permit
from appliance.governance.policies.decision import Decision, ToolAction
from appliance.governance.subjects import Subject
from appliance.integrations import Draft, OpenedIntegration, Origin, Withheld, retries

DEFAULT_SECONDS = 30.0
MOST_SECONDS = 900.0


@dataclass(frozen=True)
class ActionRequest:
    """An action to run.

    `idempotency_key` stays the same when the same request is repeated; without one each request is separate.
    `seconds` limits the duration of the call, at most 15 minutes; `documents` says whether it may `read` and `write` documents.
    `hidden` are texts of the input that no record may show.  `subject` requests the action, by default the scope's actor;
    `approval_id` names an approval of exactly this action.
    """

    integration: str
    action: str
    input: Mapping[str, Any]
    mode: Literal["execute", "preview"] = "execute"
    idempotency_key: str | None = None
    origin: Origin | None = None
    seconds: float = DEFAULT_SECONDS
    documents: frozenset[str] = frozenset()
    hidden: tuple[str, ...] = ()
    subject: Subject | None = None
    approval_id: str | None = None


@dataclass(frozen=True)
class ActionResult:
    """`executed` with the output, `recorded` with the output of the first execution, or `previewed` without output."""

    status: Literal["executed", "recorded", "previewed"]
    effect: Effect
    output: Any = None
    call_id: str | None = None
    preview: Preview | None = None
    ruling: "PreviewDecision | None" = None


@dataclass(frozen=True)
class PreviewDecision:
    """The policies' decision about a previewed action; an approval would refer to `action_digest`."""

    decision: Decision
    action_digest: str


@dataclass(frozen=True)
class Proposal:
    """A validated call: the action, its effect, and its description for policies."""

    request: ActionRequest
    ready: OpenedIntegration
    action: Action
    effect: Effect
    subject: Subject
    described: ToolAction

    @property
    def input_values(self) -> dict[str, Any]:
        """The input to send."""
        return dict(self.described.input)


class ActionFailed(ConnectorFailed):
    """The foreign system failed or refused the action.

    `error_class` is the connector contract's; `outcome` is `not_done` or `unknown`; `retryable` says whether the same
    request may be sent again; `retry_after` is in seconds.  All are included in `extra`.
    """

    def __init__(self, error: ConnectorError, effect: Effect, call_id: str) -> None:
        details = [Detail("", error.error_class, error.message)]
        super().__init__(error.message, rejected=isinstance(error, Rejected), details=details)
        self.error_class = error.error_class
        self.outcome = error.outcome
        self.retryable = isinstance(error, TransientError | RateLimited) and (effect != "write" or error.outcome == "not_done")
        self.retry_after = error.retry_after if isinstance(error, RateLimited | Withheld) else None
        self.call_id = call_id
        self.extra = {
            "error_class": self.error_class,
            "outcome": self.outcome,
            "retryable": self.retryable,
            "call_id": call_id,
            "foreign": error.details,
        }
        if self.retry_after is not None:
            self.extra["retry_after"] = self.retry_after


def build_draft(proposal: Proposal, permit: Permit | None = None) -> Draft:
    """The record of a call, without secrets."""
    request, ready = proposal.request, proposal.ready
    return Draft(
        integration=request.integration,
        connector=ready.connector_label,
        action=request.action,
        effect=proposal.effect,
        input=ready.redactor.json(dict(request.input)),
        digest=retries.digest_of(request.action, request.input),
        key=request.idempotency_key,
        origin=request.origin,
        seconds=request.seconds,
        approval_id=permit.used_approval if permit else None,
        decision=permit.record() if permit else None,
    )


def to_api_error(error: ConnectorError | PolicyDenied, effect: Effect, call_id: str) -> ApplianceError:
    """Convert a connector's error, or a late policy refusal, to the error callers receive."""
    if isinstance(error, PolicyDenied):
        return PolicyDenied(error.message, extra={**error.extra, "call_id": call_id})
    if isinstance(error, AddressNotAllowed):
        return errors.AddressNotAllowed(error.message, extra={"call_id": call_id, "retryable": False})
    return ActionFailed(error, effect, call_id)
