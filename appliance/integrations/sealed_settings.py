"""Stored settings and their secrets: sealed beside the row, opened for a call, and restricted to their destinations."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from appliance.connectors.registry import Installed
from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.tenants.grants import SecretDestination, secret_bindings

from .destinations import check_address_fixed, destination_of, secret_names
from .models import IntegrationRow
from .settings import ExtractedSecrets, OpenedSettings, Sealed, extract_secrets, open_settings, secret_targets, value_at

OpenSecret = Callable[[TenantScope, str], str]


class SealedSettings:
    """Seals and opens settings; `open_secret` returns a tenant's secret by name, NotFound if it is not set."""

    def __init__(self, sealer: Sealer, open_secret: OpenSecret) -> None:
        self._sealer = sealer
        self._open_secret = open_secret

    def seal(self, scope: TenantScope, slug: str, extracted: ExtractedSecrets) -> bytes:
        """Seal the secrets entered in the settings, for storage in the row."""
        text = db.dump_json({pointer: [secret.value, secret.updated_at] for pointer, secret in extracted.secrets.items()})
        return self._sealer.seal(text.encode(), _context(scope, slug))

    def read(self, scope: TenantScope, slug: str, sealed: bytes) -> dict[str, Sealed]:
        """The secrets by pointer, with the time they were set."""
        text = self._sealer.open(bytes(sealed), _context(scope, slug))
        return {pointer: Sealed(value, at) for pointer, (value, at) in json.loads(text).items()}

    def values(self, scope: TenantScope, slug: str, sealed: bytes) -> dict[str, str]:
        """The values of the secrets by pointer."""
        return {pointer: secret.value for pointer, secret in self.read(scope, slug, sealed).items()}

    def surviving_secrets(
        self, scope: TenantScope, row: IntegrationRow, installed: Installed | None, new_settings: Mapping[str, Any]
    ) -> dict[str, Sealed]:
        """The secrets that survive a change of settings: none if it would send them elsewhere.

        If the connector does not mark the settings that decide this, any change counts, unless the actor may set secrets.
        """
        if installed is None or row.connector != installed.name:
            return {}
        secrets, targets = self.read(scope, row.id, row.sealed), secret_targets(installed.connector.settings_schema)
        if any(value_at(row.settings, path) != value_at(new_settings, path) for path in targets):
            return {}
        if not secrets or secret_bindings.SCOPE in scope.scopes:
            return secrets
        extracted = extract_secrets(installed.connector.settings_schema, new_settings, secrets, clock.now_ms())
        is_same = destination_of(installed, row.id, extracted.settings) == destination_of(installed, row.id, row.settings)
        return secrets if is_same else {}

    def open(self, scope: TenantScope, settings: Mapping[str, Any], secrets: Mapping[str, Sealed]) -> OpenedSettings:
        """The settings with every secret filled in."""

        def find(name: str) -> str | None:
            try:
                return self._open_secret(scope, name)
            except NotFound:
                return None

        return open_settings(settings, secrets, find)

    def check_destinations(self, scope: TenantScope, installed: Installed, slug: str, settings: Mapping[str, Any]) -> None:
        """PolicyDenied unless every secret that the stored settings refer to is bound to their destination."""
        names = secret_names(settings)
        if not names:
            return
        place = destination_of(installed, slug, settings)
        for name in secret_bindings.find_unbound(scope, names, place):
            raise secret_bindings.build_not_bound(name, place)

    def authorize(self, scope: TenantScope, installed: Installed, slug: str, settings: Mapping[str, Any]) -> "SecretUse":
        """The secrets that these settings would send to a new destination; ScopeMissing unless the actor may bind them."""
        names = secret_names(settings)
        place = destination_of(installed, slug, settings)
        if names:
            check_address_fixed(installed, settings)
        return SecretUse(place, tuple(secret_bindings.require_bindable(scope, names, place, pointer="/settings")))


class SecretUse:
    """Secrets to be bound to a destination when the settings are stored."""

    def __init__(self, place: SecretDestination, names: tuple[str, ...]) -> None:
        self._place, self._names = place, names

    def bind(self, scope: TenantScope) -> None:
        """Bind the secrets, inside the write that stores the settings."""
        secret_bindings.bind_use(scope, self._names, self._place)


def _context(scope: TenantScope, slug: str) -> str:
    return f"{scope.tenant_id}/integration/{slug}"
