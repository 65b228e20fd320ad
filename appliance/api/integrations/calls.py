"""/api/v1/integrations/{slug}/executions and /api/v1/logs/calls: the record of calls, their verdicts and their retries."""

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


class CallsQuery(ListQuery):
    """`created_after` and `created_before` are RFC 3339 times; the later is not included."""

    status: Status | None = None
    outcome: CallOutcome | None = None
    action: str | None = None
    execution_id: str | None = None
    created_after: str | None = None
    created_before: str | None = None


class AllCallsQuery(CallsQuery):
    """As `CallsQuery`, of one `integration` or of all."""

    integration: str | None = None


class SettleCall(Body):
    outcome: Literal["done", "not_done"]
    output: dict[str, Any] | None = None


class RetryCall(Body):
    """`approval_id` names an approval of exactly this action, where policies want one."""

    approval_id: Annotated[str, Field(min_length=1, max_length=80)] | None = None


class QueuePlaceView(View):
    position: int
    ahead: int
    enqueued_at: str


class OriginView(View):
    """The place in an execution a call came from; `call` is the number of the host call in step code."""

    execution_id: str
    path: str | None = None
    iteration: str | None = None
    attempt: int | None = None
    call: int | None = None


class TrafficView(View):
    """What a call came past: `hosts` it asked for, and of HTTP how many requests and the bytes of their bodies."""

    hosts: list[str]
    requests: int | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None


class CallView(View):
    """One call; `waiting` is a write of unknown outcome that waits for a person's verdict.

    `retry_of` is the failed call that it makes again, `retried_as` the one that made it again.
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
    """Where a call is read."""
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
    """List the calls of all integrations, newest first; `execution_id` leads from an execution to the calls it made."""
    return history.search_calls(call.scope, call_filter(call.query), call.query.page).map(call_view)


@route("GET", "/integrations/{slug}/executions", scope="integrations.read", query=CallsQuery, returns=CallView, listed=True)
def list_calls(call: Call, slug: str) -> Page[CallView]:
    """List the calls of an integration, newest first; `status=waiting` are writes of unknown outcome."""
    query: CallsQuery = call.query
    wanted = call_filter(query)
    return history.list_calls(call.scope, slug, wanted, query.page).map(call_view)


@route("GET", "/integrations/{slug}/executions/{call_id}", scope="integrations.read", returns=CallView)
def get_call(call: Call, slug: str, call_id: str) -> CallView:
    """Show one call of an integration; while it is queued, with its place in the queue."""
    return call_view(history.get_call(call.scope, slug, call_id))


@route("POST", "/integrations/{slug}/executions/{call_id}/settle", scope="integrations.write", body=SettleCall, returns=CallView)
def settle_call(call: Call, slug: str, call_id: str) -> CallView:
    """Settle a write of unknown outcome after looking in the foreign system.

    `done`, with the output it should have answered, lets a repeated request go on with it; `not_done` lets it be sent
    again.
    """
    body: SettleCall = call.body
    return call_view(history.settle_call(call.scope, slug, call_id, done=body.outcome == "done", output=body.output))


@route(
    "POST", "/integrations/{slug}/executions/{call_id}/retry", scope="integrations.execute", body=RetryCall, returns=CallView,
    status=202, atomic=False,
    acts=GOVERNED,
)  # fmt: skip
async def retry_call(call: Call, slug: str, call_id: str) -> Answer:
    """Make a failed call again, soon, with the key it had; the answer is a new record that names it as `retry_of`.

    Refused with 409 unless the call failed, and it either changes nothing, may be repeated, or was not done. What a policy
    wants approved answers `approval_required` with an `approval_id`, to be sent along once it is approved: what was approved
    for the first call is used up.
    """
    view = call_view(await asyncio.wrap_future(call.services.executor.submit(call.scope, partial(_retry, call, slug, call_id))))
    return Answer(view, status=202, headers={"Location": view.links["self"]})


def _retry(call: Call, slug: str, call_id: str) -> CallRecord:
    return history.get_call(call.scope, slug, call.services.executor.retry(call.scope, slug, call_id, call.body.approval_id))
