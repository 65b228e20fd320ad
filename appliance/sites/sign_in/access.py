"""The gate of a WebApp: visitors with a valid session get in, everyone else is sent to the sign-in."""

import asyncio
import json
from collections.abc import Callable, MutableMapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from appliance.connectors.egress import Egress
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, NotFound, RateLimited, SignInRequired
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.core.texts import mark, mark_error
from appliance.monitor import Line, write_lines
from appliance.sites.front.buckets import BucketLimit, Buckets
from appliance.sites.front.readers import Readers
from appliance.sites.webapps.forms import read_form
from appliance.tenants.oidc import OidcClient, ProviderFailed
from appliance.tenants.sign_in import EmailCodes, open_counts
from appliance.web import Exchange, Scope, Send, Services, answer, in_thread
from appliance.webapps.access import ANONYMOUS, Access, Visitor, Visits

from .code_emails import CodeEmails
from .provider_sign_in import ProviderSignIn
from .sign_in import SignIn
from .sign_in_pages import SignInPages
from .visiting import (
    SIGN_IN,
    VISIT_COOKIE,
    ExternalCall,
    Page,
    Redirect,
    SignInRequest,
    SignInResponse,
    to_target,
    wants_page,
)

VISITOR_PATH = "/_gos/visit"
EXECUTIONS = "/_gos/executions/"  # a visitor without a session can follow an execution, because its ticket is bound to the browser
MOST_FORM = 16 << 10  # bytes
LOG_LIMIT = BucketLimit(20, 600)  # log lines of an app about failing sign-ins
NOT_SET_UP = mark_error("the sign-in of this app is not set up; tell its operator")
NOT_DONE = mark_error("the sign-in at the provider did not work; try again, and if it fails again, tell the operator of this app")

Submit = Callable[[TenantScope, Callable[[], Page | Redirect]], "Future[Page | Redirect]"]


@dataclass(frozen=True)
class Admitted:
    """An admitted request: the visitor, the exchange to respond to, and the access rules."""

    visitor: Visitor
    exchange: Exchange
    access: Access

    def hides(self, file: str) -> bool:
        """Whether this visitor may not read a file that the path leads to."""
        return self.access.kind != "public" and self.visitor.kind == "anonymous" and not self.access.is_public_file(file)


