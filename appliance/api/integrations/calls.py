"""/api/v1/integrations/{slug}/executions and /api/v1/logs/calls: records of calls, and settling and retrying them."""

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import GOVERNED, Answer, Body, Call, ListQuery, View, route
from appliance.core import clock
from appliance.core.errors import (
    ApprovalRequired,
    BudgetExceeded,
    ConcurrencyLimited,
    Conflict,
    ConnectorFailed,
    PolicyDenied,
    ValidationFailed,
)
from appliance.core.pages import Page
from appliance.governance.executor import ActionWithheld
from appliance.integrations import CallFilter, CallRecord, history

Effect = Literal["read", "idempotent", "write"]
CallOutcome = Literal["done", "not_done", "unknown"]
Status = Literal["queued", "running", "waiting", "succeeded", "failed"]
ApprovalId = Annotated[str, Field(min_length=1, max_length=80)]


class CallsQuery(ListQuery):
    """`created_after` (inclusive) and `created_before` (exclusive) are RFC 3339 times."""

    status: Annotated[
        Status | None, Field(description="Only calls with this status; `waiting` selects writes of unknown outcome.")
    ] = None
    outcome: Annotated[CallOutcome | None, Field(description=(
        "Only calls whose effect on the foreign system happened, did not happen or is unknown."
    ))] = None
    action: Annotated[str | None, Field(description="Only calls of the action with this name.")] = None
    execution_id: Annotated[str | None, Field(description="Only calls made by the steps of this execution; `exe_…`.")] = None
    created_after: Annotated[str | None, Field(description="Only calls made at or after this RFC 3339 time.")] = None
    created_before: Annotated[str | None, Field(description="Only calls made before this RFC 3339 time.")] = None


class AllCallsQuery(CallsQuery):
    """The parameters of `CallsQuery`, with an optional `integration`."""

    integration: Annotated[str | None, Field(description="Only calls of the integration with this slug.")] = None


class SettleCall(Body):
    outcome: Annotated[Literal["done", "not_done"], Field(description=(
        "What the foreign system shows: the write took effect (`done`) or did not (`not_done`)."
    ))]
    output: Annotated[dict[str, Any] | None, Field(description=(
        "What the action would have returned, for repeated requests to continue with; only with `done`."
    ))] = None


class RetryCall(Body):
    """`approval_id` names an approval of exactly this action, where policies require one."""

    approval_id: Annotated[ApprovalId | None, Field(description=(
        "The approval of exactly this action, where policies require one; `apr_…`, 1 to 80 characters."
    ))] = None


class QueuePlaceView(View):
    position: Annotated[int, Field(description="The place in the tenant's queue, from 1.")]
    ahead: Annotated[int, Field(description="How many queued calls of the tenant are served before this one.")]
    enqueued_at: Annotated[str, Field(description="When the call was queued; RFC 3339, UTC.")]


class OriginView(View):
    """The step of an execution that made a call; `call` is the number of the host call in step code."""

    execution_id: Annotated[str, Field(description="The execution whose step made the call; `exe_…`.")]
    path: Annotated[str | None, Field(description=(
        "The place of the step in the definition: the ids of the blocks around it and its own, joined by `/`."
    ))] = None
    iteration: Annotated[
        str | None, Field(description="Which item of the `for_each` blocks around the step was worked on; absent outside one.")
    ] = None
    attempt: Annotated[int | None, Field(description="The number of the step's attempt, from 1; absent if unknown.")] = None
    call: Annotated[
        int | None, Field(description="The number of the call within the attempt of a code step; absent for other steps.")
    ] = None


class TrafficView(View):
    """The network traffic of a call: the `hosts` it contacted, and for HTTP the number of requests and bytes of their bodies."""

    hosts: Annotated[list[str], Field(description="The hosts that the call connected to; empty if it connected to none.")]
    requests: Annotated[int | None, Field(description="The number of HTTP requests sent; absent for other protocols.")] = None
    sent_bytes: Annotated[
        int | None, Field(description="The bytes of all request bodies; absent for protocols other than HTTP.")
    ] = None
    received_bytes: Annotated[
        int | None, Field(description="The bytes of all response bodies; absent for protocols other than HTTP.")
    ] = None


