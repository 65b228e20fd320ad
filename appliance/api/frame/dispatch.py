"""From an HTTP request to a declared route's handler and back."""

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
from appliance.solutions import Services
from appliance.tenants import PLACE, KeptAnswer, NoPlace, RequestKey, idempotency
from appliance.tenants.keys import Caller

from . import auth, governing, parsing
from .auth import Arrived
from .contents import stream_pieces
from .errors import error_body
from .events import stream_events
from .routing import PREFIX, ROUTES, Answer, Call, Events, Pieces, Route, as_answer, render
from .uploads import DRAIN_BYTES, receive_upload


@dataclass(frozen=True)
class Sent:
    """A finished answer."""

    status: int
    body: bytes
    headers: Mapping[str, str]


def make_blueprint(services: Services) -> Blueprint:
    """Every declared route under /api/v1, with coded answers for unknown paths and methods."""
    blueprint = Blueprint("api", __name__, url_prefix=PREFIX)
    for declared in ROUTES:
        rule = re.sub(r"{(\w+)}", r"<\1>", declared.path).replace("<path>", "<path:path>")  # the one that may hold slashes
        blueprint.add_url_rule(
            rule, declared.name, partial(_serve, services, declared), methods=[declared.method], strict_slashes=False
        )
    blueprint.add_url_rule("/", "unknown_root", partial(_unknown_path, services, ""), methods=_ALL_METHODS)
    blueprint.add_url_rule("/<path:rest>", "unknown_path", partial(_unknown_path, services), methods=_ALL_METHODS)
    return blueprint


_ALL_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]


def _front() -> Mapping[str, Any]:
    """What the front has put into the ASGI scope."""
    return cast(Mapping[str, Any], request.scope)


async def _unknown_path(services: Services, rest: str) -> Response:
    allowed = sorted({r.method for r in ROUTES if re.fullmatch(re.sub(r"{\w+}", "[^/]+", r.path), f"/{rest.rstrip('/')}")})
    error: ApplianceError = NotFound(
        Sentence("there is no %(prefix)s/%(rest)s; GET /api-docs/ lists every path", prefix=PREFIX, rest=rest[:100])
    )
    if allowed:
        error = MethodNotAllowed(
            Sentence("%(method)s is not possible here; possible: %(allowed)s", method=request.method, allowed=", ".join(allowed)),
            headers={"Allow": ", ".join(allowed)},
        )
    return _response(_refuse(error, _front()["gos.request_id"], request.headers.get("Accept", "")))


async def _serve(services: Services, route: Route, **path_args: str) -> Response:
    """The answer, counted for the key that asked."""
    began, callers = clock.monotonic(), list[TenantScope]()
    response = await _answer(services, route, path_args, callers)
    for scope in callers[:1]:
        services.key_traffic.note(scope, response.status_code, (clock.monotonic() - began) * 1000, response.content_length or 0)
    return response


async def _answer(services: Services, route: Route, path_args: dict[str, str], callers: list[TenantScope]) -> Response:
    front = _front()
    request_id = front["gos.request_id"]
    accept = request.headers.get("Accept", "")
    with logs.log_context(request_id=request_id):
        try:
            headers = {name.lower(): value for name, value in request.headers.items()}
            auth.refuse_browser(headers, f"{request.scheme}://{request.host}")
            arrived = Arrived(
                front["gos.host"], request_id, front["gos.address"], headers,
                {name: request.args.getlist(name) for name in request.args}, request.path, b"", callers=callers,
                trace=front.get("gos.trace", ""), place=front.get(PLACE) or NoPlace(),
            )  # fmt: skip
            if route.takes_upload:
                sent = await _serve_upload(services, route, arrived, path_args)
            elif route.takes_stream:
                sent = await _async_work(services, route, replace(arrived, stream=aiter(request.body)), path_args)
            else:
                arrived = replace(arrived, raw=await _read_body(services))
                work = _async_work if route.is_async else _sync_work
                async with services.large_bodies.turn(front["gos.host"].tenant or "", len(arrived.raw)) as end:
                    sent = await work(services, route, replace(arrived, end_turn=end), path_args)
        except Exception as error:  # noqa: BLE001  logged and answered there
            return _response(_refuse(error, request_id, accept))
    if isinstance(sent, Sent):
        return _response(sent)
    return _bare(sent) if request.method == "HEAD" else sent


def _bare(response: Response) -> Response:
    """The head alone, which says the size of what a GET would answer."""
    length = response.headers.get("Content-Length")
    bare = Response(b"", response.status_code, response.headers)
    if length is not None:
        bare.headers["Content-Length"] = length
    return bare


async def _serve_upload(services: Services, route: Route, arrived: Arrived, path_args: dict[str, str]) -> Sent | Response:
    """A body that goes to the disk: of nobody unknown, and gone with the request unless a verb has kept it."""
    in_thread = partial(asyncio.get_running_loop().run_in_executor, services.threads)
    caller, headers = await in_thread(_admit, services, route, arrived)
    with _limits_told(headers):
        upload = await receive_upload(services, form=route.body.kind == "file")
    try:
        if route.body.kind == "file":
            kept = await in_thread(services.documents.keep_received, caller.scope, upload.received)
            upload = replace(upload, kept=kept)
        return await _sync_work(services, route, replace(arrived, upload=upload, admitted=(caller, headers)), path_args)
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


