"""Requests in words by callers and runs: an approval, an answer, a choice; and their withdrawal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance.approvals import approvals
from appliance.governance.approvals.approvals import Approval, RequestContext
from appliance.governance.approvals.human_requests import MAX_TTL_MS, NO_ORIGIN, parse_request
from appliance.governance.subjects import Subject

DEFAULT_SECONDS = 86_400


@dataclass(frozen=True)
class HumanInput:
    """A request in words; title and reason come from the requester.  `schema` is for an `input`, `choices` for a `choice`."""

    kind: str
    title: str = ""
    reason: str = ""
    schema: Mapping[str, Any] | None = None
    choices: Sequence[str] | None = None
    ttl_seconds: int | None = None
    idempotency_key: str | None = None


def request_human_input(scope: TenantScope, subject: Subject, question: HumanInput) -> Approval:
    """Make a request in words; an approval of it permits no action.  ValidationFailed, IdempotencyMismatch."""
    seconds = DEFAULT_SECONDS if question.ttl_seconds is None else question.ttl_seconds
    if not 1 <= seconds <= MAX_TTL_MS // 1000:
        raise ValidationFailed(
            Sentence("ttl_seconds must be between 1 and %(longest_ms)s", longest_ms=MAX_TTL_MS // 1000), pointer="/ttl_seconds"
        )
    fields: dict[str, Any] = {"kind": question.kind, "title": question.title, "reason": question.reason, "expires": f"{seconds}s"}
    fields |= {name: value for name in ("schema", "choices") if (value := getattr(question, name)) is not None}
    request = parse_request(fields, NO_ORIGIN, clock.now_ms())
    about = RequestContext(subject.actor, subject.agent, subject.run_id, idempotency_key=question.idempotency_key)
    return db.write(lambda: approvals.create_request(scope, request, about))


def cancel_request(scope: TenantScope, subject: Subject, approval_id: str) -> Approval:
    """Withdraw a request of this subject; an approved action that has not been used can no longer be used.

    NotFound; PolicyDenied for another requester's; Conflict if it is closed, or an execution or a run waits for it.
    """

    def withdraw() -> Approval:
        approval = approvals.get_approval(scope, approval_id)
        if approval.origin.execution_id:
            raise Conflict("an execution is waiting for this request; cancel the execution instead")
        if approval.about.run_id != subject.run_id:
            raise Conflict("an agent run is waiting for this request; cancel the run instead")
        if approval.about.asked_by != subject.actor:
            raise PolicyDenied("only the requester can withdraw a request; an approver can reject it")
        if approval.status not in ("pending", "approved"):
            raise Conflict(
                Sentence("this request is %(status)s; there is nothing to withdraw", status=approval.status),
                extra={"status": approval.status},
            )
        approvals.withdraw_approval(scope, approval_id, "the requester withdrew it")
        withdrawn = approvals.get_approval(scope, approval_id)
        if withdrawn.status != "cancelled":
            raise Conflict("this request has already been approved and cannot be withdrawn", extra={"status": withdrawn.status})
        return withdrawn

    return db.write(withdraw)
