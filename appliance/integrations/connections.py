"""Live connectors: made from opened settings, shared by calls, closed when settings change or nobody calls."""

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from appliance.connectors import AllowedFolders, Redactor
from appliance.connectors.contract import Connector, Json
from appliance.connectors.egress import Egress, EgressClient
from appliance.connectors.registry import Installed
from appliance.core import clock
from appliance.core.database import db
from appliance.integrations.gate import USUAL_AT_ONCE

_MOST_LIVE = 256
_IDLE_SECONDS = 300.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ready:
    """An integration whose settings are opened: what a call needs."""

    tenant_id: str
    slug: str
    installed: Installed
    settings: dict[str, Any] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    basis: str = ""
    """What a discovery of its actions rests on, where its connector discovers any."""
    concurrency: int = USUAL_AT_ONCE
    version: int = 0
    """How often its settings were given."""
    is_trial: bool = False
    """Whether these settings are only tried: nothing is kept of it."""

    @property
    def connector_label(self) -> str:
        """Name and version of the connector, as records name it."""
        return f"{self.installed.name} {self.installed.connector.version}"

    @cached_property
    def auth(self) -> Json:
        """The block of credentials in effect; asks the plugin."""
        return self.installed.connector.auth_of(self.settings)

    @cached_property
    def redactor(self) -> Redactor:
        return Redactor(self.secrets)

    @cached_property
    def fingerprint(self) -> bytes:
        """Changes with the connector and every opened setting."""
        return hashlib.sha256(f"{self.connector_label}\0{db.dump_json(self.settings)}".encode()).digest()


@dataclass
class Live:
    """A connector in use; `users` counts the calls that run on it."""

    fingerprint: bytes
    connector: Connector
    client: EgressClient
    users: int = 0
    retired: bool = False
    used_at: float = 0.0

    def close(self) -> None:
        """Give back what the connector and its connections hold.

        Whoever closes it is somebody else, or has its answer already: what a plugin raises here is logged and no more.
        """
        try:
            self.connector.close()
        except (Exception, SystemExit):  # noqa: BLE001 - whatever a plugin does, see above
            _log.exception("the connector %s could not be closed", self.connector.name)
        finally:
            self.client.close()


class Connections:
    """At most one live connector per integration; no two integrations share one, so they share no credentials."""

    def __init__(self, egress: Egress, folders: AllowedFolders = AllowedFolders()) -> None:  # noqa: B008 - frozen
        self.egress = egress
        self.folders = folders
        self._lock = threading.Lock()
        self._live: OrderedDict[tuple[str, str], Live] = OrderedDict()

    @contextmanager
    def use(self, ready: Ready) -> Iterator[Live]:
        """The integration's connector, made when there is none for these settings; on trial it is one of its own."""
        if ready.is_trial:
            tried = Live(ready.fingerprint, ready.installed.connector(ready.settings), EgressClient(self.egress))
            try:
                yield tried
            finally:
                tried.close()
            return
        stale: list[Live] = []
        try:
            live = self._take((ready.tenant_id, ready.slug), ready, stale)
        finally:
            _close_all(stale)
        try:
            yield live
        finally:
            if self._give_back(live):
                live.close()

    def close(self) -> None:
        """Close every connector that runs no call; the others close with their last call."""
        with self._lock:
            stale = [live for key in list(self._live) if (live := self._retire(key))]
        _close_all(stale)

    def _take(self, key: tuple[str, str], ready: Ready, stale: list[Live]) -> Live:
        """The connector to use; what it replaces is added to `stale`, to be closed outside the lock."""
        with self._lock:
            stale += self._expired()
            live = self._live.get(key)
            # Another class of the same name and version is what development reloads.
            if live is None or live.fingerprint != ready.fingerprint or type(live.connector) is not ready.installed.connector:
                stale += [old] if (old := self._retire(key)) else []
                live = Live(ready.fingerprint, ready.installed.connector(ready.settings), EgressClient(self.egress))
                self._live[key] = live
            self._live.move_to_end(key)
            live.users += 1
            live.used_at = clock.monotonic()
            return live

    def _expired(self) -> list[Live]:
        """Called under the lock: take out the connectors that are idle for long or too many."""
        now = clock.monotonic()
        keys = [key for key, live in self._live.items() if live.users == 0 and now - live.used_at > _IDLE_SECONDS]
        keys += [key for key in list(self._live)[: max(0, len(self._live) - _MOST_LIVE)] if key not in keys]
        return [live for key in keys if (live := self._retire(key))]

    def _retire(self, key: tuple[str, str]) -> Live | None:
        """Called under the lock: nobody new gets this one; the caller closes what is returned."""
        live = self._live.pop(key, None)
        if live is None:
            return None
        live.retired = True
        return live if live.users == 0 else None

    def _give_back(self, live: Live) -> bool:
        with self._lock:
            live.users -= 1
            return live.retired and live.users == 0


def _close_all(stale: list[Live]) -> None:
    for live in stale:
        live.close()