async def _sync_work(services: Services, route: Route, arrived: Arrived, path_args: dict[str, str]) -> Sent | Response:
    """Authentication, parsing, the verb and rendering: one visit to a thread."""
    call = partial(_run_sync, services, route, arrived, path_args)
    result = await asyncio.get_running_loop().run_in_executor(services.threads, call)
    return result if isinstance(result, Sent) else _stream(*result)


def _stream(call: Call, answer: Answer, headers: dict[str, str]) -> Response:
    """An answer that is sent as it comes.  ConcurrencyLimited where too many events are followed."""
    if isinstance(answer.data, Pieces):
        return stream_pieces(answer.data, answer.status or 200, {**headers, **answer.headers}, call.services.threads)
    call.services.streams.open(call.scope, call.place)
    return stream_events(answer.data, headers)


def _run_sync(
    services: Services, route: Route, arrived: Arrived, path_args: dict[str, str]
) -> Sent | tuple[Call, Answer, dict[str, str]]:
    with logs.log_context(request_id=arrived.request_id):
        prepared = _prepare(services, route, arrived, path_args)
        with _limits_told(prepared[1]):
            return _perform_sync(route, arrived, path_args, prepared)


Prepared = tuple[Call, dict[str, str], Permit | None]


def _prepare(services: Services, route: Route, arrived: Arrived, path_args: dict[str, str]) -> Prepared:
    """The caller and the body, both judged; the body last, and not on the event loop: a large one takes its time."""
    caller, headers = _admit(services, route, arrived)
    with _limits_told(headers):
        call, permit = governing.admit_agent(route, _make_call(services, route, arrived, caller), path_args)
    return call, headers, permit


def _perform_sync(
    route: Route, arrived: Arrived, path_args: dict[str, str], prepared: Prepared
) -> Sent | tuple[Call, Answer, dict[str, str]]:
    call, headers, permit = prepared

    def perform() -> Answer:
        governing.begin(permit, call)
        return as_answer(route, route.handler(call, **path_args))

    if call.idempotency is None:
        answer = perform()
        if isinstance(answer.data, Events | Pieces):
            return call, answer, headers
        return _finish(route, answer, arrived.request_id, headers)
    if route.atomic:
        return db.write(lambda: _keyed(route, call, perform, arrived, headers))
    if kept := db.write(partial(_claim, call)):
        return _again(kept, headers)
    return _settle(route, call, perform, arrived, headers)


def _admit(services: Services, route: Route, arrived: Arrived) -> tuple[Caller, dict[str, str]]:
    """The caller and its RateLimit headers."""
    if arrived.admitted is not None:
        return arrived.admitted
    return auth.authenticate(services, route, arrived)


@contextmanager
def _limits_told(headers: Mapping[str, str]) -> Iterator[None]:
    """A refusal tells what is left of the rate limit, like every answer."""
    try:
        yield
    except ApplianceError as error:
        error.headers = {**headers, **error.headers}
        raise


def _key(call: Call) -> RequestKey:
    if call.idempotency is None:
        raise RuntimeError("a keyed request without its key")
    return call.idempotency


def _claim(call: Call) -> KeptAnswer | None:
    """Inside a write: see `idempotency.begin`."""
    return idempotency.begin(call.scope, _key(call), call.services.instance, call.services.is_alive)


def _keyed(route: Route, call: Call, perform: Callable[[], Answer], arrived: Arrived, headers: dict[str, str]) -> Sent:
    """Record and effect in one transaction; an error's effects are undone, its answer is kept."""
    if kept := _claim(call):
        return _again(kept, headers)
    try:
        with db.savepoint():
            answer = perform()
    except ApplianceError as error:
        sent = _refuse(error, arrived.request_id, arrived.headers.get("accept", ""))
        if isinstance(error, GrantRequired):
            idempotency.forget(call.scope, _key(call))
        else:
            idempotency.finish(call.scope, _key(call), _kept(sent))
        return Sent(sent.status, sent.body, {**headers, **sent.headers})
    return _keep(route, call, answer, arrived, headers)


def _keep(route: Route, call: Call, answer: Answer, arrived: Arrived, headers: dict[str, str]) -> Sent:
    """Inside a write: finish the record with what a repetition shall get."""
    sent = _finish(route, answer, arrived.request_id, headers)
    again = sent
    if answer.replay is not None:
        bare = Answer(answer.replay, answer.status, answer.headers, answer.etag)
        again = _finish(route, bare, arrived.request_id, {})
    idempotency.finish(call.scope, _key(call), _kept(again))
    return sent


def _settle(route: Route, call: Call, perform: Callable[[], Answer], arrived: Arrived, headers: dict[str, str]) -> Sent:
    """A verb that leaves the process: the record is finished after it, in a transaction of its own."""
    try:
        answer = perform()
    except ApplianceError as error:
        _keep_refusal(call, error, arrived)
        raise
    except BaseException:
        db.write(lambda: idempotency.forget(call.scope, _key(call)))
        raise
    return db.write(lambda: _keep(route, call, answer, arrived, headers))


