"""What callers and runs ask of people in words: an approval, an answer, a choice; and how they withdraw what they asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance.approvals import approvals
from appliance.governance.approvals.approvals import About, Approval
from appliance.governance.approvals.questions import LONGEST_MS, NOWHERE, parse_request
from appliance.governance.subjects import Subject

USUAL_SECONDS = 86_400


@dataclass(frozen=True)
class HumanInput:
    """What is asked; title and reason are the asker's words.  `schema` belongs to an `input`, `choices` to a `choice`."""

    kind: str
    title: str = ""
    reason: str = ""
    schema: Mapping[str, Any] | None = None
    choices: Sequence[str] | None = None
    ttl_seconds: int | None = None
    idempotency_key: str | None = None


def request_human_input(scope: TenantScope, subject: Subject, asked: HumanInput) -> Approval:
    """Ask in words; an approval of these permits no action.  ValidationFailed, IdempotencyMismatch."""
    seconds = USUAL_SECONDS if asked.ttl_seconds is None else asked.ttl_seconds
    if not 1 <= seconds <= LONGEST_MS // 1000:
        raise ValidationFailed(
            Sentence("ttl_seconds is between 1 and %(longest_ms)s", longest_ms=LONGEST_MS // 1000), pointer="/ttl_seconds"
        )
    given: dict[str, Any] = {"kind": asked.kind, "title": asked.title, "reason": asked.reason, "expires": f"{seconds}s"}
    given |= {name: value for name in ("schema", "choices") if (value := getattr(asked, name)) is not None}
    request = parse_request(given, NOWHERE, clock.now_ms())
    about = About(subject.actor, subject.agent, subject.run_id, idempotency_key=asked.idempotency_key)
    return db.write(lambda: approvals.keep_request(scope, request, about))


def cancel_request(scope: TenantScope, subject: Subject, approval_id: str) -> Approval:
    """Withdraw what this subject asked; an approved action that was not used yet never will be.

    NotFound; PolicyDenied when somebody else asked; Conflict when it is over, or an execution or a run waits for it.
    """

    def withdraw() -> Approval:
        asked = approvals.get_approval(scope, approval_id)
        if asked.origin.execution_id:
            raise Conflict("an execution waits for this; cancel the execution")
        if asked.about.run_id != subject.run_id:
            raise Conflict("a run of an agent waits for this; cancel the run")
        if asked.about.asked_by != subject.actor:
            raise PolicyDenied("only the one who asked withdraws a request; whoever may decide it can reject it")
        if asked.status not in ("pending", "approved"):
            raise Conflict(
                Sentence("this request is %(status)s; there is nothing to withdraw", status=asked.status),
                extra={"status": asked.status},
            )
        approvals.withdraw_approval(scope, approval_id, "the one who asked withdrew it")
        withdrawn = approvals.get_approval(scope, approval_id)
        if withdrawn.status != "cancelled":
            raise Conflict("this was approved in words, which nobody can take back", extra={"status": withdrawn.status})
        return withdrawn

    return db.write(withdraw)
