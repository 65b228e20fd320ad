"""The host `cdn--<tenant>`: published documents of a tenant, and its shares under `/s/`."""

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

from appliance.core import clock
from appliance.core.errors import MethodNotAllowed
from appliance.core.scope import TenantScope
from appliance.documents.sharing import DeliverableContent, Publications
from appliance.sites.delivery import represent
from appliance.sites.front.readers import Readers
from appliance.sites.front.representation import Representations
from appliance.sites.shares.share_gate import PREFIX
from appliance.sites.webapps.sending import Sender
from appliance.web import App, Exchange, Receive, Scope, Send

CACHE_SECONDS = 0.5  # how long a document may still be delivered after it stops being public
MAX_CACHED = 5_000


@dataclass(frozen=True)
class CachedDocument:
    """A cached public document."""

    content: DeliverableContent
    representations: Representations
    loaded_at: float


class Cdn:
    """Serves public documents with GET and HEAD; passes requests under `/s/` to `shares`."""

    def __init__(self, publications: Publications, sender: Sender, shares: App, readers: Readers) -> None:
        self._publications = publications
        self._sender = sender
        self._shares, self._readers = shares, readers
        self._cache: OrderedDict[tuple[str, str], CachedDocument] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(PREFIX):
            await self._shares(scope, receive, send)
            return
        if scope["method"] not in ("GET", "HEAD"):
            error = MethodNotAllowed("public documents support only GET and HEAD", headers={"Allow": "GET, HEAD"})
            await self._readers.refuse(error, scope, send)
            return
        tenant = TenantScope(scope["gos.host"].tenant, "site")
        document = await self._find(tenant, scope["path"].removeprefix("/"))
        if document is None:
            await self._readers.refuse_missing(scope, send, MISSING)
            return
        plan = document.representations.plan(scope["method"], 200, dict(scope["headers"]))
        sent = await self._sender.send(tenant, plan, Exchange(scope, receive, send))
        if sent and plan.start == 0:
            delivery = document.content
            self._publications.deliveries.count(tenant.tenant_id, delivery.document_id, delivery.revision, sent)

    async def _find(self, tenant: TenantScope, path: str) -> CachedDocument | None:
        key = (tenant.tenant_id, path)
        cached = self._cache.get(key)
        now = clock.monotonic()
        if cached is not None and now - cached.loaded_at < CACHE_SECONDS:
            return cached
        result = await self._sender.in_thread(partial(self._publications.find_public, tenant, path))
        if result is None:
            self._cache.pop(key, None)
            return None
        content, cache = result
        self._cache[key] = fresh = CachedDocument(content, represent(content, public=True, cache=cache), now)
        self._cache.move_to_end(key)
        if len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        return fresh


MISSING = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