def _keep_refusal(call: Call, error: ApplianceError, arrived: Arrived) -> None:
    """A refusal is the first answer, unless it is about the key itself or says that trying again may help.

    What needs an approval is sent again with it, which is another body, and what needs a grant works once an owner has given it:
    nothing was done, so the key is still good.
    """
    waits = IdempotencyMismatch | IdempotencyInFlight | ApprovalRequired | GrantRequired
    if isinstance(error, waits) or error.extra.get("retryable"):
        db.write(lambda: idempotency.forget(call.scope, _key(call)))
        return
    sent = _refuse(error, arrived.request_id, arrived.headers.get("accept", ""))
    db.write(lambda: idempotency.finish(call.scope, _key(call), _kept(sent)))


def _kept(sent: Sent) -> KeptAnswer:
    names = ("Location", "ETag", "Content-Type")
    return KeptAnswer(sent.status, {n: v for n, v in sent.headers.items() if n in names}, sent.body.decode())


def _again(kept: KeptAnswer, headers: Mapping[str, str]) -> Sent:
    return Sent(kept.status, kept.body.encode(), {**headers, **kept.headers, "Idempotency-Replayed": "true"})


async def _async_work(services: Services, route: Route, arrived: Arrived, path_args: dict[str, str]) -> Sent | Response:
    """A handler that waits: the database parts visit a thread, the waiting does not hold one."""
    in_thread = partial(asyncio.get_running_loop().run_in_executor, services.threads)
    call, headers, permit = await in_thread(_prepare, services, route, arrived, path_args)
    with _limits_told(headers):
        if call.idempotency is None:
            await _begin(in_thread, permit, call)
            answer = as_answer(route, await _await(route.handler(call, **path_args)))
            if isinstance(answer.data, Events):
                return _stream(call, answer, headers)
            return _finish(route, answer, arrived.request_id, headers)
        kept = await in_thread(db.write, partial(_claim, call))
        if kept:
            return _again(kept, headers)
        try:
            await _begin(in_thread, permit, call)
            answer = as_answer(route, await _await(route.handler(call, **path_args)))
        except ApplianceError as error:
            await in_thread(_keep_refusal, call, error, arrived)
            raise
        except BaseException:  # a bug, or the caller has left: the next request with this key must not wait for this one
            db.submit(partial(idempotency.forget, call.scope, _key(call)))
            raise
        return await in_thread(db.write, partial(_keep, route, call, answer, arrived, headers))


async def _begin(in_thread: Callable[..., Awaitable[Any]], permit: Permit | None, call: Call) -> None:
    if permit is not None:
        await in_thread(governing.begin, permit, call)


async def _await(result: Awaitable[Any]) -> Any:
    return await result


def _make_call(services: Services, route: Route, arrived: Arrived, caller: Caller) -> Call:
    query = parsing.parse_query(route, arrived.args)
    content_type = arrived.headers.get("content-type", "")
    given = arrived.raw
    body: Any = arrived.upload
    if arrived.stream is not None:
        body = arrived.stream
    elif arrived.upload is None:
        body = parsing.parse_body(route, arrived.raw, content_type, services.config.limits.json_depth)
    else:
        given = json.dumps([arrived.upload.received.sha256, arrived.upload.filename, dict(arrived.upload.fields)]).encode()
    key = arrived.headers.get("idempotency-key")
    request_key = None
    if key is not None and route.method == "POST":
        given += json.dumps(sorted(arrived.args.items())).encode()
        request_key = RequestKey(idempotency.check_key(key), route.method, arrived.path, given)
    if_match = None if route.method == "GET" else _if_match(arrived.headers.get("if-match"))
    return Call(caller.scope, services, body, query, if_match, request_key, arrived.headers, arrived.place, arrived.end_turn)


def _if_match(header: str | None) -> str | None:
    if header is None or header.strip() == "*":
        return None
    match = re.fullmatch(r'\s*(?:W/)?"([^"]{1,100})"\s*', header)
    if match is None:
        raise ValidationFailed('If-Match takes one ETag in quotes, such as "3"', pointer="/If-Match")
    return match[1]


def _finish(route: Route, answer: Answer, request_id: str, headers: Mapping[str, str]) -> Sent:
    own = {**headers, **answer.headers}
    if answer.etag is not None:
        own["ETag"] = f'"{answer.etag}"'
    if route.media != "application/json" or isinstance(answer.data, bytes):
        return Sent(answer.status or 200, answer.data, {"Content-Type": route.media, **own})
    return Sent(answer.status or 200, render(route, answer.data, request_id), {**own, "Content-Type": "application/json"})


def _refuse(error: BaseException, request_id: str, accept: str) -> Sent:
    status, body, headers = error_body(error, request_id, accept)
    return Sent(status, body, headers)


def _response(sent: Sent) -> Response:
    response = Response(sent.body, sent.status)
    for name, value in sent.headers.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")
    return response
