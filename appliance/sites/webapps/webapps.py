"""Serves WebApps on their hosts, in front of Quart: the published version is kept in memory and replaced when it changes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from urllib.parse import parse_qsl

from appliance.core import clock
from appliance.core.errors import MethodNotAllowed, NotFound, UnknownHost
from appliance.core.scope import TenantScope
from appliance.sites.front.readers import Readers
from appliance.sites.front.representation import Representations
from appliance.sites.front.scope_keys import VISITOR
from appliance.sites.sign_in.access import AccessGate
from appliance.web import Exchange, Receive, Scope, Send, answer
from appliance.webapps import ServedVersion, WebApps, changes
from appliance.webapps.access import ANONYMOUS
from appliance.webapps.files import headers_for
from appliance.webapps.publishing import ServedState, served_grants
from appliance.webapps.routes import RouteTable, parse_routes

from .fingerprints import may_be_fingerprinted
from .resolution import FileMatch, Moved, Resolver
from .routes import RouteRequest, Routes
from .sending import Sender

MAX_AGE_SECONDS = 1.0  # how long changes by another process may go unnoticed
OLDER_VERSIONS = 5
MOST_SITES = 2000


class Index:
    """One version with everything needed to serve it."""

    def __init__(self, version: ServedVersion) -> None:
        self.version = version
        self.resolver = Resolver(version)
        self.routes = RouteTable(parse_routes(version.routes))
        self._representations: dict[str, Representations] = {}

    def representations(self, path: str) -> Representations:
        """The representations of a file, created on first use."""
        representations = self._representations.get(path)
        if representations is None:
            rules = headers_for(self.version.rules.get("headers", []), f"/{path}")
            if path.endswith("index.html"):
                rules = headers_for(self.version.rules.get("headers", []), f"/{path.removesuffix('index.html')}") | rules
            representations = self._representations[path] = Representations(path, self.version.files[path], rules)
        return representations


@dataclass
class Site:
    """The state of an app: its published version, and when that was looked up."""

    served: ServedState
    index: Index | None
    checked_at: float
    stale: bool = False
    older: list[Index] | None = field(default=None)


class WebAppSites:
    """Serves the hosts of WebApps: routes first, then files."""

    def __init__(self, webapps: WebApps, sender: Sender, gate: AccessGate, routes: Routes, readers: Readers) -> None:
        self._webapps = webapps
        self._sender = sender
        self._gate = gate
        self._routes, self.readers = routes, readers
        self._sites: dict[tuple[str, str], Site] = {}
        self._changes = 0
        changes.subscribe(self._mark_stale)

    def _mark_stale(self, tenant_id: str, app: str) -> None:
        """Called by the writer after a commit that changes what is served."""
        self._changes += 1
        site = self._sites.get((tenant_id, app))
        if site is not None:
            site.stale = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = scope["gos.host"]
        tenant = TenantScope(match.tenant, "site")
        site = await self._site(tenant, match.app)
        if site.served.number is None:
            await self.readers.refuse(UnknownHost("this host name is not served here; check the address"), scope, send)
        elif site.index is None or VISITOR in scope:
            await self.respond(tenant, match.app, site, Exchange(scope, receive, send))
        else:
            access = site.index.version.access
            admitted = await self._gate.admit(tenant, match.app, access, Exchange(scope, receive, send))
            if admitted is not None:
                scope[VISITOR] = admitted.visitor
                await self.respond(tenant, match.app, site, admitted.exchange, admitted.hides)

    async def respond(
        self, tenant: TenantScope, app: str, site: Site, exchange: Exchange, hides: Callable[[str], bool] = lambda _: False
    ) -> None:
        """Respond from a version, published or not, to an admitted visitor; `hides` tells which files they may not see."""
        scope, send = exchange.scope, exchange.send
        if site.index is not None and await self._routes.answer(_route_request(tenant, app, site, site.index, exchange)):
            return
        if scope["method"] not in ("GET", "HEAD"):
            error = MethodNotAllowed("the files of a WebApp support only GET and HEAD", headers={"Allow": "GET, HEAD"})
            await self.readers.refuse(error, scope, send)
        elif site.index is None:
            await self.readers.refuse(NotFound("nothing is published here yet; publish a version"), scope, send)
        else:
            await self._serve(tenant, app, site, exchange, hides)

    # -- what is published

    async def _site(self, tenant: TenantScope, app: str) -> Site:
        key = (tenant.tenant_id, app)
        site = self._sites.get(key)
        now = clock.monotonic()
        if site is not None and not site.stale and now - site.checked_at < MAX_AGE_SECONDS:
            return site
        if site is not None:
            site.checked_at, site.stale = now, False
        changes = self._changes
        fresh = await self._sender.in_thread(partial(self._load, tenant, app, site))
        fresh.stale = self._changes != changes  # the lookup may have read the previous state
        if len(self._sites) >= MOST_SITES and key not in self._sites:
            self._sites.clear()
        self._sites[key] = fresh
        return fresh

    def _load(self, tenant: TenantScope, app: str, previous: Site | None) -> Site:
        now = clock.monotonic()
        served = served_grants.find_served(tenant, app)
        if previous is not None and previous.served == replace(served, allowed_until=previous.served.allowed_until):
            return Site(served, previous.index, now, older=previous.older)
        version = self._webapps.load_served(tenant, app, served.number) if served.number else None
        return Site(served, Index(version) if version else None, now)

    # -- responding

    async def _serve(
        self, tenant: TenantScope, app: str, site: Site, exchange: Exchange, hides: Callable[[str], bool]
    ) -> None:
        scope, send = exchange.scope, exchange.send
        index, path = site.index, scope["path"]
        if index is None:
            raise RuntimeError("a site without a version")
        query_string = scope["query_string"]
        query = dict(parse_qsl(query_string.decode("latin1"))) if query_string else {}
        match = index.resolver.resolve(path, query)
        if match is None and may_be_fingerprinted(path):
            older = await self._older(tenant, app, site, path.removeprefix("/"))
            if older is not None:
                index, match = older, FileMatch(path.removeprefix("/"))
        match = match or index.resolver.not_found_page()
        if isinstance(match, FileMatch) and hides(match.path):
            match = None
        if isinstance(match, Moved):
            await self._redirect(send, match, scope["query_string"])
        elif match is None:
            await self.readers.refuse_missing(scope, send, _HEADERS)
        else:
            headers: Mapping[bytes, bytes] = dict(scope["headers"])
            plan = index.representations(match.path).plan(scope["method"], match.status, headers)
            await self._sender.send(tenant, plan, exchange)

    async def _redirect(self, send: Send, moved: Moved, query: bytes) -> None:
        address, mark, anchor = moved.location.encode("latin1", "replace").partition(b"#")
        if query and b"?" not in address:
            address += b"?" + query
        location = address + mark + anchor
        await answer(send, moved.status, b"", [(b"location", location), *_HEADERS])

    async def _older(self, tenant: TenantScope, app: str, site: Site, path: str) -> Index | None:
        """A recent version that has the file, because an open page may still be using it."""
        if site.older is None:
            site.older = await self._sender.in_thread(partial(self._load_older, tenant, app, site))
        return next((index for index in site.older if path in index.version.files), None)

    def _load_older(self, tenant: TenantScope, app: str, site: Site) -> list[Index]:
        """Recent versions with the same access as the published one, because the gate has checked only that."""
        if site.index is None:
            return []
        access = site.index.version.access
        numbers = self._webapps.recent_numbers(tenant, app, OLDER_VERSIONS + 1)
        versions = (self._webapps.load_served(tenant, app, number) for number in numbers if number != site.served.number)
        return [Index(version) for version in versions if version is not None and version.access == access]


def _route_request(tenant: TenantScope, app: str, site: Site, index: Index, exchange: Exchange) -> RouteRequest:
    visitor, has_file = exchange.scope.get(VISITOR, ANONYMOUS), index.resolver.has_file(exchange.scope["path"])
    return RouteRequest(
        exchange=exchange, tenant=tenant, app=app, table=index.routes, has_file=has_file, visitor=visitor,
        allowed_until=site.served.allowed_until,
    )


_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"public, max-age=0, must-revalidate"))
