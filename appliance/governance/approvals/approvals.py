"""Requests to people: made by an execution, a run or a caller, decided by signed-in people, reported back to the requester."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, cast

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import Conflict, IdempotencyMismatch, PolicyDenied, ValidationFailed
from appliance.core.events import hub
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance.models import ApprovalRow, ApprovalVoteRow
from appliance.monitor import audit, webhooks
from appliance.tenants import SignedIn

from .deciders import Audience, check_may_decide, find_decidable
from .human_requests import HumanRequest, Kind, Origin, check_answer, check_comment, parse_request
from .links import review_url
from .request_limits import check_request_limits
from .starters import find_starter

__all__ = ["HumanRequest", "Origin", "find_starter", "parse_request"]
Status = Literal["pending", "approved", "used", "rejected", "answered", "expired", "cancelled"]
Verdict = Literal["approve", "reject", "answer"]
_VERDICTS: dict[Kind, tuple[Verdict, ...]] = {"approval": ("approve", "reject"), "input": ("answer",), "choice": ("answer",)}
_STATUS_AFTER: dict[Verdict, Status] = {"approve": "approved", "reject": "rejected", "answer": "answered"}


@dataclass(frozen=True)
class Vote:
    """One person's decision; `at` in epoch milliseconds."""

    login: str
    verdict: Verdict
    comment: str
    at: int


@dataclass(frozen=True)
class RequestContext:
    """Who makes a request, and which action it is about, if any.

    `asked_by` is the requesting actor, `agent` and `run_id` name an agent's run.  `heading` and `summary` describe the action in
    words derived from it alone, `digest` is that of its canonical form; `policy` is the decision's `{version, rules, reasons}`.
    """

    asked_by: str
    agent: str = ""
    run_id: str = ""
    needed: int = 1
    heading: str = ""
    summary: str = ""
    digest: str | None = None
    policy: Mapping[str, Any] | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True)
class Approval:
    """A request and its current state.

    `digest` is the SHA-256 of everything shown to the person who decides; `requested_by` is the original actor: whoever
    started the execution or the run, or made the call; `decided_by` is `user:<id>` of the last person who decided,
    `decided_login` their login at that time.  `used_by` names the call that dispatched an approved action, which is then
    `used`.  Times are epoch milliseconds.
    """

    id: str
    request: HumanRequest
    status: Status
    digest: str
    requested_by: str
    about: RequestContext
    created_at: int
    closed_at: int | None = None
    decided_by: str | None = None
    decided_login: str | None = None
    answer: Any = None
    comment: str = ""
    used_at: int | None = None
    used_by: str | None = None
    votes: tuple[Vote, ...] = ()

    @property
    def audience(self) -> Audience:
        """What determines who may decide the request."""
        request, askers = self.request, (self.requested_by, self.about.asked_by)
        return Audience(request.kind, tuple(request.approvers), askers, bool(request.origin.execution_id))

    @property
    def origin(self) -> Origin:
        return self.request.origin


@dataclass(frozen=True)
class ApprovalFilter:
    """Criteria of a list of requests; None matches any value."""

    status: str | None = None
    execution_id: str | None = None


@dataclass(frozen=True)
class Decision:
    """A person's decision: `approve` or `reject` an approval, `answer` an input or a choice."""

    verdict: Verdict
    answer: Any = None
    comment: str = ""


@dataclass(frozen=True)
class ApprovalClosed:
    """A request was decided, or one that no execution made has expired.  Published inside the write."""

    scope: TenantScope
    approval: Approval


def request_approval(scope: TenantScope, request: HumanRequest) -> Approval:
    """Inside a write: create a request of an execution.  NotFound if there is no such execution."""
    return create_request(scope, request, RequestContext(f"execution:{request.origin.execution_id}"))


