"""Authenticates requests by their API key."""

from dataclasses import replace

from appliance.tenants.keys import Caller, keys

from .requests import Request
from .services import Services

LONGEST_KEY = 200


def authenticate_key(services: Services, request: Request, key: str) -> Caller:
    """The caller with this key on the request's host, who acts within the request's trace; raises the errors of keys."""
    caller = keys.authenticate_key(
        services.sealer, key[:LONGEST_KEY], tenant_id=request.host.tenant, address=request.address, request_id=request.request_id
    )
    return replace(caller, scope=replace(caller.scope, trace=request.trace)) if request.trace else caller
