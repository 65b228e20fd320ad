"""Runs the handler of a page: reads the request, checks CSRF, session and scope, and renders the response.

Handlers run in the thread pool, one request per thread.
"""

import asyncio
import json
import logging
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast
from urllib.parse import parse_qs

from werkzeug.http import dump_cookie, dump_options_header, parse_options_header

from appliance.core import clock, texts
from appliance.core.errors import ApplianceError, MethodNotAllowed, NotFound, PayloadTooLarge, PolicyDenied, http_status
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.core.texts import mark, mark_error
from appliance.tenants import SignedIn
from appliance.tenants.sign_in import sessions
from appliance.web import (
    HEARTBEAT,
    HEARTBEAT_SECONDS,
    FormLimits,
    FormReader,
    Request,
    Response,
    Services,
    as_coded,
    encode_event,
    explain_fault,
    in_thread,
    is_own_page,
    log_as,
    read_body,
    read_pieces,
)

from . import saved_forms, session, step_up
from .content_policy import content_policy
from .rendering import Renderer
from .routing import (
    Answer,
    Arrival,
    BaseRoute,
    ConsoleRequest,
    Data,
    Deferred,
    Download,
    File,
    Form,
    Page,
    PageRoute,
    Picture,
    Redirect,
    RemoteFile,
    Stream,
    Visit,
)

log = logging.getLogger(__name__)

MAX_FIELDS, MOST_PARTS, MOST_FILES, TEXT_BYTES = 5000, 1000, 50, 1 << 20  # of a form; the last three with files
POLL_SECONDS = 0.5
TIMING = "Server-Timing"
CACHE_FOREVER = "private, max-age=86400, immutable"
FOREIGN_FORM = mark_error("this form was sent from another site or by a program; open the page here and submit it again")
NO_PAGE = mark_error("this page does not exist; use the menu to find what you need")
TITLES = {
    401: mark("Signed out"),
    403: mark("Not allowed"),
    404: mark("Not found"),
    405: mark("Not found"),
    409: mark("Not possible now"),
    500: mark("Something went wrong"),
}