def create_request(
    scope: TenantScope, request: HumanRequest, about: RequestContext, seal: Callable[[str], bytes] | None = None
) -> Approval:
    """Inside a write: create a request.  `seal` takes the id and returns the sealed action.

    A repeated idempotency key of one requester returns the existing request as it is now; IdempotencyMismatch if the request
    differs.  NotFound (no such execution), PolicyDenied (unknown starter), RateLimited (too many open requests).
    """
    db.require_exclusive()  # The key must be new, and the limits must hold, until the row is there.
    if (existing := _find_repeated(scope, request, about)) is not None:
        return existing
    check_request_limits(scope, about.asked_by, about.agent)
    approval_id, origin = ids.new("apr"), request.origin
    scope.insert(
        ApprovalRow, id=approval_id, kind=request.kind, title=request.title, reason=request.reason, details=request.details,
        answer_schema=request.schema, choices=list(request.choices), approvers=list(request.approvers),
        digest=_digest_of(request, about), status="pending", execution_id=origin.execution_id or None,
        process_id=origin.process_id, step=origin.step, path=origin.path, iteration=origin.iteration, host_call=origin.call,
        attempt=origin.attempt, requested_by=find_starter(scope, about.asked_by), created_at=clock.now_ms(),
        expires_at=request.expires_at, comment="", asked_by=about.asked_by, agent=about.agent, run_id=about.run_id,
        needed=about.needed, heading=about.heading, summary=about.summary, action_digest=about.digest, policy=about.policy,
        idempotency_key=about.idempotency_key, sealed=seal(approval_id) if seal else None,
    )  # fmt: skip
    approval = get_approval(scope, approval_id)
    audit.record(scope, "approval.request", approval_id, audit_details(approval))
    webhooks.emit(scope, "approval.requested", lambda: _webhook_payload(scope, approval))
    return approval


def _find_repeated(scope: TenantScope, request: HumanRequest, about: RequestContext) -> Approval | None:
    key = about.idempotency_key
    if key is None:
        return None
    row = scope.find(ApprovalRow, asked_by=about.asked_by, run_id=about.run_id, idempotency_key=key)
    if row is None:
        return None
    (existing,) = read_rows(scope, [row])
    same = (
        existing.about.digest == about.digest
        if about.digest
        else replace(existing.request, expires_at=request.expires_at) == request
    )
    if not same:
        raise IdempotencyMismatch(
            Sentence("the idempotency key %(key)s was used for a different request; use a new key", key=repr(key[:80]))
        )
    return existing


def _webhook_payload(scope: TenantScope, approval: Approval) -> dict[str, Any]:
    """The webhook payload of a new request; the content itself is only shown where it is decided."""
    request, origin, about = approval.request, approval.origin, approval.about
    return {
        "review_url": review_url(scope, approval.id),
        "approval_id": approval.id, "kind": request.kind, "title": request.title, "approvers": list(request.approvers),
        "execution_id": origin.execution_id or None, "process_id": origin.process_id or None, "step": origin.step or None,
        "agent": about.agent or None, "run_id": about.run_id or None, "needed": about.needed,
        "action": about.heading or None, "action_digest": about.digest, "expires_at": clock.optional_rfc3339(request.expires_at),
    }  # fmt: skip


def get_approval(scope: TenantScope, approval_id: str) -> Approval:
    """One request; NotFound."""
    return read_rows(scope, [scope.get(ApprovalRow, id=approval_id)])[0]


# Read for every page of the console, so only what is needed.
_UNDECIDED = """
SELECT a.id, a.kind, a.approvers, a.execution_id, a.requested_by, a.asked_by FROM approval AS a
WHERE a.tenant_id = ? AND a.status = 'pending' AND (a.expires_at IS NULL OR a.expires_at > ?) AND NOT EXISTS (
    SELECT 1 FROM approval_vote AS v WHERE v.tenant_id = a.tenant_id AND v.approval_id = a.id AND v.login = ?
) ORDER BY a.created_at, a.id LIMIT ?
"""
MOST_COUNTED = 100


def list_approvals(scope: TenantScope, filters: ApprovalFilter, page: PageRequest) -> Page[Approval]:
    """Requests, newest first."""
    query = scope.select(ApprovalRow)
    if filters.status is not None:
        query = query.where(ApprovalRow.status == filters.status)
    if filters.execution_id is not None:
        query = query.where(ApprovalRow.execution_id == filters.execution_id)
    result = paginate(query, page, {"created_at": ApprovalRow.created_at, "id": ApprovalRow.id})
    return Page(read_rows(scope, result.items), result.next_cursor, result.total)


def count_decidable(scope: TenantScope, person: SignedIn) -> int:
    """The number of pending requests that this person may decide now, among the oldest hundred without their vote."""
    requests = {}
    for row in db.rows(_UNDECIDED, (scope.tenant_id, clock.now_ms(), person.login, MOST_COUNTED)):
        id_, kind, approvers, execution_id, requested_by, asked_by = row
        askers = (requested_by, asked_by or f"execution:{execution_id}")
        requests[id_] = Audience(kind, tuple(json.loads(approvers)), askers, bool(execution_id))
    return len(find_decidable(scope, person.user_id, requests))


