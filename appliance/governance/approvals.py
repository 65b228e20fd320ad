"""Requests to people: asked by an execution, decided once by a signed-in person, told back to the execution."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from appliance.core import clock, db, ids
from appliance.core.errors import Conflict, NotFound, PolicyDenied, ValidationFailed
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.monitor import audit, webhooks
from appliance.tenants import keys, people, service
from appliance.tenants.people import Member, SignedIn
from appliance.tenants.scopes import ROLES

from .models import ApprovalRow
from .questions import HumanRequest, Kind, Origin, check_answer, check_comment, parse_request

__all__ = ["HumanRequest", "Origin", "parse_request"]
Status = Literal["pending", "approved", "rejected", "answered", "expired", "cancelled"]
Verdict = Literal["approve", "reject", "answer"]

_VERDICTS: dict[Kind, tuple[Verdict, ...]] = {
    "approval": ("approve", "reject"), "input": ("answer",), "choice": ("answer",),
}  # fmt: skip
_STATUS_AFTER: dict[Verdict, Status] = {"approve": "approved", "reject": "rejected", "answer": "answered"}


@dataclass(frozen=True)
class Approval:
    """A request and what became of it.

    `digest` is SHA-256 of all that is shown to the one who decides; `requested_by` the actor that started the execution;
    `decided_by` is `user:<id>`, `decided_login` their login at that time.  Times are epoch milliseconds.
    """

    id: str
    request: HumanRequest
    status: Status
    digest: str
    requested_by: str
    created_at: int
    closed_at: int | None = None
    decided_by: str | None = None
    decided_login: str | None = None
    answer: Any = None
    comment: str = ""

    @property
    def origin(self) -> Origin:
        return self.request.origin


@dataclass(frozen=True)
class ApprovalFilter:
    """What a list of requests is narrowed to; None means any."""

    status: str | None = None
    execution_id: str | None = None


@dataclass(frozen=True)
class Decision:
    """What a person decided: `approve` or `reject` an approval, `answer` an input or a choice."""

    verdict: Verdict
    answer: Any = None
    comment: str = ""


Listener = Callable[[TenantScope, Approval], None]
_listeners: list[Listener] = []


def on_decided(listener: Listener) -> Callable[[], None]:
    """Have `listener` called inside every write that decides; answers what takes it away again."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def request_approval(scope: TenantScope, request: HumanRequest) -> Approval:
    """Inside a write: ask.  NotFound when there is no such execution."""
    approval_id, origin = ids.new("apr"), request.origin
    digest = _digest_of(request)
    scope.insert(
        ApprovalRow, id=approval_id, kind=request.kind, title=request.title, reason=request.reason, details=request.details,
        answer_schema=request.schema, choices=list(request.choices), approvers=list(request.approvers), digest=digest,
        status="pending", execution_id=origin.execution_id, process_id=origin.process_id, step=origin.step, path=origin.path,
        iteration=origin.iteration, host_call=origin.call, attempt=origin.attempt,
        requested_by=_starter_of(scope, origin.execution_id), created_at=clock.now_ms(), expires_at=request.expires_at, comment="",
    )  # fmt: skip
    asked = get_approval(scope, approval_id)
    audit.record(scope, "approval.request", approval_id, _facts(asked))
    webhooks.emit(scope, "approval.requested", lambda: _announced(asked))
    return asked


def _announced(asked: Approval) -> dict[str, Any]:
    """What a webhook is told of a request; what it is about is read where it is decided."""
    request, origin = asked.request, asked.origin
    return {
        "approval_id": asked.id, "kind": request.kind, "title": request.title, "approvers": list(request.approvers),
        "execution_id": origin.execution_id, "process_id": origin.process_id, "step": origin.step,
        "expires_at": clock.optional_rfc3339(request.expires_at),
    }  # fmt: skip


def get_approval(scope: TenantScope, approval_id: str) -> Approval:
    """One request; NotFound otherwise."""
    return _approval(scope.get(ApprovalRow, id=approval_id))


