"""The gate of an app: who has a visit comes in, everybody else is sent to the sign-in."""

import asyncio
import json
from collections.abc import Callable, MutableMapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

from appliance.connectors.egress import Egress
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, NotFound, RateLimited, SignInRequired
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.core.texts import mark, mark_error
from appliance.monitor import Line, write_lines
from appliance.sites.front.answers import Exchange, Scope, Send, answer, refuse
from appliance.sites.front.buckets import Allowance, Buckets
from appliance.sites.webapps.forms import read_form
from appliance.solutions import Services
from appliance.tenants.sign_in import EmailCodes
from appliance.webapps.access import ANONYMOUS, Access, OidcClient, ProviderFailed, Visitor, Visits

from .code_letters import CodeLetters
from .provider_sign_in import ProviderSignIn
from .sign_in import SignIn
from .sign_in_pages import SignInPages
from .visiting import SIGN_IN, VISIT_COOKIE, Answer, Asked, Foreign, Page, Redirect, as_target, read_cookies, wants_page

T = TypeVar("T")
WHO = "/_gos/visit"
FOLLOWED = "/_gos/executions/"  # whoever called an open route follows it; a ticket is good for its browser alone
MOST_FORM = 16 << 10  # bytes
TOLD = Allowance(20, 600)  # lines of an app about sign-ins that do not work
NOT_SET_UP = mark_error("the sign-in of this app is not set up; tell whoever runs it")
NOT_DONE = mark_error("the sign-in at the provider did not work; begin again, and if it stays so, tell whoever runs this app")

Submit = Callable[[TenantScope, Callable[[], Page | Redirect]], "Future[Page | Redirect]"]


@dataclass(frozen=True)
class Admitted:
    """Somebody whose request goes on: who, the exchange to answer, and which files stay hidden although the path is open."""

    visitor: Visitor
    exchange: Exchange
    access: Access

    def hides(self, file: str) -> bool:
        """Whether this visitor may not read a file that the path leads to."""
        return self.access.kind != "public" and self.visitor.kind == "anonymous" and not self.access.shows(file)


class AccessGate:
    """Stands before everything that an app serves.  `submit` runs what waits for a foreign system."""

    def __init__(self, visits: Visits, sign_in: SignIn, pages: SignInPages, threads: Executor, submit: Submit) -> None:
        self._visits = visits
        self._sign_in = sign_in
        self._pages = pages
        self._threads = threads
        self._submit = submit
        self._told = Buckets()

    async def admit(self, tenant: TenantScope, app: str, access: Access, exchange: Exchange) -> Admitted | None:
        """The visitor of a request that may go on; None when it has been answered."""
        if access.kind == "public":
            return Admitted(ANONYMOUS, exchange, access)
        scope, send = exchange.scope, exchange.send
        asked = _read_asked(tenant, app, access, scope)
        try:
            visitor = await self._visitor(asked)
            if self._sign_in.has(asked.path):
                form = await read_form(exchange.receive, MOST_FORM) if asked.method == "POST" else {}
                await self._show(await self._ask(replace(asked, form=form, visitor=visitor)), asked, send)
            elif access.is_open(asked.path) or asked.path.startswith(FOLLOWED):
                return Admitted(visitor or ANONYMOUS, exchange if visitor is None else private(exchange), access)
            elif visitor is None:
                await self._turn_away(asked, scope, send)
            elif asked.path == WHO:
                await _tell(visitor, send)
            else:
                return Admitted(visitor, private(exchange), access)
        except ApplianceError as error:
            await self._explain(error, asked, scope, send)
        return None

    async def _visitor(self, asked: Asked) -> Visitor | None:
        token = asked.cookies.get(VISIT_COOKIE, "")
        if not token or len(token) > 200:
            return None
        known = (asked.scope, asked.app, asked.access, token)
        return self._visits.recall(*known) or await self._in_thread(partial(self._visits.find_visitor, *known))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _ask(self, asked: Asked) -> Page | Redirect:
        found: Answer = await self._in_thread(partial(self._sign_in.answer, asked))
        return await asyncio.wrap_future(self._submit(asked.scope, found.work)) if isinstance(found, Foreign) else found

    # -- answering

    async def _turn_away(self, asked: Asked, scope: Scope, send: Send) -> None:
        if asked.method in ("GET", "HEAD") and wants_page(asked.headers):
            query = urlencode({"to": as_target(asked.path, scope["query_string"])})
            await self._show(Redirect(f"{SIGN_IN}?{query}"), asked, send)
        else:
            message = Sentence(
                "this app is not open to everybody; open %(origin)s%(sign_in)s in a browser and sign in",
                origin=asked.origin, sign_in=SIGN_IN,
            )
            await refuse(send, SignInRequired(message), scope["gos.request_id"])

    async def _explain(self, error: ApplianceError, asked: Asked, scope: Scope, send: Send) -> None:
        if isinstance(error, NotFound | ProviderFailed):  # a secret that is not set, a provider that is not as it must be
            self._tell_operator(asked, error, scope["gos.request_id"])
            error = _NotSetUp(NOT_SET_UP) if isinstance(error, NotFound) else ProviderFailed(NOT_DONE)
        if wants_page(asked.headers):
            told = {"title": mark("Not signed in"), "message": error.message}
            await self._show(Page("problem.html", told, error.status, headers=error.headers), asked, send)
        else:
            await refuse(send, error, scope["gos.request_id"])

    def _tell_operator(self, asked: Asked, error: ApplianceError, request_id: str) -> None:
        """A line in the log; nobody fills it by trying again and again."""
        with suppress(RateLimited):
            self._told.take(asked.key, TOLD)
            said = f"nobody can sign in to the app {asked.app}: {error.message}"
            line = Line(clock.now_ms(), "error", "webapp", said, {"webapp": asked.app}, request_id=request_id)
            db.submit(lambda: write_lines(asked.scope, [line]))

    async def _show(self, shown: Page | Redirect, asked: Asked, send: Send) -> None:
        status, body, headers = self._pages.render(shown, asked)
        await answer(send, status, body, headers)