class Dispatcher:
    """Runs the declared pages and turns their answers into HTTP responses."""

    def __init__(self, services: Services, renderer: Renderer) -> None:
        self._services = services
        self._renderer = renderer
        self._policy = content_policy(services.config)

    async def handle_base(self, routes: Mapping[str, BaseRoute], http: Request, **path_args: str) -> Response:
        """Serve a page of the base host."""
        return await self._timed(http, partial(self._on_base, routes, path_args))

    async def handle_tenant(self, routes: Mapping[str, PageRoute], http: Request, **path_args: str) -> Response:
        """Serve a page of a tenant's host."""
        return await self._timed(http, partial(self._on_tenant, routes, path_args), routes.get("POST"))

    async def _timed(self, http: Request, work: "Work", takes: PageRoute | None = None) -> Response:
        """Add the elapsed time to the response as `Server-Timing`, which browsers show in their developer tools."""
        began = clock.monotonic()
        response = await self._serve(http, work, takes)
        timing = f"{response.headers[TIMING]}, app;dur={(clock.monotonic() - began) * 1000:.1f}"
        return replace(response, headers={**response.headers, TIMING: timing})

    async def _serve(self, http: Request, work: "Work", takes: PageRoute | None) -> Response:
        language = self._services.languages.choose("", http.headers.get("accept-language", ""))
        request = ConsoleRequest(http, language=language)
        if request.method != "POST":
            return await self._run(work, request)
        try:
            _refuse_foreign(http)
            if takes is not None and takes.takes_files:
                return await self._serve_files(work, takes, request)
            form = await _read_form(http, self._services.config.limits.json_body_kb)
        except ApplianceError as error:
            return await self._run(partial(self._refuse, error), request)
        return await self._run(work, replace(request, form=form))

    async def _run(self, work: "Work", request: ConsoleRequest) -> Response:
        threads = self._services.threads
        result = await in_thread(threads, log_as, request.request_id, self._run_timed, work, request)
        while isinstance(result, _Pending):
            future = asyncio.wrap_future(result.work)
            with self._services.limits.streams.waiting(request.http.slot):
                await asyncio.wait([future])
            if not future.cancelled():
                future.exception()  # Retrieved so that asyncio does not warn; `finish` raises it again.
            result = await in_thread(threads, log_as, request.request_id, self._run_timed, result.finish, request)
        return result

    async def _serve_files(self, work: "Work", route: PageRoute, request: ConsoleRequest) -> Response:
        """Receive a form with files, if the sender may use the page; the files are deleted after the response."""
        threads, reader = self._services.threads, None
        try:
            if await in_thread(threads, self._may_send, route, request):
                limits = FormLimits(MOST_PARTS, MOST_FILES, TEXT_BYTES, self._largest(route))
                reader = FormReader(self._services.blobs.receiver, _multipart_boundary(request.http), limits)
                async for piece in request.http.pieces:
                    await in_thread(threads, reader.feed, piece)
                texts, files = await in_thread(threads, reader.finish)
                request = replace(request, form=_by_name(texts), files=files)
            return await self._run(work, request)
        finally:
            if reader is not None:
                reader.discard()

    def _may_send(self, route: PageRoute, request: ConsoleRequest) -> bool:
        """Whether the sender is signed in on this host with the scope and rights that the page needs."""
        person = session.find_person(self._services, request)
        if person is None or person.scope is None or (route.scope is not None and route.scope not in person.scope.scopes):
            return False
        return not route.admins_only or person.login in self._services.config.console.administrators

    def _largest(self, route: PageRoute) -> int:
        """The maximum size of one file in bytes.

        Administrators' uploads are unpacked next to the archive, so they may fill half of the free disk space.
        """
        config = self._services.config
        return shutil.disk_usage(config.data).free // 2 if route.admins_only else config.limits.upload_mb << 20

    # -- in a worker thread

    def _run_timed(self, work: "Work", request: ConsoleRequest) -> "Response | _Pending":
        began = clock.worked()
        result = work(request)
        if isinstance(result, Response):
            timing = f"cpu;dur={(clock.worked() - began) * 1000:.1f}"
            return replace(result, headers={**result.headers, TIMING: timing})
        return result

    def _on_base(self, routes: Mapping[str, BaseRoute], path_args: "_PathArgs", request: ConsoleRequest) -> "Response | _Pending":
        if request.tenant is not None:
            here = request.path == "/" and request.method == "GET"
            return self._send(Redirect("/console/") if here else _problem_page(NotFound(NO_PAGE)), request, None)
        route = routes.get(request.method)
        if route is None:
            return self._send(_problem_page(MethodNotAllowed(NO_PAGE)), request, None)
        person = session.find_person(self._services, request)
        request = self._with_language(request, person)
        if route.gives_access and person is not None and self._services.second_factors.must_add_factor(person):
            return self._send(Redirect(step_up.add_factor_path(request)), request, None)
        return self._perform(lambda: route.handler(Arrival(self._services, request, person), **path_args), request, None)

    def _on_tenant(self, routes: Mapping[str, PageRoute], path_args: "_PathArgs", request: ConsoleRequest) -> "Response | _Pending":
        if request.tenant is None:
            return self._send(Redirect("/"), request, None)
        route = routes.get(request.method)
        if route is not None and not route.needs_session:
            return self._perform(lambda: route.handler(Arrival(self._services, request, None)), request, None)
        person = session.find_person(self._services, request)
        if person is None or person.scope is None:
            return self._send(self._signed_out(routes, request, person), request, None)
        request = self._with_language(request, person)
        visit = self._visit(request, person, person.scope)
        if route is None:
            return self._send(_problem_page(NotFound(NO_PAGE)), request, visit)
        if route.path != session.SIGN_OUT and self._services.second_factors.must_add_factor(person):
            return self._perform(lambda: step_up.require_factor(visit), request, visit)
        return self._perform(lambda: self._run_with_saved_form(route, visit, path_args), request, visit)

    def _run_with_saved_form(self, route: PageRoute, visit: Visit, path_args: Mapping[str, str]) -> Answer:
        """Run the page with the form that was saved at sign-out, if there is one.

        A form that another user wrote is not run: it is shown as saved, for them to submit.
        """
        try:
            request = saved_forms.restore_form(self._services.sealer, visit.request, visit.person.user_id)
        except saved_forms.SavedByAnotherUser:
            return _saved_form_page(visit.request, visit.request.field(saved_forms.FIELD), 403, person=visit.person.login)
        return _run(route, replace(visit, request=request), path_args)

    def _signed_out(self, routes: Mapping[str, PageRoute], request: ConsoleRequest, person: SignedIn | None) -> Page | Redirect:
        """Redirect to sign-in; a submitted form is saved in a page from which it can be submitted again afterwards."""
        if request.is_fragment:
            return Page("problem.html", {"title": TITLES[401], "message": mark_error("sign in again to go on")}, 401)
        route = routes.get(request.method)
        if request.method == "GET" or person is not None or route is None or route.path == session.SIGN_OUT:
            return session.redirect_to_sign_in(self._services, request)
        writer = sessions.user_of_token(self._services.sealer, request.cookies.get(session.COOKIE, ""))
        form = saved_forms.save_form(self._services.sealer, request, writer)
        return _saved_form_page(request, form, 401, has_files=route.takes_files)

    def _refuse(self, error: ApplianceError, request: ConsoleRequest) -> Response:
        """The error page for a refused form, in the sender's language, with the console's frame if they are signed in."""
        person = session.find_person(self._services, request)
        request = self._with_language(request, person)
        if request.tenant is None or person is None or person.scope is None:
            return self._send(_problem_page(error), request, None)
        return self._send(_problem_page(error), request, self._visit(request, person, person.scope))

    def _visit(self, request: ConsoleRequest, person: SignedIn, scope: TenantScope) -> Visit:
        return Visit(self._services, request, person, replace(scope, trace=request.http.trace) if request.http.trace else scope)

    def _with_language(self, request: ConsoleRequest, person: SignedIn | None) -> ConsoleRequest:
        """The request with the language that the person has chosen in their account, if any."""
        preferred = self._services.languages.get(person.language) if person is not None and person.language else None
        return request if preferred is None else replace(request, language=preferred)

    def _perform(self, work: Callable[[], Answer], request: ConsoleRequest, visit: Visit | None) -> "Response | _Pending":
        try:
            with texts.use_language(request.language):
                answer = work()
            if isinstance(answer, Deferred):
                return _Pending(answer.work, lambda _: self._perform(answer.then, request, visit))
            return self._send(answer, request, visit)
        except ApplianceError as error:
            return self._send(_problem_page(error), request, visit)
        except Exception as error:  # noqa: BLE001  logged by as_coded
            return self._send(_problem_page(as_coded(explain_fault(error, request.http.tenant))), request, visit)

    def _send(self, answer: "Now", request: ConsoleRequest, visit: Visit | None) -> Response:
        response = self._response(answer, request, visit)
        is_foreign = isinstance(answer, File | Picture)
        safe = {
            "Cache-Control": CACHE_FOREVER if isinstance(answer, Picture) else "no-store",
            "Content-Security-Policy": "default-src 'none'; sandbox" if is_foreign else self._policy,
        }
        return replace(response, headers={**response.headers, **safe})

    def _response(self, answer: "Now", request: ConsoleRequest, visit: Visit | None) -> Response:
        if isinstance(answer, Redirect):
            cookies = [_set_cookie(name, value) for name, value in answer.cookies.items()]
            return Response(303, b"", {"Location": answer.url}, cookies)
        if isinstance(answer, RemoteFile):
            return Response(302, b"", {"Location": answer.address})
        if isinstance(answer, File):
            headers = {"Content-Type": answer.media, **_as_attachment(answer.name), "Content-Length": str(answer.size)}
            return Response(200, headers=headers, pieces=read_pieces(answer.pieces, self._services.threads))
        if isinstance(answer, Download):
            return Response(200, answer.content, {"Content-Type": answer.media, **_as_attachment(answer.name)})
        if isinstance(answer, Data):
            body = json.dumps(answer.value, ensure_ascii=False).encode()
            return Response(answer.status, body, {"Content-Type": "application/json"})
        if isinstance(answer, Stream) and visit is not None:
            self._services.limits.streams.open(visit.scope, request.http.slot)
            headers = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
            return Response(200, headers=headers, pieces=self._events(answer, request, visit))
        if isinstance(answer, Picture):
            return Response(200, answer.content, {"Content-Type": answer.media})
        rendered_page = cast(Page, answer)
        with texts.use_language(request.language):
            html = self._renderer.render(rendered_page, request, visit)
        headers = {"Content-Type": "text/html; charset=utf-8", **rendered_page.headers}
        return Response(rendered_page.status, html.encode(), headers)

    async def _events(self, stream: Stream, request: ConsoleRequest, visit: Visit) -> AsyncIterator[bytes]:
        """Server-sent events from polling, until the client disconnects or loses access; a slow client delays the next poll."""
        last_sent = clock.monotonic()
        yield b"retry: 2000\n: connected\n\n"
        while (events := await in_thread(self._services.threads, self._poll_events, stream, request, visit)) is not None:
            for event in events:
                yield event
            if events or clock.monotonic() - last_sent > HEARTBEAT_SECONDS:
                last_sent = clock.monotonic()
                yield HEARTBEAT
            await asyncio.sleep(self._services.limits.streams.poll_interval(POLL_SECONDS))

    def _poll_events(self, stream: Stream, request: ConsoleRequest, visit: Visit) -> list[bytes] | None:
        """The new events; None when the session has ended or has lost a scope that the stream started with."""
        person = session.find_person(self._services, request)
        if person is None or person.scope is None or not set(visit.scope.scopes) <= set(person.scope.scopes):
            return None
        with texts.use_language(request.language):
            rendered = [
                (number, self._renderer.render(Page(stream.template, values), request, visit)) for number, values in stream.poll()
            ]
        return [encode_event(json.dumps(html), event_id=number) for number, html in rendered]


