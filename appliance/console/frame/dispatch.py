"""From an HTTP request to a handler and back: host, CSRF, session, scope, one visit to a thread, headers."""

import asyncio
import json
import logging
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast
from urllib.parse import parse_qs

from quart import Response, request
from werkzeug.http import parse_options_header

from appliance.core import clock, logs, texts
from appliance.core.config import Config
from appliance.core.errors import ApplianceError, MethodNotAllowed, NotFound, PayloadTooLarge, PolicyDenied, http_status
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.core.texts import mark, mark_error
from appliance.solutions import Services
from appliance.tenants import PLACE, NoPlace, SignedIn
from appliance.tenants.sign_in import sessions
from appliance.uploads import FormLimits, FormReader

from . import csrf, kept_forms, session
from .rendering import Renderer
from .routing import (
    Answer,
    Arrival,
    Asked,
    BaseRoute,
    Data,
    Download,
    File,
    Form,
    Later,
    Page,
    PageRoute,
    Picture,
    Redirect,
    Stream,
    Visit,
)

log = logging.getLogger(__name__)

MAX_FIELDS = 5000
MOST_PARTS, MOST_FILES, TEXT_BYTES = 1000, 50, 1 << 20  # of a form with files
HEARTBEAT_SECONDS = 15.0
LOOK_SECONDS = 0.5
LASTING = "private, max-age=86400, immutable"
INTERNAL = mark_error("something went wrong in the appliance; tell its operator the request id, the log has the rest")
FOREIGN = mark_error("this form was sent from another site or by a program; open the page here and send it again")
NO_PAGE = mark_error("there is no such page here; the menu shows what there is")
TITLES = {
    401: mark("Signed out"),
    403: mark("Not allowed"),
    404: mark("Not found"),
    405: mark("Not found"),
    409: mark("Not possible now"),
    500: mark("Something went wrong"),
}


