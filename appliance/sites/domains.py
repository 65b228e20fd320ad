"""Custom domains in front of WebApps: names that lead to another one, and the question of a proxy that gets certificates."""

from urllib.parse import quote

from appliance.core.config import Config
from appliance.tenants.hosts import CustomHosts, HostMatch
from appliance.webapps.domains.table import HostTable

from .answers import App, Receive, Scope, Send, answer

CHALLENGES = "/.well-known/acme-challenge/"


def custom_hosts(table: HostTable) -> CustomHosts:
    """The table's part of the host table."""

    def find(name: str) -> HostMatch | None:
        custom = table.find(name)
        if custom is None:
            return None
        return HostMatch("webapp", custom.tenant, custom.app, custom=True, canonical="" if custom.host == name else custom.host)

    return find


class DomainRedirects:
    """Sends visitors of `www.` or of the bare name to the other one (301), and those of an app's own host to its primary
    domain (302: it may be another one tomorrow); everybody else passes."""

    def __init__(self, app: App, table: HostTable, config: Config) -> None:
        self._app = app
        self._table = table
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = None if scope["path"].startswith(CHALLENGES) else self._target(scope)
        if target is None:
            await self._app(scope, receive, send)
            return
        host, status = target
        path = quote(scope.get("raw_path", scope["path"].encode()).partition(b"?")[0], safe="/%:@!$&'()*+,;=~-._")
        query = f"?{scope['query_string'].decode('latin1')}" if scope["query_string"] else ""
        location = f"{scope['scheme']}://{host}{self._config.port_suffix}{path}{query}"
        await answer(send, status, b"", [(b"location", location.encode("latin1")), *_BARE])

    def _target(self, scope: Scope) -> tuple[str, int] | None:
        match: HostMatch = scope["gos.host"]
        keeps_method = scope["method"] not in ("GET", "HEAD")
        if match.custom:
            return (match.canonical, 308 if keeps_method else 301) if match.canonical else None
        if match.kind != "webapp" or match.tenant is None or match.app is None:
            return None
        primary = self._table.primary_of(match.tenant, match.app)
        return (primary, 307 if keeps_method else 302) if primary else None


_BARE = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"public, max-age=0, must-revalidate"))