def decide_approval(scope: TenantScope, person: SignedIn, approval_id: str, decision: Decision) -> Approval:
    """Record a signed-in person's decision: the last required approval approves, one rejection rejects.

    NotFound, PolicyDenied (not theirs to decide), ValidationFailed (invalid answer; pointers under `/answer`),
    Conflict (already decided, expired or cancelled).
    """
    if scope.actor != f"user:{person.user_id}":
        raise PolicyDenied("only a signed-in person can decide; open the request in the console")
    approval = get_approval(scope, approval_id)
    _refuse_closed(approval)
    check_decider(scope, person, approval)
    if decision.verdict not in _VERDICTS[approval.request.kind]:
        verdicts = " or ".join(_VERDICTS[approval.request.kind])
        raise ValidationFailed(
            Sentence("a request of kind %(kind)s takes the verdict %(known)s", kind=approval.request.kind, known=verdicts),
            pointer="/verdict",
        )
    # Validate before taking the writer: the request never changes, and evaluating a schema may take time.
    answer, comment = check_answer(approval.request, decision.answer, namespace=scope.tenant_id), check_comment(decision.comment)

    def decide() -> Approval:
        # This update takes the row lock: a concurrent decision is either visible now or waits.
        is_pending = (ApprovalRow.id == approval_id) & (ApprovalRow.status == "pending")
        scope.update(ApprovalRow, status="pending").where(is_pending).execute()
        before = get_approval(scope, approval_id)
        _refuse_closed(before)
        is_self_approval = check_decider(scope, person, before)
        _record_vote(scope, person, before, decision.verdict, comment)
        details: dict[str, Any] = {"comment": comment} | ({"self_approved": True} if is_self_approval else {})
        approved = sum(vote.verdict == "approve" for vote in before.votes) + 1
        if decision.verdict == "approve" and before.about.needed > 1:
            details |= {"approved": approved, "needed": before.about.needed}
        is_last = decision.verdict != "approve" or approved >= before.about.needed
        if is_last:
            fields = {"decided_by": scope.actor, "decided_login": person.login, "answer": answer, "comment": comment}
            _close(scope, approval_id, _STATUS_AFTER[decision.verdict], **fields)
        decided = get_approval(scope, approval_id)
        if decision.verdict == "answer":
            details["answer_digest"] = _sha256(answer)
        audit.record(scope, f"approval.{decision.verdict}", approval_id, audit_details(decided) | details)
        if is_last:
            hub.publish(ApprovalClosed(scope, decided))
        return decided

    return db.write(decide)


def _record_vote(scope: TenantScope, person: SignedIn, approval: Approval, verdict: Verdict, comment: str) -> None:
    if any(vote.login == person.login for vote in approval.votes):
        raise Conflict("you have already decided; another person must decide as well")
    scope.insert(
        ApprovalVoteRow, approval_id=approval.id, user_id=person.user_id, login=person.login, verdict=verdict, comment=comment,
        at=clock.now_ms(),
    )  # fmt: skip


def withdraw_approval(scope: TenantScope, approval_id: str, reason: str) -> None:
    """Inside a write: cancel a request whose requester no longer waits.  Closed requests stay as they are; an approved action
    that has not been used can no longer be used."""
    if _close(scope, approval_id, "cancelled"):
        audit.record(scope, "approval.cancel", approval_id, {"reason": reason})


def expire_approval(scope: TenantScope, approval_id: str) -> Approval:
    """Inside a write: mark a request as expired.  Returns the request, unchanged if somebody decided first."""
    if _close(scope, approval_id, "expired"):
        audit.record(scope, "approval.expire", approval_id, audit_details(get_approval(scope, approval_id)))
    return get_approval(scope, approval_id)


def answer_view(approval: Approval) -> dict[str, Any]:
    """The answer for the requesting code: `{status, answer, comment, decided_by, decided_at, request_id}`; times in RFC 3339.

    `decided_by` is a login, `status` is approved, rejected, answered or expired; ValueError for a pending or cancelled request.
    """
    if approval.status in ("pending", "cancelled"):
        raise ValueError(f"{approval.id} is {approval.status}")
    return {
        "status": "approved" if approval.status == "used" else approval.status,
        "answer": approval.answer,
        "comment": approval.comment,
        "decided_by": approval.decided_login,
        "decided_at": clock.optional_rfc3339(approval.closed_at) if approval.decided_by else None,
        "request_id": approval.id,
    }


