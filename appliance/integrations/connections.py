"""A pool of live connectors, shared by calls, and closed when settings change or when idle."""

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
from appliance.integrations.gate import DEFAULT_CONCURRENCY

_MAX_LIVE = 256
_IDLE_SECONDS = 300.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenedIntegration:
    """An integration with its settings opened, ready to be called."""

    tenant_id: str
    slug: str
    installed: Installed
    settings: dict[str, Any] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    basis: str = ""
    """The digest of connector and settings that discovered actions depend on; empty if nothing is discovered."""
    concurrency: int = DEFAULT_CONCURRENCY
    version: int = 0
    """The version of its settings."""
    is_trial: bool = False
    """Whether these settings are only tested: nothing is stored."""

    @property
    def connector_label(self) -> str:
        """Name and version of the connector, as stored in records."""
        return f"{self.installed.name} {self.installed.connector.version}"

    @cached_property
    def auth(self) -> Json:
        """The credentials block in effect, as determined by the plugin."""
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
    """A connector in the pool; `users` is the number of calls using it."""

    fingerprint: bytes
    connector: Connector
    client: EgressClient
    users: int = 0
    retired: bool = False
    used_at: float = 0.0

    def close(self) -> None:
        """Release the resources of the connector and its connections.

        An exception of the plugin is only logged: the caller has its answer already, or is unrelated.
        """
        try:
            self.connector.close()
        except (Exception, SystemExit):  # noqa: BLE001 - whatever a plugin does, see above
            _log.exception("the connector %s could not be closed", self.connector.name)
        finally:
            self.client.close()


class Connections:
    """At most one live connector per integration; integrations never share one, so they share no credentials."""

    def __init__(self, egress: Egress, folders: AllowedFolders = AllowedFolders()) -> None:  # noqa: B008 - frozen
        self.egress = egress
        self.folders = folders
        self._lock = threading.Lock()
        self._live: OrderedDict[tuple[str, str], Live] = OrderedDict()

    @contextmanager
    def use(self, ready: OpenedIntegration) -> Iterator[Live]:
        """The integration's connector, created if there is none for these settings; a separate one for a test."""
        if ready.is_trial:
            trial = Live(ready.fingerprint, ready.installed.connector(ready.settings), EgressClient(self.egress))
            try:
                yield trial
            finally:
                trial.close()
            return
        stale: list[Live] = []
        try:
            live = self._acquire((ready.tenant_id, ready.slug), ready, stale)
        finally:
            _close_all(stale)
        try:
            yield live
        finally:
            if self._release(live):
                live.close()

    def close(self) -> None:
        """Close every idle connector; the others close after their last call."""
        with self._lock:
            stale = [live for key in list(self._live) if (live := self._retire(key))]
        _close_all(stale)

    def _acquire(self, key: tuple[str, str], ready: OpenedIntegration, stale: list[Live]) -> Live:
        """Take the connector to use; replaced ones are added to `stale`, to be closed outside the lock."""
        with self._lock:
            stale += self._expired()
            live = self._live.get(key)
            # A different class of the same name and version comes from a reload during development.
            if live is None or live.fingerprint != ready.fingerprint or type(live.connector) is not ready.installed.connector:
                stale += [old] if (old := self._retire(key)) else []
                live = Live(ready.fingerprint, ready.installed.connector(ready.settings), EgressClient(self.egress))
                self._live[key] = live
            self._live.move_to_end(key)
            live.users += 1
            live.used_at = clock.monotonic()
            return live

    def _expired(self) -> list[Live]:
        """With the lock held: remove connectors that have been idle for long or exceed the maximum."""
        now = clock.monotonic()
        keys = [key for key, live in self._live.items() if live.users == 0 and now - live.used_at > _IDLE_SECONDS]
        keys += [key for key in list(self._live)[: max(0, len(self._live) - _MAX_LIVE)] if key not in keys]
        return [live for key in keys if (live := self._retire(key))]

    def _retire(self, key: tuple[str, str]) -> Live | None:
        """With the lock held: remove a connector from the pool; returns it if the caller must close it."""
        live = self._live.pop(key, None)
        if live is None:
            return None
        live.retired = True
        return live if live.users == 0 else None

    def _release(self, live: Live) -> bool:
        with self._lock:
            live.users -= 1
            return live.retired and live.users == 0


def _close_all(stale: list[Live]) -> None:
    for live in stale:
        live.close()
