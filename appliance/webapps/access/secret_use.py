"""The secret of a WebApp's access: the password of its visitors, or what its provider of sign-ins knows it by."""

import hashlib
from typing import Any

from appliance.core.crypto import Sealer
from appliance.core.scope import TenantScope
from appliance.tenants.grants import Destination, host_of, secret_bindings

from .access import Access, parse_access


def destination_of(app_id: str, access: Access) -> Destination:
    """Whom the secret goes to: the provider, or nobody but this app, which compares a password with it."""
    digest = hashlib.sha256(f"{access.kind} {access.issuer}".encode()).hexdigest()
    return Destination("webapp", app_id, digest, host_of(access.issuer))


def bind_access(scope: TenantScope, app_id: str, given: Any) -> None:
    """Inside the write that publishes: the secret of this access is for this app; ScopeMissing unless the actor may decide that."""
    access = parse_access(given)
    if access.secret:
        place = destination_of(app_id, access)
        unbound = secret_bindings.refuse_unbound(scope, [access.secret], place, pointer="/access")
        secret_bindings.bind_use(scope, unbound, place)


def open_access(scope: TenantScope, sealer: Sealer, app_id: str, access: Access) -> str:
    """The secret's value; PolicyDenied when it may not go to this app, NotFound when it is not set."""
    return secret_bindings.open_bound(scope, sealer, access.secret, destination_of(app_id, access))
