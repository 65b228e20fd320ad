"""/api/v1/approvals: requests to people.  There is no route to decide one: only a signed-in person can, in the console."""

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from appliance.agents.tools import Caller
from appliance.api.frame.routing import GOVERNED, NULL, Answer, Body, Call, ListQuery, View, route
from appliance.core import clock
from appliance.core.errors import ValidationFailed
from appliance.core.pages import Page
from appliance.governance import Subject, subject_of
from appliance.governance.approvals import (
    ActionApprovals,
    Approval,
    ApprovalFilter,
    HumanInput,
    RequestOptions,
    Vote,
    approvals,
    human_input,
)

Status = Literal["pending", "approved", "used", "rejected", "answered", "expired", "cancelled"]


class ApprovalsQuery(ListQuery):
    status: Status | None = None
    execution_id: Annotated[str, Field(min_length=1, max_length=80)] | None = None


class RequestedActionBody(Body):
    """The exact call to approve: a tool, such as `execute_tenant_integration` with `{integration, operation, params}`."""

    tool: Annotated[str, Field(min_length=1, max_length=100)]
    arguments: dict[str, Any]


class HumanInputBody(Body):
    """`title` and `reason` are shown as the requester's words. `action` is for an `approval`, `schema` (JSON Schema of the answer)
    for an `input`, `choices` for a `choice`. Without `ttl_seconds` a request expires after a day, or when policies say an
    approval expires. Repeating an `idempotency_key` returns the same request."""

    kind: Literal["approval", "input", "choice"]
    title: Annotated[str, Field(max_length=200)] = ""
    reason: Annotated[str, Field(max_length=4000)] = ""
    action: RequestedActionBody | None = None
    answer_schema: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    choices: list[str] | None = None
    ttl_seconds: int | None = None
    idempotency_key: Annotated[str, Field(min_length=1, max_length=200)] | None = None


class ApprovalVoteView(View):
    """One person's decision; `by` is a login."""

    by: str
    verdict: Literal["approve", "reject", "answer"]
    comment: str | None = None
    at: str