class AccessGate:
    """Guards everything that an app serves. `submit` runs work that waits for another system."""

    def __init__(self, visits: Visits, sign_in: SignIn, pages: SignInPages, threads: Executor, submit: Submit) -> None:
        self._visits = visits
        self._sign_in = sign_in
        self._pages = pages
        self._threads = threads
        self._submit = submit
        self._log_buckets = Buckets()

    async def admit(self, tenant: TenantScope, app: str, access: Access, exchange: Exchange) -> Admitted | None:
        """The visitor of an admitted request; None when the gate has already responded."""
        if access.kind == "public":
            return Admitted(ANONYMOUS, exchange, access)
        scope, send = exchange.scope, exchange.send
        request = SignInRequest(tenant, app, access, exchange.request)
        try:
            visitor = await self._visitor(request)
            if self._sign_in.has_page(request.http.path):
                form = await read_form(request.http, MOST_FORM) if request.http.method == "POST" else {}
                await self._show(await self._sign_in_response(replace(request, form=form, visitor=visitor)), request, send)
            elif access.is_open(request.http.path) or request.http.path.startswith(EXECUTIONS):
                return Admitted(visitor or ANONYMOUS, exchange if visitor is None else mark_private(exchange), access)
            elif visitor is None:
                await self._require_sign_in(request, scope, send)
            elif request.http.path == VISITOR_PATH:
                await _send_visitor(visitor, send)
            else:
                return Admitted(visitor, mark_private(exchange), access)
        except ApplianceError as error:
            await self._send_error(error, request, scope, send)
        return None

    async def _visitor(self, request: SignInRequest) -> Visitor | None:
        token = request.http.cookies.get(VISIT_COOKIE, "")
        if not token or len(token) > 200:
            return None
        key = (request.scope, request.app, request.access, token)
        return self._visits.find_cached_visitor(*key) or await in_thread(self._threads, self._visits.find_visitor, *key)

    async def _sign_in_response(self, request: SignInRequest) -> Page | Redirect:
        response: SignInResponse = await in_thread(self._threads, self._sign_in.answer, request)
        return (
            await asyncio.wrap_future(self._submit(request.scope, response.work))
            if isinstance(response, ExternalCall)
            else response
        )

    # -- responding

    async def _require_sign_in(self, request: SignInRequest, scope: Scope, send: Send) -> None:
        if request.http.method in ("GET", "HEAD") and wants_page(request.http.headers):
            query = urlencode({"to": to_target(request.http.path, scope["query_string"])})
            await self._show(Redirect(f"{SIGN_IN}?{query}"), request, send)
        else:
            message = Sentence(
                "this app requires a sign-in; open %(origin)s%(sign_in)s in a browser and sign in",
                origin=request.http.origin, sign_in=SIGN_IN,
            )
            await self._pages.readers.refuse(SignInRequired(message), scope, send)

    async def _send_error(self, error: ApplianceError, request: SignInRequest, scope: Scope, send: Send) -> None:
        if isinstance(error, NotFound | ProviderFailed):  # a secret that is not set, or a misconfigured provider
            self._log_failure(request, error, scope["gos.request_id"])
            error = _NotSetUp(NOT_SET_UP) if isinstance(error, NotFound) else ProviderFailed(NOT_DONE)
        if wants_page(request.http.headers):
            values = {"title": mark("Not signed in"), "message": error.message}
            await self._show(Page("problem.html", values, error.status, headers=error.headers), request, send)
        else:
            await self._pages.readers.refuse(error, scope, send)

    def _log_failure(self, request: SignInRequest, error: ApplianceError, request_id: str) -> None:
        """Write a line to the tenant's log; limited, so that repeated attempts do not fill it."""
        with suppress(RateLimited):
            self._log_buckets.take(request.key, LOG_LIMIT)
            message = f"visitors cannot sign in to the app {request.app}: {error.message}"
            line = Line(clock.now_ms(), "error", "webapp", message, {"webapp": request.app}, request_id=request_id)
            db.submit(lambda: write_lines(request.scope, [line]))

    async def _show(self, response: Page | Redirect, request: SignInRequest, send: Send) -> None:
        status, body, headers = self._pages.render(response, request)
        await answer(send, status, body, headers)


class _NotSetUp(ApplianceError):
    code, status = "not_set_up", 503


async def _send_visitor(visitor: Visitor, send: Send) -> None:
    """Send the visitor's identity as JSON, for the app's own pages."""
    data = {"kind": visitor.kind, "id": visitor.id, "email": visitor.email}
    payload = {"success": True, "data": data | ({"roles": visitor.roles} if visitor.roles else {})}
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
    await answer(send, 200, json.dumps(payload).encode(), headers)



def mark_private(exchange: Exchange) -> Exchange:
    """Make the responses uncacheable for proxies, because they depend on the visitor."""

    async def send_private(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = [(name, _private_value(name, value)) for name, value in message["headers"]]
            message = {**message, "headers": [*headers, (b"vary", b"cookie")]}
        await exchange.send(message)

    return replace(exchange, send=send_private)


def _private_value(name: bytes, value: bytes) -> bytes:
    if name.lower() != b"cache-control":
        return value
    directives = [part.strip() for part in value.split(b",") if part.strip().split(b"=")[0].lower() not in (b"public", b"s-maxage")]
    return b", ".join([b"private", *(part for part in directives if part.lower() != b"private")])


def build_gate(services: Services, egress: Egress, templates: Path) -> AccessGate:
    """Build the gate of every app; identity providers are reached by the rules of `egress`."""
    provider = ProviderSignIn(OidcClient(egress), services.sealer)
    codes = EmailCodes(services.sealer, open_counts)
    emails = CodeEmails(codes, services.governance.executor, services.languages)
    sign_in = SignIn(services.webapps.visits, codes, emails, provider, services.config.base_url)
    pages = SignInPages(templates / "sites", Readers(services.languages))
    return AccessGate(services.webapps.visits, sign_in, pages, services.threads, services.governance.executor.submit)
