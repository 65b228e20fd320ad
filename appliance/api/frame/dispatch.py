"""Dispatches HTTP requests to the handlers of declared routes: authentication, parsing, idempotency and rendering."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any

from appliance.api import limited_keys
from appliance.core import clock, logs
from appliance.core.database import db
from appliance.core.database.losses import ConnectionLost
from appliance.core.errors import (
    ApplianceError,
    ApprovalRequired,
    GrantRequired,
    IdempotencyInFlight,
    IdempotencyMismatch,
    ValidationFailed,
)
from appliance.governance import Permit
from appliance.tenants import RequestKey, StoredResponse, idempotency, release_nothing
from appliance.tenants.keys import Caller
from appliance.web import Request, Response, Services, error_response, explain_fault_in_thread, in_thread, log_as, read_body

from . import agent_policies, auth, parsing
from .contents import stream_pieces
from .events import stream_events
from .pending import PendingCall
from .routing import PREFIX, Answer, Call, Events, Pieces, Route, Upload, as_answer, render
from .uploads import receive_upload


@dataclass(slots=True)
class IncomingRequest:
    """A request on its way to a handler.  Authentication appends to `callers`; an upload is `admitted` before its body is read."""

    http: Request
    raw: bytes = b""
    upload: Upload | None = None
    admitted: tuple[Caller, dict[str, str]] | None = None
    callers: list[Caller] = field(default_factory=list)
    end_turn: Callable[[], None] = release_nothing


SyncResult = Response | tuple[Call, Answer, dict[str, str]]  # the latter is streamed


def rule_of(route: Route) -> str:
    """The route's path as Quart writes it, below the prefix."""
    return re.sub(r"{(\w+)}", r"<\1>", route.path).replace("<path>", "<path:path>")  # only `path` may contain slashes


async def serve_route(services: Services, route: Route, request: Request, **path_args: str) -> Response:
    """Answer the request, and count it in the traffic of its key."""
    started, incoming = clock.monotonic(), IncomingRequest(request)
    with logs.log_context(request_id=request.request_id):
        try:
            response = await _answer(services, route, incoming, path_args)
        except Exception as fault:  # noqa: BLE001  error_response logs and answers it
            error = await explain_fault_in_thread(services.threads, fault, request.tenant)
            response = error_response(error, request.request_id, request.accept)
            if incoming.callers and isinstance(error, ApplianceError) and error.status == 403:
                services.limits.refused_requests.record(incoming.callers[0].scope, route.name, error.code)
    if response.pieces is None:
        response = uncached(response)
    for caller in incoming.callers[:1]:
        took_ms = (clock.monotonic() - started) * 1000
        services.monitor.key_traffic.add(caller.scope, response.status, took_ms, response.content_length)
        if caller.records_requests:
            answered = (route.method, PREFIX + route.path, response.status, took_ms)
            services.limits.key_requests.add(caller, answered, request.address)
    return response


async def _answer(services: Services, route: Route, incoming: IncomingRequest, path_args: dict[str, str]) -> Response:
    request = incoming.http
    auth.refuse_browser(request)
    if route.takes_upload:
        return await _serve_upload(services, route, incoming, path_args)
    if route.takes_stream:
        return await _async_work(services, route, incoming, path_args)
    incoming.raw = await read_body(request.pieces, services.config.limits.json_body_kb << 10)
    work = _async_work if route.is_async else _sync_work
    async with services.limits.large_bodies.turn(request.tenant, len(incoming.raw)) as incoming.end_turn:
        return await work(services, route, incoming, path_args)


async def _serve_upload(services: Services, route: Route, incoming: IncomingRequest, path_args: dict[str, str]) -> Response:
    """Stream an authenticated upload to disk and serve it; the file is deleted with the request unless it became a blob."""
    threads = services.threads
    caller, headers = await in_thread(threads, _caller_of, services, route, incoming)
    with _RateLimitHeaders(headers):
        upload = await receive_upload(services, incoming.http, form=route.body.kind == "file")
    try:
        if route.body.kind == "file":
            blob = await in_thread(threads, services.documents.files.store_received, caller.scope, upload.received)
            upload = replace(upload, stored=blob)
        incoming.upload, incoming.admitted = upload, (caller, headers)
        return await _sync_work(services, route, incoming, path_args)
    finally:
        await in_thread(threads, upload.received.discard)


async def _sync_work(services: Services, route: Route, incoming: IncomingRequest, path_args: dict[str, str]) -> Response:
    """Run authentication, parsing, the handler and rendering in one thread job."""
    request_id = incoming.http.request_id
    result = await in_thread(services.threads, log_as, request_id, _run_sync, services, route, incoming, path_args)
    return result if isinstance(result, Response) else _stream(*result)


def _stream(call: Call, answer: Answer, headers: dict[str, str]) -> Response:
    """A streamed response; ConcurrencyLimited when too many event streams are open."""
    if isinstance(answer.data, Pieces):
        return stream_pieces(answer.data, answer.status or 200, {**headers, **answer.headers}, call.services.threads)
    call.services.limits.streams.open(call.scope, call.place)
    return stream_events(answer.data, headers)