def list_approvals(scope: TenantScope, wanted: ApprovalFilter, page: PageRequest) -> Page[Approval]:
    """Requests, newest first."""
    query = scope.select(ApprovalRow)
    if wanted.status is not None:
        query = query.where(ApprovalRow.status == wanted.status)
    if wanted.execution_id is not None:
        query = query.where(ApprovalRow.execution_id == wanted.execution_id)
    return paginate(query, page, {"created_at": ApprovalRow.created_at, "id": ApprovalRow.id}).map(_approval)


def count_pending(scope: TenantScope) -> int:
    """How many requests wait for somebody."""
    return int(scope.select(ApprovalRow).where(ApprovalRow.status == "pending").count())


def decide_approval(scope: TenantScope, person: SignedIn, approval_id: str, decision: Decision) -> Approval:
    """Decide, once and for all, in the name of a signed-in person.

    NotFound, PolicyDenied (not theirs to decide), ValidationFailed (the answer does not fit; pointers under `/answer`),
    Conflict (decided already, expired, or the execution no longer waits).
    """
    if scope.actor != f"user:{person.user_id}":
        raise PolicyDenied("only a signed-in person decides; open the request in the console")
    asked = get_approval(scope, approval_id)
    _refuse_closed(asked)
    check_decider(scope, person, asked)
    if decision.verdict not in _VERDICTS[asked.request.kind]:
        known = " or ".join(_VERDICTS[asked.request.kind])
        raise ValidationFailed(f"to a request for {asked.request.kind} one says {known}", pointer="/verdict")
    # The request never changes, and a schema may take its time: both are checked before the writer is held.
    answer, comment = check_answer(asked.request, decision.answer), check_comment(decision.comment)

    def decide() -> Approval:
        _refuse_closed(get_approval(scope, approval_id))
        own = check_decider(scope, person, asked)
        status = _STATUS_AFTER[decision.verdict]
        facts = {"decided_by": scope.actor, "decided_login": person.login, "answer": answer, "comment": comment}
        if not _close(scope, approval_id, status, **facts):
            _refuse_closed(get_approval(scope, approval_id))
        decided = get_approval(scope, approval_id)
        more: dict[str, Any] = {"comment": comment} | ({"self_approved": True} if own else {})
        if decision.verdict == "answer":
            more["answer_digest"] = _sha256(answer)
        audit.record(scope, f"approval.{decision.verdict}", approval_id, _facts(decided) | more)
        for listener in _listeners.copy():
            listener(scope, decided)
        return decided

    return db.write(decide)


def withdraw_approval(scope: TenantScope, approval_id: str, reason: str) -> None:
    """Inside a write: nobody waits for the answer any more; a request that is closed stays as it is."""
    if _close(scope, approval_id, "cancelled"):
        audit.record(scope, "approval.cancel", approval_id, {"reason": reason})


def expire_approval(scope: TenantScope, approval_id: str) -> Approval:
    """Inside a write: nobody decided in time.  Answers the request, unchanged when somebody was quicker."""
    if _close(scope, approval_id, "expired"):
        audit.record(scope, "approval.expire", approval_id, _facts(get_approval(scope, approval_id)))
    return get_approval(scope, approval_id)


def answer_of(approval: Approval) -> dict[str, Any]:
    """What the code that asked gets: `{status, answer, comment, decided_by, decided_at, request_id}`; times in RFC 3339.

    `decided_by` is a login, `status` is approved, rejected, answered or expired; ValueError while there is none of these.
    """
    if approval.status in ("pending", "cancelled"):
        raise ValueError(f"{approval.id} is {approval.status}")
    return {
        "status": approval.status,
        "answer": approval.answer,
        "comment": approval.comment,
        "decided_by": approval.decided_login,
        "decided_at": clock.optional_rfc3339(approval.closed_at) if approval.decided_by else None,
        "request_id": approval.id,
    }


