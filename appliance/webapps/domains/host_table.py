"""An in-memory table of custom domains, reloaded when the database says that it changed."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.database import db
from appliance.core.events import hub

MAX_AGE_SECONDS = 0.5  # how long changes by another process may go unnoticed


@dataclass(frozen=True)
class CustomHost:
    """A custom host name: its app, and the canonical host (a different one for a redirecting name)."""

    tenant: str
    app: str
    host: str


@dataclass(frozen=True)
class DomainsChanged:
    """A domain was added, removed or verified.  Published after the commit, in this process alone."""


class HostTable:
    """Verified host names; looked up for every request to a host that is not the appliance's own."""

    def __init__(self) -> None:
        self._names: dict[str, CustomHost] = {}
        self._primary: dict[tuple[str, str], str] = {}
        self._version = -1
        self._checked_at = 0.0
        self._is_stale = True
        self._lock = threading.Lock()

    def watch(self) -> Callable[[], None]:
        """Notice commits of this process at once; returns a function that ends this."""
        return hub.subscribe(DomainsChanged, self.invalidate)

    def find(self, name: str) -> CustomHost | None:
        """What a canonical host name serves; None when it is not a custom domain."""
        self._refresh()
        return self._names.get(name)

    def primary_of(self, tenant: str, app: str) -> str | None:
        """The primary domain of an app, to which its own host redirects; None unless it is active."""
        self._refresh()
        return self._primary.get((tenant, app))

    def invalidate(self, _: DomainsChanged) -> None:
        """Reload on the next lookup; called after a commit of this process."""
        self._is_stale = True

    def _refresh(self) -> None:
        if not self._is_stale and clock.monotonic() - self._checked_at < MAX_AGE_SECONDS:
            return
        with self._lock:
            self._is_stale, self._checked_at = False, clock.monotonic()
            version = _version()
            if version == self._version:
                return
            with db.snapshot():
                version = _version()
                rows = db.rows(
                    "SELECT n.name, n.tenant_id, d.app_id, n.host, d.is_primary, d.state, d.failing_since FROM domain_name n "
                    "JOIN domain d ON d.tenant_id = n.tenant_id AND d.host = n.host"
                )
            self._names = {str(name): CustomHost(str(tenant), str(app), str(host)) for name, tenant, app, host, *_ in rows}
            self._primary = {
                (str(tenant), str(app)): str(host)
                for name, tenant, app, host, is_primary, state, failing_since in rows
                if name == host and is_primary and state == "active" and failing_since is None
            }
            self._version = version


def mark_changed() -> None:
    """Inside a write that changes domains: make every process reload its table."""
    db.execute(
        "INSERT INTO domain_table (id, version) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET version = domain_table.version + 1"
    )
    db.after_commit(lambda: hub.publish(DomainsChanged()))


def _version() -> int:
    return sum(int(version) for (version,) in db.rows("SELECT version FROM domain_table"))