def _run_sync(services: Services, route: Route, incoming: IncomingRequest, path_args: dict[str, str]) -> SyncResult:
    prepared = _prepare(services, route, incoming, path_args)
    with _RateLimitHeaders(prepared[1]):
        return _perform_sync(route, incoming, path_args, prepared)


Prepared = tuple[Call, dict[str, str], Permit | None]


def _prepare(services: Services, route: Route, incoming: IncomingRequest, path_args: dict[str, str]) -> Prepared:
    """Authenticate, parse and apply policies; in a thread, because parsing a large body would block the event loop."""
    caller, headers = _caller_of(services, route, incoming)
    with _RateLimitHeaders(headers):
        limited_keys.check_limits(route, caller.scope, path_args)
        call, permit = agent_policies.admit_agent(route, _make_call(services, route, incoming, caller), path_args)
    return call, headers, permit


def _perform_sync(
    route: Route, incoming: IncomingRequest, path_args: dict[str, str], prepared: Prepared
) -> SyncResult:
    call, headers, permit = prepared

    def perform() -> Answer:
        agent_policies.begin(permit, call)
        return as_answer(route, route.handler(call, **path_args))

    if call.idempotency is None:
        answer = perform()
        if isinstance(answer.data, Events | Pieces):
            return call, answer, headers
        return _finish(route, answer, incoming.http.request_id, headers)
    if route.atomic:
        return db.write(lambda: _perform_and_record(route, call, perform, incoming, headers))
    if recorded := _claim_alone(call):
        return _replay(recorded, headers)
    return _perform_then_record(route, call, perform, incoming, headers)


def _caller_of(services: Services, route: Route, incoming: IncomingRequest) -> tuple[Caller, dict[str, str]]:
    """The caller and its RateLimit headers; an upload was already authenticated before its body was read."""
    if incoming.admitted is not None:
        return incoming.admitted
    return auth.authenticate(services, route, incoming.http, incoming.callers)


