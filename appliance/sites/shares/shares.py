"""`/s/<token>` on the CDN host: the page of a share behind its gate, and the file with every download counted.

A link that is unknown, has ended or was revoked is answered alike: 404 and the same page.
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
from appliance.sites.front.answers import Answering, Exchange, Headers, Receive, Scope, Send, answer, refuse
from appliance.sites.front.representation import Plan
from appliance.sites.sign_in.visiting import Page, Redirect
from appliance.sites.webapps.forms import read_form
from appliance.sites.webapps.sending import Sender

from .share_gate import PREFIX, Asked, Checking, ShareGate, headers_of
from .share_pages import SAFE, SharePages

FILE = "file"
MOST_FORM = 4 << 10  # bytes


class ShareSite:
    """Answers for every share of every tenant."""

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
            error = MethodNotAllowed(Sentence("a share takes %(allowed)s", allowed=allowed), headers={"Allow": allowed})
            await refuse(send, error, scope["gos.request_id"])
            return
        opened = None
        if token and rest in ("", FILE):
            opened = await self._sender.in_thread(partial(self._shares.open_share, tenant, token))
        if opened is None:
            await self._show(exchange, 404, "share_missing.html")
            return
        asked = self._read(tenant, token, opened, exchange)
        if scope["method"] == "POST":
            await self._unlock(asked)
        elif not asked.visit.open:
            await self._turn_away(asked, self._gate.turn_away(asked))
        elif rest == FILE:
            await self._deliver(asked)
        else:
            await self._offer(asked)

    def _read(self, tenant: TenantScope, token: str, opened: OpenShare, exchange: Exchange) -> Asked:
        scope = exchange.scope
        headers = {name.decode("latin1").lower(): value.decode("latin1") for name, value in scope["headers"]}
        visit = self._gate.read_visit(opened, scope["headers"])
        origin = replace(Origin.of(scope["gos.address"], headers.get("user-agent", "")), person=visit.person)
        return Asked(tenant, token, opened, visit, origin, exchange, headers)

    # -- pages

    async def _show(self, exchange: Exchange, status: int, template: str, more: Headers = (), **values: object) -> None:
        host = f"{exchange.scope['gos.host'].tenant}"
        language = b", ".join(value for name, value in exchange.scope["headers"] if name.lower() == b"accept-language")
        body, headers = self._pages.render(template, {"host": host, **values}, language.decode("latin1"))
        headers = [*headers, *more]
        if exchange.scope["method"] == "HEAD":
            length = (b"content-length", str(len(body)).encode())
            await exchange.send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
            await exchange.send({"type": "http.response.body", "body": b""})
        else:
            await answer(exchange.send, status, body, headers)

    async def _offer(self, asked: Asked) -> None:
        share, leaving = asked.opened.share, asked.opened.leaving
        if share.state != "active":
            await self._show(asked.exchange, 404, "share_missing.html")
            return
        left = None if share.max_downloads is None else share.max_downloads - share.downloads
        await self._show(
            asked.exchange, 200, "share.html", name=leaving.name, size=leaving.size, left=left,
            media_type=leaving.media_type, until=clock.rfc3339(share.expires_at)[:16].replace("T", " ") + " UTC",
            file=f"{asked.page}/{FILE}", sender=asked.tenant.tenant_id, person=asked.visit.person, page=asked.page,
        )  # fmt: skip

    # -- the gate

    async def _unlock(self, asked: Asked) -> None:
        form = await read_form(asked.exchange.receive, MOST_FORM)
        shown = await self._sender.in_thread(partial(self._gate.answer_form, asked, form))
        if isinstance(shown, Checking):
            await asyncio.gather(asyncio.wrap_future(shown.work), return_exceptions=True)  # `finish` says what came of it
            shown = await self._sender.in_thread(partial(self._gate.finish, asked, shown))
        if isinstance(shown, Redirect):
            headers = [(b"location", shown.url.encode()), *SAFE, *headers_of(shown)]
            await answer(asked.exchange.send, 303, b"", headers)
        else:
            await self._turn_away(asked, shown)

    async def _turn_away(self, asked: Asked, shown: Page) -> None:
        await self._show(asked.exchange, shown.status, shown.template, headers_of(shown), **shown.values)

    # -- the file

    async def _deliver(self, asked: Asked) -> None:
        scope, opened = asked.exchange.scope, asked.opened
        plan = represent(opened.leaving, public=False).plan(scope["method"], 200, dict(scope["headers"]))
        if scope["method"] == "HEAD" or plan.status not in (200, 206):
            gone = opened.share.state != "active" and not await self._is_continued(asked)
            if gone:
                await self._show(asked.exchange, 404, "share_missing.html")
            else:
                await self._sender.send(asked.tenant, plan, asked.exchange)
            return
        download_id = await self._count(asked, plan)
        if download_id is None:
            await self._show(asked.exchange, 404, "share_missing.html")
            return
        sent, answering = 0, Answering(asked.exchange.send)
        exchange = replace(asked.exchange, send=answering)
        try:
            sent = await self._sender.send(asked.tenant, plan, exchange, [self._gate.cookie(asked, download_id)])
        finally:
            complete = sent == plan.end - plan.start and plan.end == opened.leaving.size
            ended = partial(self._shares.end_download, asked.tenant, download_id, sent, complete=complete)
            if not answering.begun and download_id != asked.visit.download_id:
                ended = partial(self._shares.give_back, asked.tenant, download_id)
            await self._sender.in_thread(ended)

    async def _count(self, asked: Asked, plan: Plan) -> str | None:
        """The download this answer belongs to: one of this visit that goes on behind its first byte, or a new one."""
        if plan.start > 0 and await self._is_continued(asked):
            return asked.visit.download_id
        return await self._sender.in_thread(partial(self._shares.begin_download, asked.tenant, asked.opened, asked.origin))

    async def _is_continued(self, asked: Asked) -> bool:
        if not asked.visit.download_id:
            return False
        known = partial(self._shares.may_continue, asked.tenant, asked.opened, asked.visit.download_id, asked.visit.person)
        return await self._sender.in_thread(known)
