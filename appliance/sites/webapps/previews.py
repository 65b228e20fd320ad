"""Hosts of versions that are not published: who brings a signed link is let in, and nothing is kept or indexed."""

from collections import OrderedDict
from collections.abc import MutableMapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.scope import TenantScope
from appliance.sites.front.answers import VISITOR, Exchange, Receive, Scope, Send, answer
from appliance.webapps import WebApps
from appliance.webapps.publishing import previews, served_grants

from .sending import Sender
from .webapps import Index, Site, WebAppSites

COOKIE = "__Host-gos_preview"
CLOSED = b"This preview is open to whoever has a link to it, for a while. Ask whoever sent you here for a new link.\n"
KEPT_INDEXES = 20
_PRIVATE = ((b"cache-control", b"private, no-store"), (b"x-robots-tag", b"noindex"))
_REPLACED = frozenset({b"expires", *(name for name, _ in _PRIVATE)})


class PreviewSites:
    """Answers on `v<N>-<app>--<tenant>`.  Someone inside the appliance (VISITOR in the scope) needs no link."""

    def __init__(self, webapps: WebApps, sealer: Sealer, sites: WebAppSites, sender: Sender) -> None:
        self._webapps = webapps
        self._sealer = sealer
        self._sites = sites
        self._sender = sender
        self._indexes: OrderedDict[tuple[str, str, int], Index] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        send = partial(_send_private, send)
        match = scope["gos.host"]
        tenant = TenantScope(match.tenant, "site")
        query = parse_qsl(scope["query_string"].decode("latin1"), keep_blank_values=True)
        link = dict(query).get(previews.PARAMETER)
        token = link if link is not None else _cookie(scope)
        if token and (until := await self._expiry(tenant, match.app, match.version, token)) is not None:
            if link is not None:
                rest = [(name, value) for name, value in query if name != previews.PARAMETER]
                await _let_in(send, scope["path"], rest, (token, until))
                return
        elif VISITOR not in scope:
            await answer(
                send, 403, CLOSED, [(b"content-type", b"text/plain; charset=utf-8"), (b"x-content-type-options", b"nosniff")]
            )
            return
        site = await self._sender.in_thread(partial(self._site, tenant, match.app, match.version))
        await self._sites.respond(tenant, match.app, site, Exchange(scope, receive, send))

    async def _expiry(self, tenant: TenantScope, app: str, number: int, token: str) -> int | None:
        return await self._sender.in_thread(partial(previews.expiry_of, tenant, self._sealer, app, number, token))

    def _site(self, tenant: TenantScope, app: str, number: int) -> Site:
        """The version alone: what it lacks is not looked for in those that were published."""
        made = self._webapps.made_at(tenant, app, number)
        key = (tenant.tenant_id, app, number)
        index = self._indexes.get(key)
        if index is None or index.version.created_at != made:
            version = self._webapps.load_served(tenant, app, number)
            index = Index(version) if version else None
        if index is not None:
            self._indexes[key] = index
            while len(self._indexes) > KEPT_INDEXES:
                self._indexes.popitem(last=False)
        is_allowed = index is None or not index.version.routes or served_grants.is_allowed(tenant, app, number)
        served = served_grants.Served(number, None if is_allowed else 0)
        return Site(served, index, clock.monotonic(), older=[])


def _cookie(scope: Scope) -> str:
    """The token that an earlier link was exchanged for; empty when there is none."""
    sent = b"; ".join(value for name, value in scope["headers"] if name == b"cookie").decode("latin1")
    given = (part.strip().partition("=") for part in sent.split(";"))
    return next((value for name, _, value in given if name == COOKIE), "")


async def _let_in(send: Send, path: str, query: list[tuple[str, str]], token: tuple[str, int]) -> None:
    """Go on without the token in the address: addresses are shown, kept and handed on."""
    address = f"/{quote(path.lstrip('/'))}" + (f"?{urlencode(query)}" if query else "")
    lasts = max(1, (token[1] - clock.now_ms()) // 1000)
    cookie = f"{COOKIE}={token[0]}; Path=/; Max-Age={lasts}; Secure; HttpOnly; SameSite=Lax"
    told = [(b"location", address.encode()), (b"set-cookie", cookie.encode()), (b"referrer-policy", b"no-referrer")]
    await answer(send, 303, b"", told)


async def _send_private(send: Send, message: MutableMapping[str, Any]) -> None:
    """What the version says about keeping its files is for when it is published."""
    if message["type"] == "http.response.start":
        headers = [header for header in message.get("headers", []) if header[0].lower() not in _REPLACED]
        message = {**message, "headers": [*headers, *_PRIVATE]}
    await send(message)