class _RateLimitHeaders:
    """A block whose errors get the RateLimit headers, so that errors carry them like every answer."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, ApplianceError):
            error.headers = {**self._headers, **error.headers}


def _key(call: Call) -> RequestKey:
    if call.idempotency is None:
        raise RuntimeError("the request has no Idempotency-Key")
    return call.idempotency


def _claim(call: Call) -> StoredResponse | None:
    """Claim the Idempotency-Key, or return its recorded answer; call inside a write, see `idempotency.begin`."""
    return idempotency.begin(call.scope, _key(call), call.services.presence.instance, call.services.presence.is_alive)


def _claim_alone(call: Call) -> StoredResponse | None:
    """Claim it in a write of its own, and release it if nobody knows whether that was stored."""
    try:
        return db.write(partial(_claim, call), is_shared=True)
    except ConnectionLost:
        idempotency.settle(partial(idempotency.release, call.scope, _key(call)))
        raise


def _perform_and_record(
    route: Route, call: Call, perform: Callable[[], Answer], incoming: IncomingRequest, headers: dict[str, str]
) -> Response:
    """Perform and record in one transaction; an error is recorded as the answer, and its effects are rolled back."""
    if recorded := _claim(call):
        return _replay(recorded, headers)
    try:
        with db.savepoint():
            answer = perform()
    except ApplianceError as error:
        sent = error_response(error, incoming.http.request_id, incoming.http.accept)
        if isinstance(error, GrantRequired):
            idempotency.release(call.scope, _key(call))
        else:
            idempotency.finish(call.scope, _key(call), _to_record(sent))
        return replace(sent, headers={**headers, **sent.headers})
    return _record(route, call, answer, incoming, headers)


def _record(route: Route, call: Call, answer: Answer, incoming: IncomingRequest, headers: dict[str, str]) -> Response:
    """Record the answer that repeated requests get (`replay` where secrets are left out); call inside a write."""
    sent = _finish(route, answer, incoming.http.request_id, headers)
    repeated = sent
    if answer.replay is not None:
        bare = Answer(answer.replay, answer.status, answer.headers, answer.etag)
        repeated = _finish(route, bare, incoming.http.request_id, {})
    idempotency.finish(call.scope, _key(call), _to_record(repeated))
    return sent


def _perform_then_record(
    route: Route, call: Call, perform: Callable[[], Answer], incoming: IncomingRequest, headers: dict[str, str]
) -> Response:
    """Perform an action that leaves the process; its answer is recorded afterwards, in a transaction of its own."""
    try:
        answer = perform()
    except ApplianceError as error:
        _record_refusal(call, error, incoming)
        raise
    except BaseException:
        idempotency.settle(partial(idempotency.release, call.scope, _key(call)))
        raise
    return idempotency.settle(partial(_record, route, call, answer, incoming, headers))


def _record_refusal(call: Call, error: ApplianceError, incoming: IncomingRequest) -> None:
    """Record an error as the answer, unless it is about the Idempotency-Key itself or is retryable.

    A call that needs an approval is sent again with another body, and one that needs a grant succeeds once an owner grants it:
    nothing was done, so the key is released.
    """
    released = IdempotencyMismatch | IdempotencyInFlight | ApprovalRequired | GrantRequired
    if isinstance(error, released) or error.extra.get("retryable"):
        idempotency.settle(partial(idempotency.release, call.scope, _key(call)))
        return
    sent = error_response(error, incoming.http.request_id, incoming.http.accept)
    idempotency.settle(partial(idempotency.finish, call.scope, _key(call), _to_record(sent)))


def _to_record(sent: Response) -> StoredResponse:
    names = ("Location", "ETag", "Content-Type")
    return StoredResponse(sent.status, {n: v for n, v in sent.headers.items() if n in names}, sent.body.decode())


def _replay(recorded: StoredResponse, headers: Mapping[str, str]) -> Response:
    return Response(recorded.status, recorded.body.encode(), {**headers, **recorded.headers, "Idempotency-Replayed": "true"})


async def _async_work(services: Services, route: Route, incoming: IncomingRequest, path_args: dict[str, str]) -> Response:
    """Run an asynchronous handler: database work runs in threads, waiting occupies none."""
    threads = services.threads
    pending = PendingCall(services, incoming.http, partial(_prepare, services, route, incoming, path_args))
    headers = pending.headers
    if not route.is_pending or "idempotency-key" in incoming.http.headers:
        await in_thread(threads, pending.prepare)
    with _RateLimitHeaders(headers):
        if not pending.is_made or pending.call.idempotency is None:
            answer = await _handle(route, pending, path_args)
            if isinstance(answer.data, Events):
                return _stream(pending.call, answer, headers)
            return _finish(route, answer, incoming.http.request_id, headers)
        call = pending.call
        recorded = await in_thread(threads, _claim_alone, call)
        if recorded:
            return _replay(recorded, headers)
        try:
            answer = await _handle(route, pending, path_args)
        except ApplianceError as error:
            await in_thread(threads, _record_refusal, call, error, incoming)
            raise
        except BaseException:  # A bug, or the caller disconnected: the next request with this key must not wait for this one.
            idempotency.settle_soon(partial(idempotency.release, call.scope, _key(call)))
            raise
        record = partial(_record, route, call, answer, incoming, headers)
        return await in_thread(threads, idempotency.settle, record)


async def _handle(route: Route, pending: PendingCall, path_args: dict[str, str]) -> Answer:
    if route.is_pending:
        return as_answer(route, await route.handler(pending, **path_args))
    if pending.has_permit:
        await in_thread(pending.services.threads, pending.begin)
    return as_answer(route, await route.handler(pending.call, **path_args))


def _make_call(services: Services, route: Route, incoming: IncomingRequest, caller: Caller) -> Call:
    request = incoming.http
    query = parsing.parse_query(route, request.args)
    content_type = request.headers.get("content-type", "")
    fingerprint = incoming.raw
    body: Any = incoming.upload
    if route.takes_stream:
        body = request.pieces
    elif incoming.upload is None:
        body = parsing.parse_body(route, incoming.raw, content_type, services.config.limits.json_depth)
    else:
        fingerprint = json.dumps([incoming.upload.received.sha256, incoming.upload.filename, dict(incoming.upload.fields)]).encode()
    key = request.headers.get("idempotency-key")
    request_key = None
    if key is not None and route.method == "POST":
        fingerprint += json.dumps(sorted(request.args.items())).encode()
        request_key = RequestKey(idempotency.check_key(key), route.method, request.path, fingerprint)
    if_match = None if route.method == "GET" else _if_match(request.headers.get("if-match"))
    return Call(
        scope=caller.scope, services=services, body=body, query=query, if_match=if_match, idempotency=request_key,
        headers=request.headers, place=request.slot, end_turn=incoming.end_turn,
    )


def _if_match(header: str | None) -> str | None:
    if header is None or header.strip() == "*":
        return None
    match = re.fullmatch(r'\s*(?:W/)?"([^"]{1,100})"\s*', header)
    if match is None:
        raise ValidationFailed('If-Match must be one ETag in quotes, such as "3"', pointer="/If-Match")
    return match[1]


def _finish(route: Route, answer: Answer, request_id: str, headers: Mapping[str, str]) -> Response:
    own = {**headers, **answer.headers}
    if answer.etag is not None:
        own["ETag"] = f'"{answer.etag}"'
    if route.media != "application/json" or isinstance(answer.data, bytes):
        return Response(answer.status or 200, answer.data, {"Content-Type": route.media, **own})
    return Response(answer.status or 200, render(route, answer.data, request_id), {**own, "Content-Type": "application/json"})


def uncached(response: Response) -> Response:
    """The response, not to be cached unless it says otherwise itself."""
    headers = {"Cache-Control": "no-store", **response.headers}
    return Response(response.status, response.body, headers, response.cookies, response.pieces)
