"""The host table's part for custom domains: in memory, read again when the database says that something has changed."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.database import db

BELIEVED_SECONDS = 0.5  # how long another process's change may go unseen


@dataclass(frozen=True)
class CustomHost:
    """A name that is served: the app, and the host that answers for it, which is another one for a name that redirects."""

    tenant: str
    app: str
    host: str


class HostTable:
    """Names that tenants have proven; asked for every request to a host that is not the appliance's own."""

    def __init__(self) -> None:
        self._names: dict[str, CustomHost] = {}
        self._primary: dict[tuple[str, str], str] = {}
        self._version = -1
        self._seen = 0.0
        self._is_stale = True
        self._lock = threading.Lock()

    def watch(self) -> Callable[[], None]:
        """Hear of this process's own commits at once; answers what ends that."""
        _watching.append(self)
        return lambda: _watching.remove(self)

    def find(self, name: str) -> CustomHost | None:
        """What a name serves, written as DNS knows it; None when it is not a custom domain."""
        self._refresh()
        return self._names.get(name)

    def primary_of(self, tenant: str, app: str) -> str | None:
        """The domain that an app's own host sends its visitors to, if it is in order."""
        self._refresh()
        return self._primary.get((tenant, app))

    def forget(self) -> None:
        """Read anew at the next question; called after a commit of this process."""
        self._is_stale = True

    def _refresh(self) -> None:
        if not self._is_stale and clock.monotonic() - self._seen < BELIEVED_SECONDS:
            return
        with self._lock:
            self._is_stale, self._seen = False, clock.monotonic()
            version = _version()
            if version == self._version:
                return
            with db.snapshot():
                version = _version()
                found = db.rows(
                    "SELECT n.name, n.tenant_id, d.app_id, n.host, d.is_primary, d.state, d.failing_since FROM domain_name n "
                    "JOIN domain d ON d.tenant_id = n.tenant_id AND d.host = n.host"
                )
            self._names = {str(name): CustomHost(str(tenant), str(app), str(host)) for name, tenant, app, host, *_ in found}
            self._primary = {
                (str(tenant), str(app)): str(host)
                for name, tenant, app, host, is_primary, state, failing_since in found
                if name == host and is_primary and state == "active" and failing_since is None
            }
            self._version = version


_watching: list[HostTable] = []


def note_change() -> None:
    """Inside a write that changes what is served: every process reads its table again."""
    db.execute(
        "INSERT INTO domain_table (id, version) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET version = domain_table.version + 1"
    )
    db.after_commit(_forget)


def _version() -> int:
    return sum(int(version) for (version,) in db.rows("SELECT version FROM domain_table"))


def _forget() -> None:
    for table in _watching.copy():
        table.forget()