@dataclass(frozen=True)
class _Pending:
    """An answer that waits for `work`; `finish` then builds the response."""

    work: "Future[Any]"
    finish: "Work"


Now = Page | Redirect | RemoteFile | Download | Data | File | Picture | Stream
_PathArgs = Mapping[str, str]
Work = Callable[[ConsoleRequest], Response | _Pending]


def _run(route: PageRoute, visit: Visit, path_args: Mapping[str, str]) -> Answer:
    if route.scope is not None:
        visit.scope.require(route.scope)
    if route.step_up and visit.services.second_factors.find_due(visit.person, asks_password=route.asks_password):
        return step_up.hold_form(visit)
    return route.handler(visit, **path_args)


def _saved_form_page(request: ConsoleRequest, sealed_form: str, status: int, *, has_files: bool = False, person: str = "") -> Page:
    """A page that holds a form which was not accepted, for its author to submit again.

    `person` is the login of the user who is signed in now, when that is not the author.
    """
    values = {
        "action": f"{request.path}?{request.query}".rstrip("?"), "saved_form": sealed_form, "field": saved_forms.FIELD,
        "has_files": has_files, "person": person,
    }  # fmt: skip
    return Page("base/signed_out.html", values, status)


def _problem_page(error: ApplianceError) -> Page:
    status = http_status(error)
    return Page("problem.html", {"title": TITLES.get(status, mark("Not possible")), "message": error.message}, status)