def check_decider(scope: TenantScope, person: SignedIn, approval: Approval) -> bool:
    """PolicyDenied unless this person may decide; answers whether they approve what they themselves asked for.

    An approval takes the flag `approver`, or an owner; an input or a choice an operator or a higher role.  Where a request
    names who decides, only these do.  Who started the execution does not approve, except in a sandbox tenant.
    """
    member = people.find_member(scope, person.user_id)
    if member is None:
        raise PolicyDenied("only a member of this tenant decides; ask an owner for a role in it")
    request = approval.request
    if request.approvers and not any(_is_named(member, name) for name in request.approvers):
        raise PolicyDenied(f"this is decided by {', '.join(map(_who, request.approvers))}; ask one of them")
    if request.kind != "approval":
        if not request.approvers and not _has_role(member, "operator"):
            raise PolicyDenied("this is answered by an operator, a builder or an owner; ask one of them")
        return False
    if not member.approver and member.role != "owner":
        raise PolicyDenied("this is decided by an approver; ask one, or have an owner make you an approver")
    own = keys.person_behind(scope, approval.requested_by) == member.user_id
    if own and service.get_tenant(scope.tenant_id).kind != "sandbox":
        raise PolicyDenied("you started this execution, or made the key that did; somebody else decides")
    return own


def _is_named(member: Member, name: str) -> bool:
    kind, _, value = name.partition(":")
    return _has_role(member, value) if kind == "role" else member.login == value


def _has_role(member: Member, least: str) -> bool:
    return ROLES.index(member.role) >= ROLES.index(least)


def _who(name: str) -> str:
    kind, _, value = name.partition(":")
    return value if kind == "user" else {"owner": "an owner", "operator": "an operator"}.get(value, f"a {value}")


def _refuse_closed(approval: Approval) -> None:
    """Conflict unless the request is open."""
    if approval.status in _STATUS_AFTER.values():
        raise Conflict(f"{approval.decided_login} decided this already: {approval.status}", extra={"status": approval.status})
    if approval.status == "cancelled":
        raise Conflict("the execution that asked no longer waits for this; there is nothing to decide")
    ends = approval.request.expires_at
    if approval.status == "expired" or (ends is not None and ends <= clock.now_ms()):
        raise Conflict("the time for this decision is over; run the process again if it is still wanted")


def _close(scope: TenantScope, approval_id: str, status: Status, **facts: Any) -> bool:
    """End a pending request; False when it is not pending any more."""
    fits = (ApprovalRow.id == approval_id) & (ApprovalRow.status == "pending")
    changed = scope.update(ApprovalRow, status=status, closed_at=clock.now_ms(), **facts).where(fits).execute()
    return bool(changed)


def _starter_of(scope: TenantScope, execution_id: str) -> str:
    """The actor that started the execution, or the one that a chain of child executions began with."""
    actor = f"execution:{execution_id}"
    while actor.startswith("execution:"):
        # Plain SQL: executions belong to the layer above, and who asked is not for the asking code to say.
        found = db.rows(
            "SELECT actor FROM execution WHERE tenant_id = ? AND id = ?", (scope.tenant_id, actor.removeprefix("execution:"))
        )
        if not found:
            raise NotFound(f"there is no {actor.replace(':', ' ')} here")
        actor = found[0][0]
    return actor


def _facts(approval: Approval) -> dict[str, Any]:
    """What the audit trail says about a request."""
    request = approval.request
    return {
        "kind": request.kind, "title": request.title, "digest": approval.digest, "execution_id": request.origin.execution_id,
        "process_id": request.origin.process_id, "step": request.origin.step, "requested_by": approval.requested_by,
    }  # fmt: skip


def _digest_of(request: HumanRequest) -> str:
    shown = asdict(request)
    return _sha256({name: shown[name] for name in sorted(shown)})


def _sha256(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _approval(row: ApprovalRow) -> Approval:
    origin = Origin(row.execution_id, row.process_id, row.step, row.path, row.iteration, row.host_call, row.attempt)
    request = HumanRequest(
        kind=cast(Kind, row.kind), title=row.title, origin=origin, reason=row.reason, details=row.details,
        schema=row.answer_schema, choices=tuple(row.choices), approvers=tuple(row.approvers), expires_at=row.expires_at,
    )  # fmt: skip
    return Approval(
        id=row.id, request=request, status=cast(Status, row.status), digest=row.digest, requested_by=row.requested_by,
        created_at=row.created_at, closed_at=row.closed_at, decided_by=row.decided_by, decided_login=row.decided_login,
        answer=row.answer, comment=row.comment,
    )  # fmt: skip