def check_decider(scope: TenantScope, person: SignedIn, approval: Approval) -> bool:
    """PolicyDenied unless this person may decide; returns whether they would approve their own request."""
    return check_may_decide(scope, person.user_id, approval.audience)


def _refuse_closed(approval: Approval) -> None:
    """Conflict unless the request is open."""
    if approval.status in ("approved", "used", "rejected", "answered"):
        raise Conflict(
            Sentence(
                "%(decided_login)s has already decided this request: %(status)s",
                decided_login=approval.decided_login, status=approval.status,
            ),
            extra={"status": approval.status},
        )
    if approval.status == "cancelled":
        raise Conflict("the requester cancelled this request; there is nothing to decide")
    ends = approval.request.expires_at
    if approval.status == "expired" or (ends is not None and ends <= clock.now_ms()):
        raise Conflict("this request has expired; ask the requester for a new one if it is still needed")


def _close(scope: TenantScope, approval_id: str, status: Status, **facts: Any) -> bool:
    """Close a request that is pending, or approved with an unused action; False if it is already closed."""
    is_open = ApprovalRow.status == "pending"
    if status == "cancelled":
        is_open |= (ApprovalRow.status == "approved") & ApprovalRow.action_digest.is_null(False)
    update = scope.update(ApprovalRow, status=status, closed_at=clock.now_ms(), **facts)
    return bool(update.where((ApprovalRow.id == approval_id) & is_open).execute())


def audit_details(approval: Approval) -> dict[str, Any]:
    """The audit details of a request."""
    request, about = approval.request, approval.about
    details = {
        "kind": request.kind, "title": request.title, "digest": approval.digest, "execution_id": request.origin.execution_id,
        "process_id": request.origin.process_id, "step": request.origin.step, "requested_by": approval.requested_by,
        "agent": about.agent, "run_id": about.run_id, "action": about.heading, "action_digest": about.digest or "",
    }  # fmt: skip
    return {name: value for name, value in details.items() if value != ""}


def _digest_of(request: HumanRequest, about: RequestContext) -> str:
    content = asdict(request)
    if about.digest:
        content |= {"action_digest": about.digest, "summary": about.summary, "needed": about.needed}
    return _sha256({name: content[name] for name in sorted(content)})


def _sha256(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_rows(scope: TenantScope, rows: Sequence[ApprovalRow]) -> list[Approval]:
    """The requests of these rows, in the same order."""
    votes: dict[str, list[Vote]] = {row.id: [] for row in rows}
    for each in scope.select(ApprovalVoteRow).where(ApprovalVoteRow.approval_id.in_(list(votes))).order_by(ApprovalVoteRow.at):
        votes[each.approval_id].append(Vote(each.login, cast(Verdict, each.verdict), each.comment, each.at))
    return [_from_row(row, votes[row.id]) for row in rows]


def _from_row(row: ApprovalRow, votes: Sequence[Vote]) -> Approval:
    origin = Origin(
        execution_id=row.execution_id or "", process_id=row.process_id, step=row.step, path=row.path, iteration=row.iteration,
        call=row.host_call, attempt=row.attempt,
    )
    request = HumanRequest(
        kind=cast(Kind, row.kind), title=row.title, origin=origin, reason=row.reason, details=row.details,
        schema=row.answer_schema, choices=tuple(row.choices), approvers=tuple(row.approvers), expires_at=row.expires_at,
    )  # fmt: skip
    about = RequestContext(
        asked_by=row.asked_by or f"execution:{row.execution_id}", agent=row.agent, run_id=row.run_id, needed=row.needed,
        heading=row.heading, summary=row.summary, digest=row.action_digest, policy=row.policy, idempotency_key=row.idempotency_key,
    )  # fmt: skip
    return Approval(
        id=row.id, request=request, status=cast(Status, row.status), digest=row.digest, requested_by=row.requested_by,
        about=about, created_at=row.created_at, closed_at=row.closed_at, decided_by=row.decided_by,
        decided_login=row.decided_login, answer=row.answer, comment=row.comment, used_at=row.used_at, used_by=row.used_by,
        votes=tuple(votes),
    )  # fmt: skip
