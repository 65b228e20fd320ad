"""The host `cdn--<tenant>`: published documents of a tenant, and its shares under `/s/`."""

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

from appliance.core import clock
from appliance.core.errors import MethodNotAllowed
from appliance.core.scope import TenantScope
from appliance.documents.sharing import Leaving, Publications
from appliance.sites.delivery import represent
from appliance.sites.front.answers import App, Exchange, Receive, Scope, Send, answer, refuse
from appliance.sites.front.representation import Representations
from appliance.sites.shares.share_gate import PREFIX
from appliance.sites.webapps.sending import Sender

BELIEVED_SECONDS = 0.5  # how long a document may still be delivered after it stops being public
MOST_KNOWN = 5_000


@dataclass(frozen=True)
class Known:
    """A cached public document."""

    leaving: Leaving
    forms: Representations
    seen: float


class Cdn:
    """Serves public documents with GET and HEAD; passes requests under `/s/` to `shares`."""

    def __init__(self, publications: Publications, sender: Sender, shares: App) -> None:
        self._publications = publications
        self._sender = sender
        self._shares = shares
        self._known: OrderedDict[tuple[str, str], Known] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(PREFIX):
            await self._shares(scope, receive, send)
            return
        if scope["method"] not in ("GET", "HEAD"):
            error = MethodNotAllowed("public documents support only GET and HEAD", headers={"Allow": "GET, HEAD"})
            await refuse(send, error, scope["gos.request_id"])
            return
        tenant = TenantScope(scope["gos.host"].tenant, "site")
        document = await self._look(tenant, scope["path"].removeprefix("/"))
        if document is None:
            await answer(send, 404, b"not found", MISSING)
            return
        plan = document.forms.plan(scope["method"], 200, dict(scope["headers"]))
        sent = await self._sender.send(tenant, plan, Exchange(scope, receive, send))
        if sent and plan.start == 0:
            delivery = document.leaving
            self._publications.deliveries.count(tenant.tenant_id, delivery.document_id, delivery.revision, sent)

    async def _look(self, tenant: TenantScope, path: str) -> Known | None:
        key = (tenant.tenant_id, path)
        cached = self._known.get(key)
        now = clock.monotonic()
        if cached is not None and now - cached.seen < BELIEVED_SECONDS:
            return cached
        result = await self._sender.in_thread(partial(self._publications.find_public, tenant, path))
        if result is None:
            self._known.pop(key, None)
            return None
        content, cache = result
        self._known[key] = fresh = Known(content, represent(content, public=True, cache=cache), now)
        self._known.move_to_end(key)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return fresh


MISSING = (
    (b"content-type", b"text/plain; charset=utf-8"), (b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"),
)  # fmt: skip
