"""`/_gos/executions/<ticket>`: lets the browser that called a route poll its execution, or stream its state."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.errors import ConcurrencyLimited, MethodNotAllowed
from appliance.core.texts import ENGLISH, Language
from appliance.processes import Execution
from appliance.processes.engine import FINISHED, completion
from appliance.processes.executions import service as executions
from appliance.sites.front.buckets import BucketLimit, Buckets
from appliance.tenants import PLACE
from appliance.web import HEARTBEAT, HEARTBEAT_SECONDS, encode_event, wait_for_disconnect

from .origins import check_origin
from .route_answers import DEFAULT_HEADERS, SANDBOX_HEADERS, VARYING, Reply, as_json, failure_of, visible_output
from .route_calls import RouteCall
from .sending import Sender
from .tickets import Tickets

PREFIX = "/_gos/executions/"
POLL_LIMIT = BucketLimit(600, 60)
POLL_SECONDS, LONGEST_SECONDS = 0.5, 600.0
MOST_STREAMS, MOST_PER_TENANT, MOST_PER_HOLDER = 64, 32, 4
_STATES = {
    "succeeded": "succeeded",
    "waiting": "waiting",
    **dict.fromkeys(("failed", "cancelled", "timed_out", "expired"), "failed"),
}


def state_of(row: Execution) -> str:
    """`running`, `waiting` (for a person or a time), `succeeded` or `failed`."""
    return _STATES.get(row.status, "running")


def to_view(row: Execution, follow: str, language: Language = ENGLISH) -> dict[str, Any]:
    """What a browser sees of its execution; an error in this language."""
    view: dict[str, Any] = {"status": state_of(row), "follow": follow}
    if row.status == "succeeded":
        view["output"] = visible_output(row.output)
    elif row.status in FINISHED:
        error = failure_of(row.error)
        view["error"] = {"code": error.code, "message": language.translate(error.message)}
    return view


class ExecutionFollower:
    """Serves the tickets that routes have issued."""

    def __init__(self, tickets: Tickets, buckets: Buckets, sender: Sender) -> None:
        self._tickets = tickets
        self._buckets = buckets
        self._sender = sender
        self._streams: Counter[tuple[str, str]] = Counter()  # by tenant and holder

    async def answer(self, call: RouteCall) -> Reply | None:
        """The state as JSON; None after it was streamed. NotFound for a ticket of another holder."""
        if call.request.method != "GET":
            raise MethodNotAllowed("executions can be followed only with GET", headers={"Allow": "GET"})
        check_origin(call.request.method, call.request.origin, call.request.headers, public=False)
        self._buckets.take(("follow", call.tenant.tenant_id, call.app, call.address), POLL_LIMIT)
        ticket = call.request.path.removeprefix(PREFIX)
        execution_id = self._tickets.open(call.tenant, call.app, call.holder, ticket)
        row = await self._load(call, execution_id)
        if not call.wants("text/event-stream"):
            reply = as_json(200, {"success": True, "data": to_view(row, call.request.path, call.language)}, *VARYING)
            return reply if row.status in FINISHED else reply.with_headers(("retry-after", "1"))
        if call.request.headers.get("last-event-id") in ("succeeded", "failed"):
            return Reply(204)  # stops EventSource from reconnecting
        await self._stream(call, row)
        return None

    async def _load(self, call: RouteCall, execution_id: str) -> Execution:
        return await self._sender.in_thread(partial(executions.get_execution, call.tenant, execution_id))

    async def _stream(self, call: RouteCall, row: Execution) -> None:
        holder = (call.tenant.tenant_id, call.holder)
        tenant_streams = sum(count for (tenant_id, _), count in self._streams.items() if tenant_id == call.tenant.tenant_id)
        if self._streams.total() >= MOST_STREAMS or tenant_streams >= MOST_PER_TENANT or self._streams[holder] >= MOST_PER_HOLDER:
            raise ConcurrencyLimited("too many streams are open; poll without text/event-stream", headers={"Retry-After": "5"})
        self._streams[holder] += 1
        if PLACE in call.exchange.scope:
            call.exchange.scope[PLACE].become_stream(lambda: None)  # counted by this class instead
        changed = asyncio.Event()
        callback: Callable[[], Any] = partial(asyncio.get_running_loop().call_soon_threadsafe, changed.set)
        completion.completion_signal.subscribe(row.tenant_id, row.id, callback)
        disconnected = asyncio.ensure_future(wait_for_disconnect(call.exchange.receive))
        try:
            send = call.exchange.send
            headers = (("content-type", "text/event-stream"), ("x-accel-buffering", "no"), *SANDBOX_HEADERS, *VARYING)
            await send(
                {"type": "http.response.start", "status": 200, "headers": Reply(200, b"", (*headers, *DEFAULT_HEADERS)).encoded()}
            )
            async for piece in self._events(call, row.id, changed, disconnected):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            completion.completion_signal.unsubscribe(row.id, callback)
            self._streams[holder] -= 1
            self._streams += Counter()  # drops zero counts
            disconnected.cancel()
            with suppress(asyncio.CancelledError):
                await disconnected

    async def _events(
        self, call: RouteCall, execution_id: str, changed: asyncio.Event, disconnected: "asyncio.Future[None]"
    ) -> AsyncIterator[bytes]:
        """An event for every change of the state, whose name is the event id. Ends with the execution, when the browser leaves,
        or after LONGEST_SECONDS."""
        yield b"retry: 2000\n\n"
        last, started_at = call.request.headers.get("last-event-id", ""), clock.monotonic()
        last_sent = started_at
        while not disconnected.done() and clock.monotonic() - started_at < LONGEST_SECONDS:
            row = await self._load(call, execution_id)
            if (state := state_of(row)) != last:
                yield _event(state, to_view(row, call.request.path, call.language))
                last, last_sent = state, clock.monotonic()
            if row.status in FINISHED:
                return
            if clock.monotonic() - last_sent >= HEARTBEAT_SECONDS:
                yield HEARTBEAT
                last_sent = clock.monotonic()
            await _wait(changed, disconnected)


def _event(state: str, data: Mapping[str, Any]) -> bytes:
    return encode_event(json.dumps(data, ensure_ascii=False), state, state)


async def _wait(changed: asyncio.Event, disconnected: "asyncio.Future[None]") -> None:
    """Wait for a moment, or until the execution ends or the browser leaves."""
    has_changed = asyncio.ensure_future(changed.wait())
    both: set[asyncio.Future[Any]] = {has_changed, disconnected}
    await asyncio.wait(both, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    has_changed.cancel()
    with suppress(asyncio.CancelledError):
        await has_changed
