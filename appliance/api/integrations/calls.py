"""/api/v1/integrations/{slug}/executions and /api/v1/logs/calls: records of calls, and settling and retrying them."""

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import GOVERNED, Answer, Body, Call, ListQuery, View, route
from appliance.core import clock
from appliance.core.pages import Page
from appliance.integrations import CallFilter, CallRecord, history

Effect = Literal["read", "idempotent", "write"]
CallOutcome = Literal["done", "not_done", "unknown"]
Status = Literal["queued", "running", "waiting", "succeeded", "failed"]
ApprovalId = Annotated[str, Field(min_length=1, max_length=80)]


class CallsQuery(ListQuery):
    """`created_after` (inclusive) and `created_before` (exclusive) are RFC 3339 times."""

    status: Status | None = None
    outcome: CallOutcome | None = None
    action: str | None = None
    execution_id: str | None = None
    created_after: str | None = None
    created_before: str | None = None


class AllCallsQuery(CallsQuery):
    """The parameters of `CallsQuery`, with an optional `integration`."""

    integration: str | None = None


class SettleCall(Body):
    outcome: Literal["done", "not_done"]
    output: dict[str, Any] | None = None


class RetryCall(Body):
    """`approval_id` names an approval of exactly this action, where policies require one."""

    approval_id: ApprovalId | None = None


class QueuePlaceView(View):
    position: int
    ahead: int
    enqueued_at: str


class OriginView(View):
    """The step of an execution that made a call; `call` is the number of the host call in step code."""

    execution_id: str
    path: str | None = None
    iteration: str | None = None
    attempt: int | None = None
    call: int | None = None


class TrafficView(View):
    """The network traffic of a call: the `hosts` it contacted, and for HTTP the number of requests and bytes of their bodies."""

    hosts: list[str]
    requests: int | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None


class CallView(View):
    """One call; `waiting` is a write of unknown outcome that a person must settle.

    `retry_of` is the failed call that this call repeats, `retried_as` the call that repeats this one.
    """

    execution_id: str
    integration: str
    connector: str
    action: str
    effect: Effect
    status: Status
    outcome: CallOutcome | None = None
    input: Any = None
    output: Any = None
    error: dict[str, Any] | None = None
    queue: QueuePlaceView | None = None
    idempotency_key: str | None = None
    origin: OriginView | None = None
    actor: str
    tries: int
    retry_of: str | None = None
    retried_as: str | None = None
    traffic: TrafficView | None = None
    created_at: str
    started_at: str | None = None
    finished_at: str | None = None
    duration_ms: int | None = None
    links: dict[str, str]


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
    return CallFilter(query.status, query.action, query.execution_id, integration, query.outcome, after, before)


@route("GET", "/logs/calls", scope="integrations.read", query=AllCallsQuery, returns=CallView, listed=True)
def search_calls(call: Call) -> Page[CallView]:
    """List the calls of all integrations, newest first; filter by `execution_id` to see the calls an execution made."""
    return history.search_calls(call.scope, call_filter(call.query), call.query.page).map(call_view)


@route("GET", "/integrations/{slug}/executions", scope="integrations.read", query=CallsQuery, returns=CallView, listed=True)
def list_calls(call: Call, slug: str) -> Page[CallView]:
    """List the calls of an integration, newest first; `status=waiting` lists writes of unknown outcome."""
    query: CallsQuery = call.query
    filters = call_filter(query)
    return history.list_calls(call.scope, slug, filters, query.page).map(call_view)


@route("GET", "/integrations/{slug}/executions/{call_id}", scope="integrations.read", returns=CallView)
def get_call(call: Call, slug: str, call_id: str) -> CallView:
    """Show a call of an integration; while it is queued, with its position in the queue."""
    return call_view(history.get_call(call.scope, slug, call_id))


@route("POST", "/integrations/{slug}/executions/{call_id}/settle", scope="integrations.write", body=SettleCall, returns=CallView)
def settle_call(call: Call, slug: str, call_id: str) -> CallView:
    """Settle a write of unknown outcome after checking the foreign system.

    `done`, with the output it should have returned, lets a repeated request continue with that output; `not_done` lets it be
    sent again.
    """
    body: SettleCall = call.body
    return call_view(history.settle_call(call.scope, slug, call_id, done=body.outcome == "done", output=body.output))


@route(
    "POST", "/integrations/{slug}/executions/{call_id}/retry", scope="integrations.execute", body=RetryCall, returns=CallView,
    status=202, atomic=False,
    acts=GOVERNED,
)  # fmt: skip
async def retry_call(call: Call, slug: str, call_id: str) -> Answer:
    """Queue a failed call again with its original idempotency key; the answer is a new call with `retry_of`.

    Refused with 409 unless the call failed and is a read, is idempotent, or was not done. If a policy requires an approval,
    the error `approval_required` has an `approval_id` to send once it is approved; the approval of the first call cannot be
    used again.
    """
    view = call_view(await asyncio.wrap_future(call.services.executor.submit(call.scope, partial(_retry, call, slug, call_id))))
    return Answer(view, status=202, headers={"Location": view.links["self"]})


def _retry(call: Call, slug: str, call_id: str) -> CallRecord:
    return history.get_call(call.scope, slug, call.services.executor.retry(call.scope, slug, call_id, call.body.approval_id))
