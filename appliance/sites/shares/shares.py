"""`/s/<token>` on the CDN host: the page of a share behind its gate, and the file, whose downloads are counted.

Unknown, expired and revoked links get the same 404 page.
"""

import asyncio
from dataclasses import replace
from functools import partial

from appliance.core import clock
from appliance.core.errors import MethodNotAllowed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.documents.sharing import OpenShare, Origin, Shares
from appliance.sites.delivery import represent
from appliance.sites.front.representation import ResponsePlan
from appliance.sites.sign_in.visiting import Page, Redirect
from appliance.sites.webapps.forms import read_form
from appliance.sites.webapps.sending import Sender
from appliance.web import Exchange, Headers, Receive, Scope, Send, TrackedSend, answer

from .share_gate import PREFIX, PendingCheck, ShareGate, ShareRequest, response_headers
from .share_pages import SAFE, SharePages

FILE = "file"
MOST_FORM = 4 << 10  # bytes


class ShareSite:
    """Serves the shares of every tenant."""

    def __init__(self, shares: Shares, gate: ShareGate, sender: Sender, pages: SharePages) -> None:
        self._shares = shares
        self._gate = gate
        self._sender = sender
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token, _, rest = scope["path"].removeprefix(PREFIX).partition("/")
        exchange = Exchange(scope, receive, send)
        tenant = TenantScope(scope["gos.host"].tenant, "site")
        if scope["method"] not in ("GET", "HEAD", "POST") or (scope["method"] == "POST" and rest):
            allowed = "GET, HEAD" if rest else "GET, HEAD, POST"
            error = MethodNotAllowed(Sentence("a share supports only %(allowed)s", allowed=allowed), headers={"Allow": allowed})
            await self._pages.readers.refuse(error, scope, send)
            return
        opened = None
        if token and rest in ("", FILE):
            opened = await self._sender.in_thread(partial(self._shares.open_share, tenant, token))
        if opened is None:
            await self._send_page(exchange, 404, "share_missing.html")
            return
        request = self._read_request(tenant, token, opened, exchange)
        if scope["method"] == "POST":
            await self._unlock(request)
        elif not request.visit.open:
            await self._send_gate_page(request, self._gate.show_next_step(request))
        elif rest == FILE:
            await self._deliver(request)
        else:
            await self._show_download(request)

    def _read_request(self, tenant: TenantScope, token: str, opened: OpenShare, exchange: Exchange) -> ShareRequest:
        request = exchange.request
        visit = self._gate.read_visit(opened, exchange.scope["headers"])
        origin = replace(Origin.of(request.address, request.headers.get("user-agent", "")), person=visit.person)
        return ShareRequest(tenant, token, opened, visit, origin, exchange)

    # -- pages

    async def _send_page(
        self, exchange: Exchange, status: int, template: str, extra_headers: Headers = (), **values: object
    ) -> None:
        request = exchange.request
        language = request.headers.get("accept-language", "")
        body, headers = self._pages.render(template, {"host": request.tenant, **values}, language)
        headers = [*headers, *extra_headers]
        if exchange.scope["method"] == "HEAD":
            length = (b"content-length", str(len(body)).encode())
            await exchange.send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
            await exchange.send({"type": "http.response.body", "body": b""})
        else:
            await answer(exchange.send, status, body, headers)

    async def _show_download(self, request: ShareRequest) -> None:
        share, content = request.opened.share, request.opened.content
        if share.state != "active":
            await self._send_page(request.exchange, 404, "share_missing.html")
            return
        left = None if share.max_downloads is None else share.max_downloads - share.downloads
        await self._send_page(
            request.exchange, 200, "share.html", name=content.name, size=content.size, left=left,
            media_type=content.media_type, until=clock.rfc3339(share.expires_at)[:16].replace("T", " ") + " UTC",
            file=f"{request.page}/{FILE}", sender=request.tenant.tenant_id, person=request.visit.person, page=request.page,
        )  # fmt: skip

    # -- the gate

    async def _unlock(self, request: ShareRequest) -> None:
        form = await read_form(request.http, MOST_FORM)
        response = await self._sender.in_thread(partial(self._gate.answer_form, request, form))
        if isinstance(response, PendingCheck):
            await asyncio.gather(asyncio.wrap_future(response.work), return_exceptions=True)  # errors are handled by `finish`
            response = await self._sender.in_thread(partial(self._gate.finish, request, response))
        if isinstance(response, Redirect):
            headers = [(b"location", response.url.encode()), *SAFE, *response_headers(response)]
            await answer(request.exchange.send, 303, b"", headers)
        else:
            await self._send_gate_page(request, response)

    async def _send_gate_page(self, request: ShareRequest, page: Page) -> None:
        await self._send_page(request.exchange, page.status, page.template, response_headers(page), **page.values)

    # -- the file

    async def _deliver(self, request: ShareRequest) -> None:
        scope, opened = request.exchange.scope, request.opened
        plan = represent(opened.content, public=False).plan(scope["method"], 200, dict(scope["headers"]))
        if scope["method"] == "HEAD" or plan.status not in (200, 206):
            is_expired = opened.share.state != "active" and not await self._is_continued(request)
            if is_expired:
                await self._send_page(request.exchange, 404, "share_missing.html")
            else:
                await self._sender.send(request.tenant, plan, request.exchange)
            return
        download_id = await self._count(request, plan)
        if download_id is None:
            await self._send_page(request.exchange, 404, "share_missing.html")
            return
        sent, tracked = 0, TrackedSend(request.exchange.send)
        exchange = replace(request.exchange, send=tracked)
        try:
            sent = await self._sender.send(request.tenant, plan, exchange, [self._gate.cookie(request, download_id)])
        finally:
            complete = sent == plan.end - plan.start and plan.end == opened.content.size
            finish = partial(self._shares.end_download, request.tenant, download_id, sent, complete=complete)
            if not tracked.started and download_id != request.visit.download_id:
                finish = partial(self._shares.uncount_download, request.tenant, download_id)
            await self._sender.in_thread(finish)

    async def _count(self, request: ShareRequest, plan: ResponsePlan) -> str | None:
        """The id of the download: a visit's running one when a range continues it, otherwise a new one; None when none is left."""
        if plan.start > 0 and await self._is_continued(request):
            return request.visit.download_id
        return await self._sender.in_thread(partial(self._shares.start_download, request.tenant, request.opened, request.origin))

    async def _is_continued(self, request: ShareRequest) -> bool:
        if not request.visit.download_id:
            return False
        check = partial(self._shares.may_continue, request.tenant, request.opened, request.visit.download_id, request.visit.person)
        return await self._sender.in_thread(check)