class CallView(View):
    """One call; `waiting` is a write of unknown outcome that a person must settle.

    `retry_of` is the failed call that this call repeats, `retried_as` the call that repeats this one.
    """

    execution_id: Annotated[str, Field(description="Identifies the call in paths and logs; `call_…`.")]
    integration: Annotated[str, Field(description="The slug of the integration that was called.")]
    connector: Annotated[str, Field(description="The connector through which the integration was called.")]
    action: Annotated[str, Field(description="The name of the action that was called.")]
    effect: Annotated[Effect, Field(description=(
        "The strongest effect that the action can have: it only reads, can be repeated safely, or writes."
    ))]
    status: Annotated[
        Status, Field(description="The stage of the call; `waiting` is a write of unknown outcome that a person must settle.")
    ]
    outcome: Annotated[
        CallOutcome | None, Field(description="Whether the effect on the foreign system happened; absent until the call has ended.")
    ] = None
    input: Annotated[Any, Field(description="The input as sent, with secrets masked; absent if it was not recorded.")] = None
    output: Annotated[
        Any, Field(description="What the action returned; absent unless the call succeeded and its output was recorded.")
    ] = None
    error: Annotated[dict[str, Any] | None, Field(description=(
        "Why the call failed: `class`, `message` and `details` of the foreign system. Absent unless it failed."
    ))] = None
    queue: Annotated[QueuePlaceView | None, Field(description="The place in the queue; absent unless the call is queued.")] = None
    idempotency_key: Annotated[
        str | None, Field(description="What makes repetitions of the request return this call; absent if the caller sent none.")
    ] = None
    origin: Annotated[OriginView | None, Field(description="The step that made the call; absent if no execution did.")] = None
    actor: Annotated[str, Field(description="Who made the call, such as `execution:exe_…` or `key:key_…`.")]
    tries: Annotated[int, Field(description="How often the call was sent to the foreign system; 0 before the first time.")]
    retry_of: Annotated[
        str | None, Field(description="The failed call that this one repeats; `call_…`. Absent for an original call.")
    ] = None
    retried_as: Annotated[
        str | None, Field(description="The call that repeats this one; `call_…`. Absent if it was not retried.")
    ] = None
    traffic: Annotated[
        TrafficView | None, Field(description="What the call sent and received; absent if nothing was measured.")
    ] = None
    created_at: Annotated[str, Field(description="When the call was requested; RFC 3339, UTC.")]
    started_at: Annotated[str | None, Field(description="When it was first sent; RFC 3339, UTC. Absent before.")] = None
    finished_at: Annotated[str | None, Field(description="When it ended; RFC 3339, UTC. Absent before.")] = None
    duration_ms: Annotated[
        int | None, Field(description="Milliseconds from `started_at` to `finished_at`; absent until the call has ended.")
    ] = None
    links: Annotated[dict[str, str], Field(description="Paths on this host for the call; `self` is the record.")]


def call_links(slug: str, call_id: str) -> dict[str, str]:
    """The `links` of a call."""
    return {"self": f"/api/v1/integrations/{slug}/executions/{call_id}"}


def call_view(row: CallRecord) -> CallView:
    origin = row.origin
    return CallView(
        execution_id=row.id, integration=row.integration, connector=row.connector, action=row.action, effect=row.effect,
        status=row.status, outcome=row.outcome, input=row.input, output=row.output, error=row.error,
        queue=QueuePlaceView(position=row.ahead + 1, ahead=row.ahead, enqueued_at=clock.rfc3339(row.created_at))
        if row.ahead is not None else None,
        idempotency_key=row.key, actor=row.actor, tries=row.tries, retry_of=row.retry_of, retried_as=row.retried_as,
        traffic=TrafficView(**row.traffic) if row.traffic else None,
        origin=OriginView(
            execution_id=origin.execution_id, path=origin.path or None, iteration=origin.iteration or None,
            attempt=origin.attempt, call=origin.call,
        ) if origin else None,
        created_at=clock.rfc3339(row.created_at), started_at=clock.optional_rfc3339(row.started_at),
        finished_at=clock.optional_rfc3339(row.finished_at),
        duration_ms=row.finished_at - row.started_at if row.finished_at and row.started_at else None,
        links=call_links(row.integration, row.id),
    )  # fmt: skip


