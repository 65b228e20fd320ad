"""/api/v1/approvals: requests to people.  There is no route to decide one: only a signed-in person can, in the console."""

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from appliance.agents.tools import Caller
from appliance.api.frame.routing import GOVERNED, NULL, Answer, Body, Call, ListQuery, View, route
from appliance.core import clock
from appliance.core.errors import ConcurrencyLimited, Conflict, NotFound, PolicyDenied, ValidationFailed
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
ExecutionId = Annotated[str, Field(min_length=1, max_length=80)]
RequestKey = Annotated[str, Field(min_length=1, max_length=200)]


class ApprovalsQuery(ListQuery):
    status: Annotated[Status | None, Field(description="Only requests with this status.")] = None
    execution_id: Annotated[
        ExecutionId | None, Field(description="Only requests made by the steps of this execution; `exe_…`, 1 to 80 characters.")
    ] = None


class RequestedActionBody(Body):
    """The exact call to approve: a tool, such as `execute_tenant_integration` with `{integration, operation, params}`."""

    tool: Annotated[str, Field(min_length=1, max_length=100, description=(
        "The tool to be called, 1 to 100 characters, such as `execute_tenant_integration`."
    ))]
    arguments: Annotated[dict[str, Any], Field(description=(
        "The arguments of the call exactly as it will be repeated; any difference makes the approval invalid."
    ))]


class HumanInputBody(Body):
    """`title` and `reason` are shown as the requester's words. `action` is for an `approval`, `schema` (JSON Schema of the answer)
    for an `input`, `choices` for a `choice`. Without `ttl_seconds` a request expires after a day, or when policies say an
    approval expires. Repeating an `idempotency_key` returns the same request."""

    kind: Annotated[Literal["approval", "input", "choice"], Field(description=(
        "What people decide: an `approval` is approved or rejected, an `input` is filled in, and one option of a `choice` is "
        "picked."
    ))]
    title: Annotated[str, Field(max_length=200, description=(
        "One line shown as the heading, at most 200 characters; required for a question, and for an action by default the line "
        "that names it."
    ))] = ""
    reason: Annotated[str, Field(max_length=4000, description=(
        "Why the decision is needed, shown to approvers as the requester's words; at most 4,000 characters."
    ))] = ""
    action: Annotated[RequestedActionBody | None, Field(description=(
        "The call to approve, only with the kind `approval`; absent for a question that permits no action."
    ))] = None
    answer_schema: Annotated[dict[str, Any] | None, Field(alias="schema", description=(
        "JSON Schema that the answer must match; for the kind `input` only."
    ))] = None
    choices: Annotated[list[str] | None, Field(description="The options to pick from; for the kind `choice` only.")] = None
    ttl_seconds: Annotated[int | None, Field(description=(
        "Seconds until the request expires, from 1 to 7,776,000 (90 days). Default: a day, or what policies say for the action."
    ))] = None
    idempotency_key: Annotated[RequestKey | None, Field(description=(
        "Makes repetition safe: a second request with this text returns the first; 1 to 200 characters. Default: the "
        "Idempotency-Key header."
    ))] = None


class ApprovalVoteView(View):
    """One person's decision; `by` is a login."""

    by: Annotated[str, Field(description="The login of the person who decided.")]
    verdict: Annotated[Literal["approve", "reject", "answer"], Field(description=(
        "What the person decided: `approve` and `reject` an approval, `answer` an input or a choice."
    ))]
    comment: Annotated[str | None, Field(description="The note left with the decision; absent without one.")] = None
    at: Annotated[str, Field(description="When the person decided; RFC 3339, UTC.")]


