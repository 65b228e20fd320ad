"""Hosts of versions that are not published: a signed link grants access, and nothing is cached or indexed."""

from collections import OrderedDict
from collections.abc import MutableMapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.errors import PolicyDenied
from appliance.core.scope import TenantScope
from appliance.core.texts import mark_error
from appliance.sites.front.scope_keys import VISITOR
from appliance.web import Exchange, Receive, Request, Scope, Send, answer
from appliance.webapps import WebApps
from appliance.webapps.publishing import previews, served_grants

from .sending import Sender
from .webapps import Index, Site, WebAppSites

COOKIE = "__Host-gos_preview"
CLOSED = mark_error("this preview needs a valid link, and links expire; ask the sender of the link for a new one")
MAX_INDEXES = 20
_PRIVATE = ((b"cache-control", b"private, no-store"), (b"x-robots-tag", b"noindex"))
_REPLACED = frozenset({b"expires", *(name for name, _ in _PRIVATE)})


class PreviewSites:
    """Serves `v<N>-<app>--<tenant>`. Internal requests (VISITOR in the scope) need no link."""

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
        token = link if link is not None else Request.of(scope, receive).cookies.get(COOKIE, "")
        if token and (until := await self._expiry(tenant, match.app, match.version, token)) is not None:
            if link is not None:
                rest = [(name, value) for name, value in query if name != previews.PARAMETER]
                await _set_cookie(send, scope["path"], rest, (token, until))
                return
        elif VISITOR not in scope:
            await self._sites.readers.refuse(PolicyDenied(CLOSED), scope, send)
            return
        site = await self._sender.in_thread(partial(self._site, tenant, match.app, match.version))
        await self._sites.respond(tenant, match.app, site, Exchange(scope, receive, send))

    async def _expiry(self, tenant: TenantScope, app: str, number: int, token: str) -> int | None:
        return await self._sender.in_thread(partial(previews.expiry_of, tenant, self._sealer, app, number, token))

    def _site(self, tenant: TenantScope, app: str, number: int) -> Site:
        """The version alone: missing files are not looked up in versions published earlier."""
        created_at = self._webapps.find_created_at(tenant, app, number)
        key = (tenant.tenant_id, app, number)
        index = self._indexes.get(key)
        if index is None or index.version.created_at != created_at:
            version = self._webapps.load_served(tenant, app, number)
            index = Index(version) if version else None
        if index is not None:
            self._indexes[key] = index
            while len(self._indexes) > MAX_INDEXES:
                self._indexes.popitem(last=False)
        is_allowed = index is None or not index.version.routes or served_grants.is_allowed(tenant, app, number)
        served = served_grants.ServedState(number, None if is_allowed else 0)
        return Site(served, index, clock.monotonic(), older=[])


async def _set_cookie(send: Send, path: str, query: list[tuple[str, str]], token: tuple[str, int]) -> None:
    """Store the token in a cookie and redirect to the URL without it, because URLs are displayed, logged and shared."""
    address = f"/{quote(path.lstrip('/'))}" + (f"?{urlencode(query)}" if query else "")
    max_age = max(1, (token[1] - clock.now_ms()) // 1000)
    cookie = f"{COOKIE}={token[0]}; Path=/; Max-Age={max_age}; Secure; HttpOnly; SameSite=Lax"
    headers = [(b"location", address.encode()), (b"set-cookie", cookie.encode()), (b"referrer-policy", b"no-referrer")]
    await answer(send, 303, b"", headers)


async def _send_private(send: Send, message: MutableMapping[str, Any]) -> None:
    """Replace the version's cache headers, which are meant for when it is published."""
    if message["type"] == "http.response.start":
        headers = [header for header in message.get("headers", []) if header[0].lower() not in _REPLACED]
        message = {**message, "headers": [*headers, *_PRIVATE]}
    await send(message)
