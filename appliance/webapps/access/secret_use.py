"""Access to the secret of a WebApp: the visitors' password, or the OIDC client secret."""

import hashlib
from typing import Any

from appliance.core.crypto import Sealer
from appliance.core.scope import TenantScope
from appliance.tenants.grants import SecretDestination, host_of, secret_bindings

from .access import Access, parse_access


def destination_of(app_id: str, access: Access) -> SecretDestination:
    """The destination that the secret is bound to: the OIDC provider, or the app itself for a password."""
    digest = hashlib.sha256(f"{access.kind} {access.issuer}".encode()).hexdigest()
    return SecretDestination("webapp", app_id, digest, host_of(access.issuer))


def bind_access(scope: TenantScope, app_id: str, raw_access: Any) -> None:
    """Inside the write that publishes: bind the secret of this access to the app; ScopeMissing unless the actor may grant that."""
    access = parse_access(raw_access)
    if access.secret:
        destination = destination_of(app_id, access)
        unbound = secret_bindings.require_bindable(scope, [access.secret], destination, pointer="/access")
        secret_bindings.bind_use(scope, unbound, destination)


def open_access(scope: TenantScope, sealer: Sealer, app_id: str, access: Access) -> str:
    """The value of the secret; PolicyDenied when it is not bound to this app, NotFound when it is not set."""
    return secret_bindings.open_bound(scope, sealer, access.secret, destination_of(app_id, access))
