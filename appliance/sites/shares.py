"""`/s/<token>` on the CDN host: the page of a share, its password, and the file with every download counted.

A link that is unknown, has ended or was revoked is answered alike: 404 and the same page.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import parse_qs

from appliance.core import clock
from appliance.core.errors import MethodNotAllowed, PayloadTooLarge, RateLimited
from appliance.core.scope import TenantScope
from appliance.documents.downloads import Origin
from appliance.documents.shares import VISIT_MS, OpenShare, Shares
from appliance.webapps.attempts import Attempts

from .answers import Answering, Exchange, Headers, Receive, Scope, Send, answer, refuse
from .delivery import represent
from .representation import Plan
from .sending import Sender
from .share_pages import SAFE, SharePages, readable_size

PREFIX, FILE = "/s/", "file"
FORM_BYTES = 4096
FREE_TRIES, WAIT_SECONDS, LONGEST_WAIT_SECONDS = 5, 30.0, 900.0


@dataclass(frozen=True)
class Visit:
    """What the cookie of this share says: until when, and which download was counted for it; `open` when the password was
    given or none is asked for."""

    open: bool
    download_id: str = ""


@dataclass(frozen=True)
class Asked:
    """One request for a share that leads somewhere."""

    tenant: TenantScope
    token: str
    opened: OpenShare
    visit: Visit
    origin: Origin
    exchange: Exchange

    @property
    def page(self) -> str:
        return f"{PREFIX}{self.token}"


class ShareSite:
    """Answers for every share of every tenant."""

    def __init__(self, shares: Shares, sender: Sender, pages: SharePages) -> None:
        self._shares = shares
        self._sender = sender
        self._pages = pages
        self._attempts = Attempts(FREE_TRIES, WAIT_SECONDS, LONGEST_WAIT_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token, _, rest = scope["path"].removeprefix(PREFIX).partition("/")
        exchange = Exchange(scope, receive, send)
        tenant = TenantScope(scope["gos.host"].tenant, "site")
        if scope["method"] not in ("GET", "HEAD", "POST") or (scope["method"] == "POST" and rest):
            allowed = "GET, HEAD" if rest else "GET, HEAD, POST"
            error = MethodNotAllowed(f"a share takes {allowed}", headers={"Allow": allowed})
            await refuse(send, error, scope["gos.request_id"])
            return
        opened = None
        if token and rest in ("", FILE):
            opened = await self._sender.in_thread(partial(self._shares.open_share, tenant, token))
        if opened is None:
            await self._show(exchange, 404, "share_missing.html")
            return
        headers = dict(scope["headers"])
        origin = Origin.of(scope["gos.address"], headers.get(b"user-agent", b"").decode("latin1"))
        asked = Asked(tenant, token, opened, self._visit(opened, scope), origin, exchange)
        if scope["method"] == "POST":
            await self._unlock(asked)
        elif not asked.visit.open:
            await self._show(exchange, 403, "share_password.html", page=asked.page, problem="")
        elif rest == FILE:
            await self._deliver(asked)
        else:
            await self._offer(asked)

    # -- pages

    async def _show(self, exchange: Exchange, status: int, template: str, **values: object) -> None:
        host = f"{exchange.scope['gos.host'].tenant}"
        body, headers = self._pages.render(template, {"host": host, **values})
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
            asked.exchange, 200, "share.html", name=leaving.name, size=readable_size(leaving.size), left=left,
            media_type=leaving.media_type, until=clock.rfc3339(share.expires_at)[:16].replace("T", " ") + " UTC",
            file=f"{asked.page}/{FILE}", sender=asked.tenant.tenant_id,
        )  # fmt: skip

    # -- the password

    async def _unlock(self, asked: Asked) -> None:
        body = await _read_form(asked.exchange)
        if body is None:
            error = PayloadTooLarge(f"the form has at most {FORM_BYTES} bytes", headers={"Connection": "close"})
            await refuse(asked.exchange.send, error, asked.exchange.scope["gos.request_id"])
            return
        if not asked.opened.share.has_password:
            await self._redirect(asked, ())
            return
        page = {"page": asked.page}
        share, address = (asked.tenant.tenant_id, asked.opened.share.id), asked.exchange.scope["gos.address"]
        try:
            self._attempts.begin(share, address)
        except RateLimited as error:
            told = f"{error.message[:1].upper()}{error.message[1:]}."
            await self._show(asked.exchange, 429, "share_password.html", problem=told, **page)
            return
        given = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True).get("password", [""])[0]
        check = partial(self._shares.is_password, asked.tenant, asked.opened, given, asked.origin)
        if await self._sender.in_thread(check):
            self._attempts.succeed(share, address)
            await self._redirect(asked, [self._cookie(asked, "")])
        else:
            await self._show(asked.exchange, 403, "share_password.html", problem="That is not the password.", **page)

    async def _redirect(self, asked: Asked, cookies: Headers) -> None:
        await answer(asked.exchange.send, 303, b"", [(b"location", asked.page.encode()), *SAFE, *cookies])

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
            sent = await self._sender.send(asked.tenant, plan, exchange, [self._cookie(asked, download_id)])
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
        known = partial(self._shares.may_continue, asked.tenant, asked.opened, asked.visit.download_id)
        return await self._sender.in_thread(known)

    # -- the cookie

    def _visit(self, opened: OpenShare, scope: Scope) -> Visit:
        """What this browser has shown to be its own; without a password every visit is open."""
        for ticket in _cookies(scope, _cookie_name(opened)):
            until, _, download_id = (self._shares.read_ticket(opened, ticket) or "").partition("-")
            if until.isdigit() and int(until) > clock.now_ms():
                return Visit(True, download_id)
        return Visit(not opened.share.has_password)

    def _cookie(self, asked: Asked, download_id: str) -> tuple[bytes, bytes]:
        content = f"{clock.now_ms() + VISIT_MS}-{download_id}"
        value = f"{_cookie_name(asked.opened)}={self._shares.seal_ticket(asked.opened, content)}"
        return b"set-cookie", f"{value}; Path=/; Max-Age={VISIT_MS // 1000}; Secure; HttpOnly; SameSite=Lax".encode()


def _cookie_name(opened: OpenShare) -> str:
    return f"__Host-gos_{opened.share.id}"


def _cookies(scope: Scope, wanted: str) -> Iterator[str]:
    """Every value of the cookie, whatever else stands beside it."""
    for name, value in scope["headers"]:
        if name == b"cookie":
            for part in value.decode("latin1").split(";"):
                key, _, content = part.strip().partition("=")
                if key == wanted:
                    yield content


async def _read_form(exchange: Exchange) -> bytes | None:
    """The body of a form; None when it is too large or its sender left."""
    body = b""
    while True:
        message = await exchange.receive()
        if message["type"] != "http.request":
            return None
        body += bytes(message.get("body", b""))
        if len(body) > FORM_BYTES:
            return None
        if not message.get("more_body", False):
            return body
