"""Dispatches HTTP requests to the handlers of declared routes: authentication, parsing, idempotency and rendering."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from quart import Blueprint, Response, request

from appliance.core import clock, logs
from appliance.core.database import db
from appliance.core.errors import (
    ApplianceError,
    ApprovalRequired,
    GrantRequired,
    IdempotencyInFlight,
    IdempotencyMismatch,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    ValidationFailed,
)
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance import Permit
from appliance.tenants import PLACE, NoSlot, RequestKey, StoredResponse, idempotency
from appliance.tenants.keys import Caller
from appliance.web import Services, error_response

from . import agent_policies, auth, parsing
from .auth import IncomingRequest
from .contents import stream_pieces
from .events import stream_events
from .routing import PREFIX, ROUTES, Answer, Call, Events, Pieces, Route, as_answer, render
from .uploads import DRAIN_BYTES, receive_upload


@dataclass(frozen=True)
class RawResponse:
    """A complete response: status, body and headers."""

    status: int
    body: bytes
    headers: Mapping[str, str]


AnyResponse = RawResponse | Response
SyncResult = RawResponse | tuple[Call, Answer, dict[str, str]]  # the latter is streamed


def make_blueprint(services: Services) -> Blueprint:
    """The blueprint of every declared route under /api/v1, with coded errors for unknown paths and methods."""
    blueprint = Blueprint("api", __name__, url_prefix=PREFIX)
    for declared in ROUTES:
        rule = re.sub(r"{(\w+)}", r"<\1>", declared.path).replace("<path>", "<path:path>")  # only `path` may contain slashes
        blueprint.add_url_rule(
            rule, declared.name, partial(_serve, services, declared), methods=[declared.method], strict_slashes=False
        )
    blueprint.add_url_rule("/", "unknown_root", partial(_unknown_path, services, ""), methods=_ALL_METHODS)
    blueprint.add_url_rule("/<path:rest>", "unknown_path", partial(_unknown_path, services), methods=_ALL_METHODS)
    return blueprint


_ALL_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]


def _asgi_scope() -> Mapping[str, Any]:
    """The ASGI scope with the entries the front has added."""
    return cast(Mapping[str, Any], request.scope)


async def _unknown_path(services: Services, rest: str) -> Response:
    allowed = sorted({r.method for r in ROUTES if re.fullmatch(re.sub(r"{\w+}", "[^/]+", r.path), f"/{rest.rstrip('/')}")})
    error: ApplianceError = NotFound(
        Sentence("there is no %(prefix)s/%(rest)s; GET /api-docs/ lists every path", prefix=PREFIX, rest=rest[:100])
    )
    if allowed:
        error = MethodNotAllowed(
            Sentence("%(method)s is not allowed here; use %(allowed)s", method=request.method, allowed=", ".join(allowed)),
            headers={"Allow": ", ".join(allowed)},
        )
    return _response(_refuse(error, _asgi_scope()["gos.request_id"], request.headers.get("Accept", "")))


async def _serve(services: Services, route: Route, **path_args: str) -> Response:
    """Answer the request, and count it in the traffic of its key."""
    started, callers = clock.monotonic(), list[TenantScope]()
    response = await _answer(services, route, path_args, callers)
    for scope in callers[:1]:
        took_ms = (clock.monotonic() - started) * 1000
        services.monitor.key_traffic.add(scope, response.status_code, took_ms, response.content_length or 0)
    return response


async def _answer(services: Services, route: Route, path_args: dict[str, str], callers: list[TenantScope]) -> Response:
    front = _asgi_scope()
    request_id = front["gos.request_id"]
    accept = request.headers.get("Accept", "")
    with logs.log_context(request_id=request_id):
        try:
            headers = {name.lower(): value for name, value in request.headers.items()}
            auth.refuse_browser(headers, f"{request.scheme}://{request.host}")
            incoming = IncomingRequest(
                front["gos.host"], request_id, front["gos.address"], headers,
                {name: request.args.getlist(name) for name in request.args}, request.path, b"", callers=callers,
                trace=front.get("gos.trace", ""), place=front.get(PLACE) or NoSlot(),
            )  # fmt: skip
            if route.takes_upload:
                sent = await _serve_upload(services, route, incoming, path_args)
            elif route.takes_stream:
                sent = await _async_work(services, route, replace(incoming, stream=aiter(request.body)), path_args)
            else:
                incoming = replace(incoming, raw=await _read_body(services))
                work = _async_work if route.is_async else _sync_work
                async with services.limits.large_bodies.turn(front["gos.host"].tenant or "", len(incoming.raw)) as end:
                    sent = await work(services, route, replace(incoming, end_turn=end), path_args)
        except Exception as error:  # noqa: BLE001  _refuse logs and answers it
            return _response(_refuse(error, request_id, accept))
    if isinstance(sent, RawResponse):
        return _response(sent)
    return _head_response(sent) if request.method == "HEAD" else sent


def _head_response(response: Response) -> Response:
    """The response to a HEAD request: no body, with the Content-Length of the GET."""
    length = response.headers.get("Content-Length")
    bare = Response(b"", response.status_code, response.headers)
    if length is not None:
        bare.headers["Content-Length"] = length
    return bare


async def _serve_upload(services: Services, route: Route, incoming: IncomingRequest, path_args: dict[str, str]) -> AnyResponse:
    """Stream an authenticated upload to disk and serve it; the file is deleted with the request unless it became a blob."""
    in_thread = partial(asyncio.get_running_loop().run_in_executor, services.threads)
    caller, headers = await in_thread(_caller_of, services, route, incoming)
    with _add_rate_limit_headers(headers):
        upload = await receive_upload(services, form=route.body.kind == "file")
    try:
        if route.body.kind == "file":
            blob = await in_thread(services.documents.files.store_received, caller.scope, upload.received)
            upload = replace(upload, stored=blob)
        return await _sync_work(services, route, replace(incoming, upload=upload, admitted=(caller, headers)), path_args)
    finally:
        await in_thread(upload.received.discard)


async def _read_body(services: Services) -> bytes:
    most = services.config.limits.json_body_kb << 10
    parts: list[bytes] = []
    size = 0
    async for chunk in request.body:
        size += len(chunk)
        if size <= most:
            parts.append(chunk)
        elif size > most + DRAIN_BYTES:
            break
    if size > most:
        raise PayloadTooLarge(Sentence("the body may have at most %(most)s KiB", most=most >> 10), headers={"Connection": "close"})
    return b"".join(parts)


async def _sync_work(services: Services, route: Route, incoming: IncomingRequest, path_args: dict[str, str]) -> AnyResponse:
    """Run authentication, parsing, the handler and rendering in one thread job."""
    call = partial(_run_sync, services, route, incoming, path_args)
    result = await asyncio.get_running_loop().run_in_executor(services.threads, call)
    return result if isinstance(result, RawResponse) else _stream(*result)


def _stream(call: Call, answer: Answer, headers: dict[str, str]) -> Response:
    """A streamed response; ConcurrencyLimited when too many event streams are open."""
    if isinstance(answer.data, Pieces):
        return stream_pieces(answer.data, answer.status or 200, {**headers, **answer.headers}, call.services.threads)
    call.services.limits.streams.open(call.scope, call.place)
    return stream_events(answer.data, headers)


def _run_sync(services: Services, route: Route, incoming: IncomingRequest, path_args: dict[str, str]) -> SyncResult:
    with logs.log_context(request_id=incoming.request_id):
        prepared = _prepare(services, route, incoming, path_args)
        with _add_rate_limit_headers(prepared[1]):
            return _perform_sync(route, incoming, path_args, prepared)


Prepared = tuple[Call, dict[str, str], Permit | None]


def _prepare(services: Services, route: Route, incoming: IncomingRequest, path_args: dict[str, str]) -> Prepared:
    """Authenticate, parse and apply policies; in a thread, because parsing a large body would block the event loop."""
    caller, headers = _caller_of(services, route, incoming)
    with _add_rate_limit_headers(headers):
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
        return _finish(route, answer, incoming.request_id, headers)
    if route.atomic:
        return db.write(lambda: _perform_and_record(route, call, perform, incoming, headers))
    if recorded := db.write(partial(_claim, call)):
        return _replay(recorded, headers)
    return _perform_then_record(route, call, perform, incoming, headers)


def _caller_of(services: Services, route: Route, incoming: IncomingRequest) -> tuple[Caller, dict[str, str]]:
    """The caller and its RateLimit headers; an upload was already authenticated before its body was read."""
    if incoming.admitted is not None:
        return incoming.admitted
    return auth.authenticate(services, route, incoming)


@contextmanager
def _add_rate_limit_headers(headers: Mapping[str, str]) -> Iterator[None]:
    """Add the RateLimit headers to errors raised inside, so that errors carry them like every answer."""
    try:
        yield
    except ApplianceError as error:
        error.headers = {**headers, **error.headers}
        raise


def _key(call: Call) -> RequestKey:
    if call.idempotency is None:
        raise RuntimeError("the request has no Idempotency-Key")
    return call.idempotency


def _claim(call: Call) -> StoredResponse | None:
    """Claim the Idempotency-Key, or return its recorded answer; call inside a write, see `idempotency.begin`."""
    return idempotency.begin(call.scope, _key(call), call.services.presence.instance, call.services.presence.is_alive)


def _perform_and_record(
    route: Route, call: Call, perform: Callable[[], Answer], incoming: IncomingRequest, headers: dict[str, str]
) -> RawResponse:
    """Perform and record in one transaction; an error is recorded as the answer, and its effects are rolled back."""
    if recorded := _claim(call):
        return _replay(recorded, headers)
    try:
        with db.savepoint():
            answer = perform()
    except ApplianceError as error:
        sent = _refuse(error, incoming.request_id, incoming.headers.get("accept", ""))
        if isinstance(error, GrantRequired):
            idempotency.release(call.scope, _key(call))
        else:
            idempotency.finish(call.scope, _key(call), _to_record(sent))
        return RawResponse(sent.status, sent.body, {**headers, **sent.headers})
    return _record(route, call, answer, incoming, headers)


def _record(route: Route, call: Call, answer: Answer, incoming: IncomingRequest, headers: dict[str, str]) -> RawResponse:
    """Record the answer that repeated requests get (`replay` where secrets are left out); call inside a write."""
    sent = _finish(route, answer, incoming.request_id, headers)
    repeated = sent
    if answer.replay is not None:
        bare = Answer(answer.replay, answer.status, answer.headers, answer.etag)
        repeated = _finish(route, bare, incoming.request_id, {})
    idempotency.finish(call.scope, _key(call), _to_record(repeated))
    return sent


def _perform_then_record(
    route: Route, call: Call, perform: Callable[[], Answer], incoming: IncomingRequest, headers: dict[str, str]
) -> RawResponse:
    """Perform an action that leaves the process; its answer is recorded afterwards, in a transaction of its own."""
    try:
        answer = perform()
    except ApplianceError as error:
        _record_refusal(call, error, incoming)
        raise
    except BaseException:
        db.write(lambda: idempotency.release(call.scope, _key(call)))
        raise
    return db.write(lambda: _record(route, call, answer, incoming, headers))


def _record_refusal(call: Call, error: ApplianceError, incoming: IncomingRequest) -> None:
    """Record an error as the answer, unless it is about the Idempotency-Key itself or is retryable.

    A call that needs an approval is sent again with another body, and one that needs a grant succeeds once an owner grants it:
    nothing was done, so the key is released.
    """
    released = IdempotencyMismatch | IdempotencyInFlight | ApprovalRequired | GrantRequired
    if isinstance(error, released) or error.extra.get("retryable"):
        db.write(lambda: idempotency.release(call.scope, _key(call)))
        return
    sent = _refuse(error, incoming.request_id, incoming.headers.get("accept", ""))
    db.write(lambda: idempotency.finish(call.scope, _key(call), _to_record(sent)))


def _to_record(sent: RawResponse) -> StoredResponse:
    names = ("Location", "ETag", "Content-Type")
    return StoredResponse(sent.status, {n: v for n, v in sent.headers.items() if n in names}, sent.body.decode())


def _replay(recorded: StoredResponse, headers: Mapping[str, str]) -> RawResponse:
    return RawResponse(recorded.status, recorded.body.encode(), {**headers, **recorded.headers, "Idempotency-Replayed": "true"})


async def _async_work(services: Services, route: Route, incoming: IncomingRequest, path_args: dict[str, str]) -> AnyResponse:
    """Run an asynchronous handler: database work runs in threads, waiting occupies none."""
    in_thread = partial(asyncio.get_running_loop().run_in_executor, services.threads)
    call, headers, permit = await in_thread(_prepare, services, route, incoming, path_args)
    with _add_rate_limit_headers(headers):
        if call.idempotency is None:
            await _begin(in_thread, permit, call)
            answer = as_answer(route, await _await(route.handler(call, **path_args)))
            if isinstance(answer.data, Events):
                return _stream(call, answer, headers)
            return _finish(route, answer, incoming.request_id, headers)
        recorded = await in_thread(db.write, partial(_claim, call))
        if recorded:
            return _replay(recorded, headers)
        try:
            await _begin(in_thread, permit, call)
            answer = as_answer(route, await _await(route.handler(call, **path_args)))
        except ApplianceError as error:
            await in_thread(_record_refusal, call, error, incoming)
            raise
        except BaseException:  # A bug, or the caller disconnected: the next request with this key must not wait for this one.
            db.submit(partial(idempotency.release, call.scope, _key(call)))
            raise
        return await in_thread(db.write, partial(_record, route, call, answer, incoming, headers))


async def _begin(in_thread: Callable[..., Awaitable[Any]], permit: Permit | None, call: Call) -> None:
    if permit is not None:
        await in_thread(agent_policies.begin, permit, call)


async def _await(result: Awaitable[Any]) -> Any:
    return await result


def _make_call(services: Services, route: Route, incoming: IncomingRequest, caller: Caller) -> Call:
    query = parsing.parse_query(route, incoming.args)
    content_type = incoming.headers.get("content-type", "")
    fingerprint = incoming.raw
    body: Any = incoming.upload
    if incoming.stream is not None:
        body = incoming.stream
    elif incoming.upload is None:
        body = parsing.parse_body(route, incoming.raw, content_type, services.config.limits.json_depth)
    else:
        fingerprint = json.dumps([incoming.upload.received.sha256, incoming.upload.filename, dict(incoming.upload.fields)]).encode()
    key = incoming.headers.get("idempotency-key")
    request_key = None
    if key is not None and route.method == "POST":
        fingerprint += json.dumps(sorted(incoming.args.items())).encode()
        request_key = RequestKey(idempotency.check_key(key), route.method, incoming.path, fingerprint)
    if_match = None if route.method == "GET" else _if_match(incoming.headers.get("if-match"))
    return Call(caller.scope, services, body, query, if_match, request_key, incoming.headers, incoming.place, incoming.end_turn)


def _if_match(header: str | None) -> str | None:
    if header is None or header.strip() == "*":
        return None
    match = re.fullmatch(r'\s*(?:W/)?"([^"]{1,100})"\s*', header)
    if match is None:
        raise ValidationFailed('If-Match must be one ETag in quotes, such as "3"', pointer="/If-Match")
    return match[1]


def _finish(route: Route, answer: Answer, request_id: str, headers: Mapping[str, str]) -> RawResponse:
    own = {**headers, **answer.headers}
    if answer.etag is not None:
        own["ETag"] = f'"{answer.etag}"'
    if route.media != "application/json" or isinstance(answer.data, bytes):
        return RawResponse(answer.status or 200, answer.data, {"Content-Type": route.media, **own})
    return RawResponse(answer.status or 200, render(route, answer.data, request_id), {**own, "Content-Type": "application/json"})


def _refuse(error: BaseException, request_id: str, accept: str) -> RawResponse:
    response = error_response(error, request_id, accept)
    return RawResponse(response.status, response.body, response.headers)


def _response(sent: RawResponse) -> Response:
    response = Response(sent.body, sent.status)
    for name, value in sent.headers.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")
    return response
