"""Custom domains in front of WebApps: redirects to the canonical host, and permission for proxies to request certificates."""

from concurrent.futures import Executor
from functools import partial
from urllib.parse import parse_qs, quote

from appliance.core.config import Config
from appliance.core.scope import TenantScope
from appliance.sites.front.networks import Networks
from appliance.sites.front.scope_keys import VISITOR
from appliance.sites.front.transport import CHALLENGE
from appliance.tenants import FindCustomHost, HostMatch, match_host, split_host
from appliance.web import App, Receive, Scope, Send, answer, in_thread
from appliance.webapps import WebApps
from appliance.webapps.domains import HostTable

_LOOPBACK = Networks(["127.0.0.0/8", "::1/128"])
PERMITTED = "/domains/permitted"
_FORWARDED = (b"x-forwarded-for", b"forwarded")


def custom_hosts(table: HostTable) -> FindCustomHost:
    """The lookup of custom domains for the host table."""

    def find(name: str) -> HostMatch | None:
        custom = table.find(name)
        if custom is None:
            return None
        return HostMatch("webapp", custom.tenant, custom.app, custom=True, canonical="" if custom.host == name else custom.host)

    return find


class DomainRedirects:
    """Redirects a `www.` or bare name to its counterpart (301), and an app's own host to its primary domain (302, because that
    can change); passes all other requests on."""

    def __init__(self, app: App, table: HostTable, config: Config) -> None:
        self._app = app
        self._table = table
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = None if scope["path"].startswith(CHALLENGE) else self._target(scope)
        if target is None:
            await self._app(scope, receive, send)
            return
        host, status = target
        path = quote(scope.get("raw_path", scope["path"].encode()).partition(b"?")[0], safe="/%:@!$&'()*+,;=~-._")
        query = f"?{scope['query_string'].decode('latin1')}" if scope["query_string"] else ""
        location = f"{scope['scheme']}://{host}{self._config.port_suffix}{path}{query}"
        await answer(send, status, b"", [(b"location", location.encode("latin1")), *_HEADERS])

    def _target(self, scope: Scope) -> tuple[str, int] | None:
        match: HostMatch = scope["gos.host"]
        keeps_method = scope["method"] not in ("GET", "HEAD")
        if match.custom:
            return (match.canonical, 308 if keeps_method else 301) if match.canonical else None
        if match.kind != "webapp" or match.tenant is None or match.app is None or VISITOR in scope:
            return None  # an internal request (a smoke check) tests the app, not its domains
        primary = self._table.primary_of(match.tenant, match.app)
        return (primary, 307 if keeps_method else 302) if primary else None


class CertificatePermission:
    """Tells a proxy whether it may request a certificate for a name (`on_demand_tls` of Caddy): 200, or 404.

    Only requests made by a trusted or local proxy itself are answered; forwarded ones are not. This runs before the host table,
    so that a proxy can use a loopback address.
    """

    def __init__(self, app: App, config: Config, webapps: WebApps, threads: Executor) -> None:
        self._app = app
        self._config = config
        self._webapps = webapps
        self._threads = threads
        self._trusted = Networks(config.server.trusted_proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == PERMITTED and self._is_proxy(scope):
            host = parse_qs(scope["query_string"].decode("latin1")).get("domain", [""])[0]
            if await self._is_permitted(match_host(host, self._config.domains)):
                await answer(send, 200, b"", [(b"cache-control", b"no-store")])
                return
        await self._app(scope, receive, send)

    async def _is_permitted(self, match: HostMatch) -> bool:
        """Whether the name exists. A WebApp's host needs its app and a preview's its version, otherwise anyone could cause
        certificates for invented names."""
        if match.kind not in ("webapp", "preview") or match.custom:
            return match.kind in ("base", "tenant", "webapp", "cdn")
        scope, app = TenantScope(str(match.tenant), "site"), str(match.app)
        if match.version is not None:
            lookup = partial(self._webapps.find_created_at, scope, app, match.version)
        else:
            lookup = partial(self._webapps.published_number, scope, app)
        return await in_thread(self._threads, lookup) is not None

    def _is_proxy(self, scope: Scope) -> bool:
        headers = {name.lower(): value for name, value in scope["headers"]}
        host = split_host(headers.get(b"host", b"").decode("latin1"))
        if scope["method"] not in ("GET", "HEAD") or any(name in headers for name in _FORWARDED):
            return False
        if host not in (self._config.domains.base, "localhost", "127.0.0.1", "[::1]"):
            return False
        peer = (scope.get("client") or ("",))[0]
        return peer in _LOOPBACK or peer in self._trusted


_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"public, max-age=0, must-revalidate"))