class Edge:
    """Runs the declared pages."""

    def __init__(self, services: Services, renderer: Renderer) -> None:
        self._services = services
        self._renderer = renderer
        self._policy = content_policy(services.config)

    async def base(self, routes: Mapping[str, BaseRoute]) -> Response:
        """A page of the base host."""
        return await self._timed(partial(self._on_base, routes))

    async def tenant(self, routes: Mapping[str, PageRoute], path_args: Mapping[str, str]) -> Response:
        """A page of a tenant's host."""
        return await self._timed(partial(self._on_tenant, routes, path_args), routes.get("POST"))

    async def _timed(self, work: "Work", takes: PageRoute | None = None) -> Response:
        """The answer with what it took and how much of that was work, which browsers show among their own figures."""
        began = clock.monotonic()
        response = await self._serve(work, takes)
        response.headers.add("Server-Timing", f"app;dur={(clock.monotonic() - began) * 1000:.1f}")
        return response

    async def _serve(self, work: "Work", takes: PageRoute | None) -> Response:
        asked = self._asked(request.method)
        if asked.method == "POST" and takes is not None and takes.takes_files:
            return await self._serve_files(work, takes, asked)
        try:
            if asked.method == "POST":
                asked = self._asked("POST", await _read_own_form(self._services.config.limits.json_body_kb))
        except ApplianceError as error:
            return await self._run(partial(self._refuse, error), asked)
        return await self._run(work, asked)

    async def _run(self, work: "Work", asked: Asked) -> Response:
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(self._services.threads, partial(self._logged, work, asked))
        while isinstance(result, _Pending):
            waited = asyncio.wrap_future(result.work)
            with self._services.streams.waiting(asked.place):
                await asyncio.wait([waited])
            if not waited.cancelled():
                waited.exception()  # looked at here, so that nobody warns of it; `finish` meets it again
            result = await loop.run_in_executor(self._services.threads, partial(self._logged, result.finish, asked))
        return result

    def _asked(self, method: str, form: Form | None = None) -> Asked:
        front = cast(Mapping[str, Any], request.scope)
        language = self._services.languages.choose("", request.headers.get("Accept-Language", ""))
        return Asked(
            "GET" if method == "HEAD" else method, request.path, request.query_string.decode("latin1"),
            {name: request.args[name] for name in request.args}, form or {}, dict(request.cookies), request.host, request.scheme,
            front["gos.host"].tenant, front["gos.request_id"], request.headers.get("Last-Event-ID", ""), language,
            trace=front.get("gos.trace", ""), place=front.get(PLACE) or NoPlace(), address=front["gos.address"],
        )  # fmt: skip

    async def _serve_files(self, work: "Work", route: PageRoute, asked: Asked) -> Response:
        """A form with files of somebody who may send it; the files are gone once it is answered."""
        loop = asyncio.get_running_loop()
        reader = None
        try:
            _refuse_foreign()
            if await loop.run_in_executor(self._services.threads, self._may_send, route, asked):
                limits = FormLimits(MOST_PARTS, MOST_FILES, TEXT_BYTES, self._largest(route))
                reader = FormReader(self._services.blobs.receiver, _boundary(), limits)
                async for piece in request.body:
                    await loop.run_in_executor(self._services.threads, reader.feed, piece)
                texts, files = await loop.run_in_executor(self._services.threads, reader.finish)
                asked = replace(asked, form=_by_name(texts), files=files)
            return await self._run(work, asked)
        except ApplianceError as error:
            return await self._run(partial(self._refuse, error), asked)
        finally:
            if reader is not None:
                reader.discard()

    def _may_send(self, route: PageRoute, asked: Asked) -> bool:
        """Nothing is taken from somebody who is not signed in here, or whose role does not do."""
        person = session.find_person(self._services, asked)
        if person is None or person.scope is None or (route.scope is not None and route.scope not in person.scope.scopes):
            return False
        return not route.of_administrators or person.login in self._services.config.console.administrators

    def _largest(self, route: PageRoute) -> int:
        """Bytes of one file; what those send who run the appliance is unpacked beside itself, so half of the room is theirs."""
        config = self._services.config
        return shutil.disk_usage(config.data).free // 2 if route.of_administrators else config.limits.upload_mb << 20

    # -- in a thread

    def _logged(self, work: "Work", asked: Asked) -> "Response | _Pending":
        began = clock.worked()
        with logs.log_context(request_id=asked.request_id):
            result = work(asked)
        if isinstance(result, Response):
            result.headers.add("Server-Timing", f"cpu;dur={(clock.worked() - began) * 1000:.1f}")
        return result

    def _on_base(self, routes: Mapping[str, BaseRoute], asked: Asked) -> "Response | _Pending":
        if asked.tenant is not None:
            here = asked.path == "/" and asked.method == "GET"
            return self._send(Redirect("/console/") if here else _problem_page(NotFound(NO_PAGE)), asked, None)
        route = routes.get(asked.method)
        if route is None:
            return self._send(_problem_page(MethodNotAllowed(NO_PAGE)), asked, None)
        person = session.find_person(self._services, asked)
        asked = self._as_read_by(asked, person)
        return self._perform(lambda: route.handler(Arrival(self._services, asked, person)), asked, None)

    def _on_tenant(self, routes: Mapping[str, PageRoute], path_args: Mapping[str, str], asked: Asked) -> "Response | _Pending":
        if asked.tenant is None:
            return self._send(Redirect("/"), asked, None)
        route = routes.get(asked.method)
        if route is not None and not route.needs_session:
            return self._perform(lambda: route.handler(Arrival(self._services, asked, None)), asked, None)
        person = session.find_person(self._services, asked)
        if person is None or person.scope is None:
            return self._send(self._signed_out(routes, asked, person), asked, None)
        asked = self._as_read_by(asked, person)
        visit = self._visit(asked, person, person.scope)
        if route is None:
            return self._send(_problem_page(NotFound(NO_PAGE)), asked, visit)
        return self._perform(lambda: self._run_sent(route, visit, path_args), asked, visit)

    def _run_sent(self, route: PageRoute, visit: Visit, path_args: Mapping[str, str]) -> Answer:
        """With the form that was kept for this page; one of somebody else is kept on for them."""
        try:
            asked = kept_forms.take_out(self._services.sealer, visit.asked, visit.person.user_id)
        except kept_forms.OfSomebodyElse:
            return _kept_page(visit.asked, visit.asked.field(kept_forms.FIELD), 403, person=visit.person.login)
        return _run(route, replace(visit, asked=asked), path_args)

    def _signed_out(self, routes: Mapping[str, PageRoute], asked: Asked, person: SignedIn | None) -> Page | Redirect:
        """To the sign-in; a form stays, in a page that sends it again, because nothing of it was stored."""
        if asked.is_fragment:
            return Page("problem.html", {"title": TITLES[401], "message": mark_error("sign in again to go on")}, 401)
        route = routes.get(asked.method)
        if asked.method == "GET" or person is not None or route is None or route.path == session.SIGN_OUT:
            return session.ask_base(self._services, asked)
        writer = sessions.user_of_token(self._services.sealer, asked.cookies.get(session.COOKIE, ""))
        return _kept_page(asked, kept_forms.keep(self._services.sealer, asked, writer), 401, has_files=route.takes_files)

    def _refuse(self, error: ApplianceError, asked: Asked) -> Response:
        """A form that was not taken: told in the language of whoever sent it, and in their frame when they are signed in here."""
        person = session.find_person(self._services, asked)
        asked = self._as_read_by(asked, person)
        if asked.tenant is None or person is None or person.scope is None:
            return self._send(_problem_page(error), asked, None)
        return self._send(_problem_page(error), asked, self._visit(asked, person, person.scope))

    def _visit(self, asked: Asked, person: SignedIn, scope: TenantScope) -> Visit:
        return Visit(self._services, asked, person, replace(scope, trace=asked.trace) if asked.trace else scope)

    def _as_read_by(self, asked: Asked, person: SignedIn | None) -> Asked:
        """In the language that the person has chosen, if they have."""
        own = self._services.languages.get(person.language) if person is not None and person.language else None
        return asked if own is None else replace(asked, language=own)

    def _perform(self, work: Callable[[], Answer], asked: Asked, visit: Visit | None) -> "Response | _Pending":
        try:
            with texts.speaking(asked.language):
                answer = work()
            if isinstance(answer, Later):
                return _Pending(answer.work, lambda _: self._perform(answer.then, asked, visit))
            return self._send(answer, asked, visit)
        except ApplianceError as error:
            return self._send(_problem_page(error), asked, visit)
        except Exception:
            log.exception("unhandled error in the console")
            return self._send(_problem_page(ApplianceError(INTERNAL)), asked, visit)

    def _send(self, answer: "Now", asked: Asked, visit: Visit | None) -> Response:
        response = self._response(answer, asked, visit)
        response.headers["Cache-Control"] = LASTING if isinstance(answer, Picture) else "no-store"
        is_foreign = isinstance(answer, File | Picture)
        response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox" if is_foreign else self._policy
        return response

    def _response(self, answer: "Now", asked: Asked, visit: Visit | None) -> Response:
        if isinstance(answer, Redirect):
            response = Response(b"", 303, {"Location": answer.url})
            for name, value in answer.cookies.items():
                seconds = session.cookie_seconds(name) if value else 0
                response.set_cookie(name, value, max_age=seconds, secure=True, httponly=True, samesite="Lax", path="/")
            return response
        if isinstance(answer, File):
            response = Response(self._pieces(answer.pieces), 200, content_type=answer.media)
            response.headers.set("Content-Disposition", "attachment", filename=answer.name)
            response.headers["Content-Length"] = str(answer.size)
            response.timeout = None
            return response
        if isinstance(answer, Download):
            response = Response(answer.content, 200, content_type=answer.media)
            response.headers.set("Content-Disposition", "attachment", filename=answer.name)
            return response
        if isinstance(answer, Data):
            return Response(json.dumps(answer.value, ensure_ascii=False), answer.status, content_type="application/json")
        if isinstance(answer, Stream) and visit is not None:
            self._services.streams.open(visit.scope, asked.place)
            response = Response(self._events(answer, asked, visit), 200, content_type="text/event-stream")
            response.headers["X-Accel-Buffering"] = "no"
            response.timeout = None
            return response
        if isinstance(answer, Picture):
            return Response(answer.content, 200, content_type=answer.media)
        shown = cast(Page, answer)
        with texts.speaking(asked.language):
            html = self._renderer.render(shown, asked, visit)
        return Response(html, shown.status, dict(shown.headers), content_type="text/html; charset=utf-8")

    async def _pieces(self, source: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Each piece read in a thread; the reader of the answer sets the pace."""
        loop = asyncio.get_running_loop()
        while piece := await loop.run_in_executor(self._services.threads, next, source, b""):
            yield piece

    async def _events(self, stream: Stream, asked: Asked, visit: Visit) -> AsyncIterator[bytes]:
        """What every look finds, until the visitor leaves or may no longer look; a reader who is slow keeps us from looking."""
        loop, said = asyncio.get_running_loop(), clock.monotonic()
        yield b"retry: 2000\n: connected\n\n"
        while (events := await loop.run_in_executor(self._services.threads, self._look, stream, asked, visit)) is not None:
            for event in events:
                yield event
            if events or clock.monotonic() - said > HEARTBEAT_SECONDS:
                said = clock.monotonic()
                yield b": still here\n\n"  # keeps proxies from closing what is idle
            await asyncio.sleep(self._services.streams.pause(LOOK_SECONDS))

    def _look(self, stream: Stream, asked: Asked, visit: Visit) -> list[bytes] | None:
        """None once the session is over, or is one of less than it was."""
        person = session.find_person(self._services, asked)
        if person is None or person.scope is None or not set(visit.scope.scopes) <= set(person.scope.scopes):
            return None
        with texts.speaking(asked.language):
            return [
                f"id: {number}\ndata: {json.dumps(self._renderer.render(Page(stream.template, values), asked, visit))}\n\n".encode()
                for number, values in stream.look()
            ]


@dataclass(frozen=True)
class _Pending:
    """An answer that waits for `work`; `finish` makes it then."""

    work: "Future[Any]"
    finish: "Work"


Now = Page | Redirect | Download | Data | File | Picture | Stream
Work = Callable[[Asked], Response | _Pending]


def _run(route: PageRoute, visit: Visit, path_args: Mapping[str, str]) -> Answer:
    if route.scope is not None:
        visit.scope.require(route.scope)
    return route.handler(visit, **path_args)


def _kept_page(asked: Asked, kept: str, status: int, *, has_files: bool = False, person: str = "") -> Page:
    """What was not taken, to be sent again by whoever wrote it; `person` is signed in and has not."""
    told = {
        "action": f"{asked.path}?{asked.query}".rstrip("?"), "kept": kept, "field": kept_forms.FIELD, "has_files": has_files,
        "person": person,
    }  # fmt: skip
    return Page("base/signed_out.html", told, status)


def _problem_page(error: ApplianceError) -> Page:
    status = http_status(error)
    return Page("problem.html", {"title": TITLES.get(status, mark("Not possible")), "message": error.message}, status)


def _refuse_foreign() -> None:
    headers = {name.lower(): value for name, value in request.headers.items()}
    if not csrf.is_own_page(headers, f"{request.scheme}://{request.host}"):
        raise PolicyDenied(FOREIGN)


def _boundary() -> str:
    """What separates the parts of the form that was sent; empty when it is of another kind."""
    media, options = parse_options_header(request.headers.get("Content-Type", ""))
    return options.get("boundary", "") if media == "multipart/form-data" else ""


def _by_name(pairs: Iterable[tuple[str, str]]) -> Form:
    found: dict[str, list[str]] = {}
    for name, text in pairs:
        found.setdefault(name, []).append(text)
    return found


async def _read_own_form(json_body_kb: int) -> Form:
    """The form of a page of ours; PolicyDenied for any other."""
    _refuse_foreign()
    most = 3 * json_body_kb << 10  # a byte may take three in a form
    body = bytearray()
    async for chunk in request.body:
        body += chunk
        if len(body) > most:
            raise PayloadTooLarge(
                Sentence("a form may have at most %(most)s MiB", most=most >> 20), headers={"Connection": "close"}
            )
    try:
        return parse_qs(body.decode("utf8"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise PolicyDenied("the form cannot be read; open the page here and send it again") from error


def content_policy(config: Config) -> str:
    """Nothing but our own files; forms may lead on to our own hosts (sign-in hands over by redirects)."""
    base = f"{config.domains.base}{config.port_suffix}"
    hosts = f"{config.scheme}://{base} {config.scheme}://*.{base}"
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
        f"form-action 'self' {hosts}; base-uri 'none'; frame-ancestors 'none'"
    )