class ApprovalView(View):
    """`schema` describes the answer to an `input`. `requested_by` is the actor that called or that started the execution or agent
    run; `decided_by` is a login. `digest` is the SHA-256 of the request, which the audit trail records with the decision.
    `action` and `summary` describe what the action would do, `action_digest` is the SHA-256 of its canonical form, and `needed`
    different people must approve it. A `used` approval was dispatched at `used_at` as `used_by`."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)  # pydantic reserves the name `schema`

    id: str
    kind: Literal["approval", "input", "choice"]
    title: str
    reason: str | None = None
    details: Any = None
    answer_schema: Annotated[dict[str, Any] | None, Field(serialization_alias="schema")] = None
    choices: list[str] | None = None
    approvers: list[str]
    status: Status
    digest: str
    execution_id: str | None = None
    process_id: str | None = None
    step: str | None = None
    path: str | None = None
    iteration: str | None = None
    attempt: int | None = None
    agent: str | None = None
    run_id: str | None = None
    action: str | None = None
    summary: str | None = None
    action_digest: str | None = None
    policy: dict[str, Any] | None = None
    needed: int
    decisions: list[ApprovalVoteView] | None = None
    requested_by: str
    asked_by: str
    created_at: str
    expires_at: str | None = None
    closed_at: str | None = None
    decided_by: str | None = None
    answer: Any = None
    comment: str | None = None
    used_at: str | None = None
    used_by: str | None = None
    review_url: str


def vote_view(vote: Vote) -> ApprovalVoteView:
    return ApprovalVoteView(by=vote.login, verdict=vote.verdict, comment=vote.comment or None, at=clock.rfc3339(vote.at))


def approval_view(call: Call, row: Approval) -> ApprovalView:
    request, origin, about = row.request, row.origin, row.about
    base = call.services.config.tenant_url(call.scope.tenant_id)
    return ApprovalView(
        id=row.id, kind=request.kind, title=request.title, reason=request.reason or None, details=request.details,
        answer_schema=dict(request.schema) if request.schema is not None else None, choices=list(request.choices) or None,
        approvers=list(request.approvers), status=row.status, digest=row.digest, execution_id=origin.execution_id or None,
        process_id=origin.process_id or None, step=origin.step or None, path=origin.path or None,
        iteration=origin.iteration or None, attempt=origin.attempt if origin.execution_id else None, agent=about.agent or None,
        run_id=about.run_id or None, action=about.heading or None, summary=about.summary or None, action_digest=about.digest,
        policy=dict(about.policy) if about.policy else None, needed=about.needed, requested_by=row.requested_by,
        decisions=[vote_view(vote) for vote in row.votes] or None, asked_by=about.asked_by,
        created_at=clock.rfc3339(row.created_at), expires_at=clock.optional_rfc3339(request.expires_at),
        closed_at=clock.optional_rfc3339(row.closed_at),
        decided_by=row.decided_login, answer=NULL if row.status == "answered" and row.answer is None else row.answer,
        comment=row.comment or None, used_at=clock.optional_rfc3339(row.used_at), used_by=row.used_by,
        review_url=f"{base}/console/approvals/{row.id}",
    )  # fmt: skip


@route("GET", "/approvals", scope="approvals.read", returns=ApprovalView, listed=True, query=ApprovalsQuery)
def list_approvals(call: Call) -> Page[ApprovalView]:
    """List requests to people, open and closed, newest first.

    People decide at `review_url`, signed in; an API key cannot decide.
    """
    query: ApprovalsQuery = call.query
    filters = ApprovalFilter(query.status, query.execution_id)
    return approvals.list_approvals(call.scope, filters, query.page).map(lambda row: approval_view(call, row))


@route("GET", "/approvals/{approval_id}", scope="approvals.read", returns=ApprovalView)
def get_approval(call: Call, approval_id: str) -> ApprovalView:
    """Show a request and, once it is decided, the decision."""
    return approval_view(call, approvals.get_approval(call.scope, approval_id))


@route(
    "POST", "/approvals", scope="approvals.request", body=HumanInputBody, returns=ApprovalView, status=201, atomic=False,
    acts=GOVERNED,
)  # fmt: skip
async def request_human_input(call: Call) -> Answer:
    """Ask people for an approval, an answer or a choice.

    The approval of an action is valid once, for exactly this action and caller: repeat the call with the `approval_id`.
    Neither the requester nor the person who created their key can approve; only a signed-in person decides.
    """
    body: HumanInputBody = call.body
    if body.action is None:
        return await asyncio.get_running_loop().run_in_executor(call.services.threads, _create_request, call)
    # Discovering the actions of an integration may take as long as a call to its system.
    return await asyncio.wrap_future(call.services.executor.submit(call.scope, partial(_create_request, call)))


def _create_request(call: Call) -> Answer:
    body: HumanInputBody = call.body
    subject, key = subject_of(call.scope), body.idempotency_key or call.token or None
    if body.action is not None:
        approval = _request_action(call, subject, body, RequestOptions(body.title, body.reason, body.ttl_seconds, key))
    else:
        request = HumanInput(body.kind, body.title, body.reason, body.answer_schema, body.choices, body.ttl_seconds, key)
        approval = human_input.request_human_input(call.scope, subject, request)
    return Answer(approval_view(call, approval), headers={"Location": f"/api/v1/approvals/{approval.id}"})


def _request_action(call: Call, subject: Subject, body: HumanInputBody, preferences: RequestOptions) -> Approval:
    call_to_approve, services = body.action, call.services
    if call_to_approve is None or body.kind != "approval" or body.answer_schema is not None or body.choices is not None:
        raise ValidationFailed(
            "`action` needs the kind `approval`, which has neither `schema` nor `choices`", pointer="/action"
        )
    action = services.tools.action_of(Caller(call.scope, subject), call_to_approve.tool, call_to_approve.arguments)
    decision = services.governor.evaluate(call.scope, subject, action)
    return ActionApprovals(services.sealer).request_action(call.scope, subject, action, decision, preferences)


@route("POST", "/approvals/{approval_id}/cancel", scope="approvals.request", returns=ApprovalView, acts=GOVERNED)
def cancel_request(call: Call, approval_id: str) -> ApprovalView:
    """Withdraw a request that you made; an approval that has not been used yet becomes invalid."""
    return approval_view(call, human_input.cancel_request(call.scope, subject_of(call.scope), approval_id))