def _set_cookie(name: str, value: str) -> str:
    """A Set-Cookie header of this host; an empty value deletes the cookie."""
    seconds = session.cookie_seconds(name) if value else 0
    return dump_cookie(name, value, max_age=seconds, secure=True, httponly=True, samesite="Lax", path="/")


def _as_attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": dump_options_header("attachment", {"filename": name})}


def _refuse_foreign(http: Request) -> None:
    if not is_own_page(http.headers, http.origin):
        raise PolicyDenied(FOREIGN_FORM)


def _multipart_boundary(http: Request) -> str:
    """The boundary of a multipart form; empty for any other content type."""
    media, options = parse_options_header(http.headers.get("content-type", ""))
    return options.get("boundary", "") if media == "multipart/form-data" else ""


def _by_name(pairs: Iterable[tuple[str, str]]) -> Form:
    form: dict[str, list[str]] = {}
    for name, text in pairs:
        form.setdefault(name, []).append(text)
    return form


async def _read_form(http: Request, json_body_kb: int) -> Form:
    most = 3 * json_body_kb << 10  # URL encoding may triple the size of a byte.
    refusal = PayloadTooLarge(
        Sentence("this form is too large; the maximum is %(most)s MiB", most=most >> 20), headers={"Connection": "close"}
    )
    body = await read_body(http.pieces, most, refusal, drain=0)
    try:
        return parse_qs(body.decode("utf8"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise PolicyDenied("the form cannot be read; open the page here and submit it again") from error
