"""The host `cdn--<tenant>`: what a tenant has published, below `/s/` its shares, and nothing else."""

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

BELIEVED_SECONDS = 0.5  # how long what is no longer public may still be delivered
MOST_KNOWN = 5_000


@dataclass(frozen=True)
class Known:
    """What was public at a path a moment ago."""

    leaving: Leaving
    forms: Representations
    seen: float


class Cdn:
    """Answers GET and HEAD for public documents; hands what is below `/s/` to `shares`."""

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
            error = MethodNotAllowed("public documents are read with GET and HEAD", headers={"Allow": "GET, HEAD"})
            await refuse(send, error, scope["gos.request_id"])
            return
        tenant = TenantScope(scope["gos.host"].tenant, "site")
        known = await self._look(tenant, scope["path"].removeprefix("/"))
        if known is None:
            await answer(send, 404, b"not found", MISSING)
            return
        plan = known.forms.plan(scope["method"], 200, dict(scope["headers"]))
        sent = await self._sender.send(tenant, plan, Exchange(scope, receive, send))
        if sent and plan.start == 0:
            found = known.leaving
            self._publications.deliveries.count(tenant.tenant_id, found.document_id, found.revision, sent)

    async def _look(self, tenant: TenantScope, path: str) -> Known | None:
        key = (tenant.tenant_id, path)
        known = self._known.get(key)
        now = clock.monotonic()
        if known is not None and now - known.seen < BELIEVED_SECONDS:
            return known
        found = await self._sender.in_thread(partial(self._publications.find_public, tenant, path))
        if found is None:
            self._known.pop(key, None)
            return None
        leaving, cache = found
        self._known[key] = fresh = Known(leaving, represent(leaving, public=True, cache=cache), now)
        self._known.move_to_end(key)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return fresh


MISSING = (
    (b"content-type", b"text/plain; charset=utf-8"), (b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"),
)  # fmt: skip
