"""Finds integrations that share a credential, so that restricting one also restricts the others."""

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.scope import TenantScope
from appliance.integrations.connections import OpenedIntegration
from appliance.integrations.settings import secret_targets, value_at
from appliance.tenants import service as tenants

_MOST_TENANTS = 256
Stamp = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class _CacheEntry:
    """The result for a tenant, valid while its integrations and secrets have these versions."""

    stamp: tuple[Stamp, Stamp]
    kin: Mapping[str, tuple[str, ...]]


class SharedCredentials:
    """Compares opened settings; caches only names, until an integration or a secret changes."""

    def __init__(self, ready: Callable[[TenantScope, str], OpenedIntegration]) -> None:
        self._ready = ready
        self._lock = threading.Lock()
        self._cache: dict[str, _CacheEntry] = {}

    def kin_of(self, scope: TenantScope, slug: str) -> tuple[str, ...]:
        """The other integrations that send one of this integration's secrets, or, without secrets, call the same address."""
        stamp = _stamp(scope)
        entry = self._cache.get(scope.tenant_id)
        if entry is None or entry.stamp != stamp:
            entry = _CacheEntry(stamp, self._compare(scope, [name for name, _ in stamp[0]]))
            with self._lock:
                if len(self._cache) >= _MOST_TENANTS:
                    self._cache.clear()
                self._cache[scope.tenant_id] = entry
        return entry.kin.get(slug, ())

    def _compare(self, scope: TenantScope, slugs: Iterable[str]) -> dict[str, tuple[str, ...]]:
        users: dict[bytes, set[str]] = {}
        for slug in slugs:
            try:
                ready = self._ready(scope, slug)
            except ApplianceError:
                continue  # its settings cannot be opened, so it cannot be called either
            for mark in _credential_digests(ready):
                users.setdefault(mark, set()).add(slug)
        kin: dict[str, set[str]] = {}
        for together in users.values():
            for slug in together:
                kin.setdefault(slug, set()).update(together - {slug})
        return {slug: tuple(sorted(others)) for slug, others in kin.items() if others}


def _stamp(scope: TenantScope) -> tuple[Stamp, Stamp]:
    integrations = db.rows("SELECT id, version FROM integration WHERE tenant_id = ? ORDER BY id", (scope.tenant_id,))
    secrets = tuple((each.name, each.updated_at) for each in tenants.list_secrets(scope))
    return tuple((str(name), int(version)) for name, version in integrations), secrets


def _credential_digests(ready: OpenedIntegration) -> Iterable[bytes]:
    """Digests that integrations with a common credential share."""
    secrets = [each for each in ready.secrets if each]
    if secrets:
        return {hashlib.sha256(b"secret\0" + each.encode("utf-8", "surrogatepass")).digest() for each in secrets}
    targets = [value_at(ready.settings, path) for path in secret_targets(ready.installed.connector.settings_schema)]
    addresses = [str(each).rstrip("/").lower() for each in targets if each not in ("", None)]
    return {hashlib.sha256(f"target\0{each}".encode("utf-8", "surrogatepass")).digest() for each in addresses}