def call_filter(query: CallsQuery) -> CallFilter:
    after, before = (
        clock.parse_rfc3339(text, pointer=f"/{name}") if text is not None else None
        for name, text in (("created_after", query.created_after), ("created_before", query.created_before))
    )
    integration = query.integration if isinstance(query, AllCallsQuery) else None
    return CallFilter(
        status=query.status, action=query.action, execution_id=query.execution_id, integration=integration, outcome=query.outcome,
        after=after, before=before,
    )


@route(
    "GET", "/logs/calls", scope="integrations.read", query=AllCallsQuery, returns=CallView, listed=True, errors=(ValidationFailed,)
)
def search_calls(call: Call) -> Page[CallView]:
    """List the calls of all integrations.

    Newest first; filter by `execution_id` to see the calls an execution made.
    """
    return history.search_calls(call.scope, call_filter(call.query), call.query.page).map(call_view)


@route(
    "GET", "/integrations/{slug}/executions", scope="integrations.read", query=CallsQuery, returns=CallView, listed=True,
    errors=(ValidationFailed,),
)  # fmt: skip
def list_calls(call: Call, slug: str) -> Page[CallView]:
    """List the calls of an integration.

    Newest first; `status=waiting` lists writes of unknown outcome.
    """
    query: CallsQuery = call.query
    filters = call_filter(query)
    return history.list_calls(call.scope, slug, filters, query.page).map(call_view)


@route("GET", "/integrations/{slug}/executions/{call_id}", scope="integrations.read", returns=CallView)
def get_call(call: Call, slug: str, call_id: str) -> CallView:
    """Show a call of an integration.

    While it is queued, with its position in the queue.
    """
    return call_view(history.get_call(call.scope, slug, call_id))


@route(
    "POST", "/integrations/{slug}/executions/{call_id}/settle", scope="integrations.write", body=SettleCall, returns=CallView,
    errors=(Conflict,),
)  # fmt: skip
def settle_call(call: Call, slug: str, call_id: str) -> CallView:
    """Settle a write of unknown outcome.

    Check the foreign system first.

    `done`, with the output it should have returned, lets a repeated request continue with that output; `not_done` lets it be
    sent again.
    """
    body: SettleCall = call.body
    return call_view(history.settle_call(call.scope, slug, call_id, done=body.outcome == "done", output=body.output))


@route(
    "POST", "/integrations/{slug}/executions/{call_id}/retry", scope="integrations.execute", body=RetryCall, returns=CallView,
    status=202, atomic=False,
    acts=GOVERNED,
    errors=(ActionWithheld, ApprovalRequired, BudgetExceeded, ConcurrencyLimited, Conflict, ConnectorFailed, PolicyDenied),
)  # fmt: skip
async def retry_call(call: Call, slug: str, call_id: str) -> Answer:
    """Queue a failed call again.

    It keeps its original idempotency key; the answer is a new call with `retry_of`.

    Refused with 409 unless the call failed and is a read, is idempotent, or was not done. If a policy requires an approval,
    the error `approval_required` has an `approval_id` to send once it is approved; the approval of the first call cannot be
    used again.
    """
    retry = call.services.governance.executor.submit(call.scope, partial(_retry, call, slug, call_id))
    view = call_view(await asyncio.wrap_future(retry))
    return Answer(view, status=202, headers={"Location": view.links["self"]})


def _retry(call: Call, slug: str, call_id: str) -> CallRecord:
    new_id = call.services.governance.executor.retry(call.scope, slug, call_id, call.body.approval_id)
    return history.get_call(call.scope, slug, new_id)