class ApprovalView(View):
    """`schema` describes the answer to an `input`. `requested_by` is the actor that called or that started the execution or agent
    run; `decided_by` is a login. `digest` is the SHA-256 of the request, which the audit trail records with the decision.
    `action` and `summary` describe what the action would do, `action_digest` is the SHA-256 of its canonical form, and `needed`
    different people must approve it. A `used` approval was dispatched at `used_at` as `used_by`."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)  # pydantic reserves the name `schema`

    id: Annotated[str, Field(description=(
        "Identifies the request; `apr_…`, sent back as `approval_id` or `Approval-Id` once an action is approved."
    ))]
    kind: Annotated[Literal["approval", "input", "choice"], Field(description=(
        "What people decide: approve or reject an action, fill in an `input`, or pick one option of a `choice`."
    ))]
    title: Annotated[str, Field(description="The heading shown to approvers, in the requester's words.")]
    reason: Annotated[
        str | None, Field(description="Why the requester needs the decision, in their own words; absent if none was stated.")
    ] = None
    details: Annotated[
        Any, Field(description="Any JSON that the requester attached for approvers to read; absent without it.")
    ] = None
    answer_schema: Annotated[dict[str, Any] | None, Field(serialization_alias="schema", description=(
        "JSON Schema that the answer to an `input` must match; absent for other kinds."
    ))] = None
    choices: Annotated[list[str] | None, Field(description="The options of a `choice`; absent for other kinds.")] = None
    approvers: Annotated[list[str], Field(description=(
        "Who may decide: `role:<role>`, which includes higher roles, or `user:<login>`; empty if the request names nobody."
    ))]
    status: Annotated[Status, Field(description=(
        "The stage of the request; `approved` becomes `used` once its action was dispatched, and `answered` ends an input or a "
        "choice."
    ))]
    digest: Annotated[
        str, Field(description="SHA-256 of the whole request in hexadecimal, which the audit trail records with each decision.")
    ]
    execution_id: Annotated[
        str | None, Field(description="The execution whose step made the request; `exe_…`. Absent if none did.")
    ] = None
    process_id: Annotated[str | None, Field(description="The process of that execution; absent without an execution.")] = None
    step: Annotated[str | None, Field(description="The id of the step that made the request; absent without an execution.")] = None
    path: Annotated[str | None, Field(description=(
        "The place of that step in the definition: the ids of the blocks around it and its own, joined by `/`."
    ))] = None
    iteration: Annotated[
        str | None, Field(description="Which item of the `for_each` blocks around the step made the request; absent outside one.")
    ] = None
    attempt: Annotated[int | None, Field(description=(
        "The number of the step's attempt that made the request, from 1; absent without an execution."
    ))] = None
    agent: Annotated[str | None, Field(description="The agent whose run made the request; absent if none did.")] = None
    run_id: Annotated[str | None, Field(description="The agent run that made the request; `run_…`. Absent if none did.")] = None
    action: Annotated[
        str | None, Field(description="One line that names the action to approve; absent if the request is only a question.")
    ] = None
    summary: Annotated[str | None, Field(description=(
        "What the action would do, written by the appliance and not by the requester; absent for a question."
    ))] = None
    action_digest: Annotated[str | None, Field(description=(
        "SHA-256 of the canonical form of the action, which the repeated call must match; absent for a question."
    ))] = None
    policy: Annotated[dict[str, Any] | None, Field(description=(
        "The policy decision behind the request: `version`, `rules` and `reasons`. Absent if no policy was involved."
    ))] = None
    needed: Annotated[int, Field(description="How many different people must approve, at least 1.")]
    decisions: Annotated[
        list[ApprovalVoteView] | None, Field(description="The decisions so far, one for each person; absent before the first.")
    ] = None
    requested_by: Annotated[
        str, Field(description="The actor behind the request: the caller, or whoever started the execution or agent run.")
    ]
    asked_by: Annotated[str, Field(description="The actor that made the request itself, such as `execution:exe_…` for a step.")]
    created_at: Annotated[str, Field(description="When the request was made; RFC 3339, UTC.")]
    expires_at: Annotated[
        str | None, Field(description="When it can no longer be decided or used; RFC 3339, UTC. Absent if it never expires.")
    ] = None
    closed_at: Annotated[
        str | None, Field(description="When it was decided, expired or cancelled; RFC 3339, UTC. Absent while it is pending.")
    ] = None
    decided_by: Annotated[
        str | None, Field(description="The login of the person whose decision closed the request; absent if nobody's did.")
    ] = None
    answer: Annotated[Any, Field(description=(
        "The answer to an `input` or the chosen option; null if the answer is null, absent until it is answered."
    ))] = None
    comment: Annotated[str | None, Field(description="The note left when the request was closed; absent without one.")] = None
    used_at: Annotated[
        str | None, Field(description="When the approved action was dispatched; RFC 3339, UTC. Absent until then.")
    ] = None
    used_by: Annotated[str | None, Field(description="The actor that dispatched the approved action; absent until then.")] = None
    review_url: Annotated[str, Field(description="The console page where a signed-in person decides; an absolute URL.")]


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
    """List requests to people.

    Open and closed requests, newest first.

    People decide at `review_url`, signed in; an API key cannot decide.
    """
    query: ApprovalsQuery = call.query
    filters = ApprovalFilter(query.status, query.execution_id)
    return approvals.list_approvals(call.scope, filters, query.page).map(lambda row: approval_view(call, row))


@route("GET", "/approvals/{approval_id}", scope="approvals.read", returns=ApprovalView)
def get_approval(call: Call, approval_id: str) -> ApprovalView:
    """Show a request and its decision.

    A pending one also says who may decide.
    """
    return approval_view(call, approvals.get_approval(call.scope, approval_id))


@route(
    "POST", "/approvals", scope="approvals.request", body=HumanInputBody, returns=ApprovalView, status=201, atomic=False,
    acts=GOVERNED, errors=(ConcurrencyLimited, NotFound, PolicyDenied),
)  # fmt: skip
async def request_human_input(call: Call) -> Answer:
    """Ask people for a decision.

    The decision is an approval, an answer or a choice.

    The approval of an action is valid once, for exactly this action and caller: repeat the call with the `approval_id`.
    Neither the requester nor the person who created their key can approve; only a signed-in person decides.
    """
    body: HumanInputBody = call.body
    if body.action is None:
        return await asyncio.get_running_loop().run_in_executor(call.services.threads, _create_request, call)
    # Discovering the actions of an integration may take as long as a call to its system.
    return await asyncio.wrap_future(call.services.governance.executor.submit(call.scope, partial(_create_request, call)))


def _create_request(call: Call) -> Answer:
    body: HumanInputBody = call.body
    subject, key = subject_of(call.scope), body.idempotency_key or call.token or None
    if body.action is not None:
        approval = _request_action(call, subject, body, RequestOptions(body.title, body.reason, body.ttl_seconds, key))
    else:
        request = HumanInput(
            kind=body.kind, title=body.title, reason=body.reason, schema=body.answer_schema, choices=body.choices,
            ttl_seconds=body.ttl_seconds, idempotency_key=key,
        )
        approval = human_input.request_human_input(call.scope, subject, request)
    return Answer(approval_view(call, approval), headers={"Location": f"/api/v1/approvals/{approval.id}"})


def _request_action(call: Call, subject: Subject, body: HumanInputBody, preferences: RequestOptions) -> Approval:
    call_to_approve, services = body.action, call.services
    if call_to_approve is None or body.kind != "approval" or body.answer_schema is not None or body.choices is not None:
        raise ValidationFailed(
            "`action` needs the kind `approval`, which has neither `schema` nor `choices`", pointer="/action"
        )
    action = services.agents.tools.action_of(Caller(call.scope, subject), call_to_approve.tool, call_to_approve.arguments)
    decision = services.governance.governor.evaluate(call.scope, subject, action)
    return ActionApprovals(services.sealer).request_action(call.scope, subject, action, decision, preferences)


@route(
    "POST", "/approvals/{approval_id}/cancel", scope="approvals.request", returns=ApprovalView, acts=GOVERNED,
    errors=(Conflict, PolicyDenied),
)  # fmt: skip
def cancel_request(call: Call, approval_id: str) -> ApprovalView:
    """Withdraw a request that you made.

    An approval that has not been used yet becomes invalid.
    """
    return approval_view(call, human_input.cancel_request(call.scope, subject_of(call.scope), approval_id))