class _NotSetUp(ApplianceError):
    code, status = "not_set_up", 503


async def _tell(visitor: Visitor, send: Send) -> None:
    """Who the app's own pages are shown to."""
    data = {"kind": visitor.kind, "id": visitor.id, "email": visitor.email}
    told = {"success": True, "data": data | ({"roles": visitor.roles} if visitor.roles else {})}
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
    await answer(send, 200, json.dumps(told).encode(), headers)



def private(exchange: Exchange) -> Exchange:
    """What only this visitor may see is kept by nobody in between."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = [(name, _private_value(name, value)) for name, value in message["headers"]]
            message = {**message, "headers": [*headers, (b"vary", b"cookie")]}
        await exchange.send(message)

    return replace(exchange, send=sending)


def _private_value(name: bytes, value: bytes) -> bytes:
    if name.lower() != b"cache-control":
        return value
    kept = [part.strip() for part in value.split(b",") if part.strip().split(b"=")[0].lower() not in (b"public", b"s-maxage")]
    return b", ".join([b"private", *(part for part in kept if part.lower() != b"private")])


def _read_asked(tenant: TenantScope, app: str, access: Access, scope: Scope) -> Asked:
    """A request as the sign-in sees it."""
    headers = {name.decode("latin1").lower(): value.decode("latin1") for name, value in scope["headers"]}
    query = dict(reversed(parse_qsl(scope["query_string"].decode("latin1"), keep_blank_values=True, max_num_fields=None)))
    return Asked(
        tenant, app, access, scope["method"], scope["path"], query, {}, headers, read_cookies(scope["headers"]),
        scope.get("scheme", "http"), scope.get("gos.address", ""),
    )  # fmt: skip


def make_gate(services: Services, egress: Egress, templates: Path) -> AccessGate:
    """The gate of every app of one appliance; providers are asked by the rules of `egress`."""
    provider = ProviderSignIn(OidcClient(egress), services.sealer)
    codes = EmailCodes(services.sealer)
    letters = CodeLetters(codes, services.executor, services.languages)
    sign_in = SignIn(services.visits, codes, letters, provider, services.config.base_url)
    pages = SignInPages(templates / "sites", services.languages)
    return AccessGate(services.visits, sign_in, pages, services.threads, services.executor.submit)
