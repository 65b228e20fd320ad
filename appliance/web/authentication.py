"""Authenticates requests by their API key."""

from dataclasses import replace

from appliance.core.database.write_guards import guard_request
from appliance.core.errors import ExpiredApiKey, InvalidApiKey, RevokedApiKey
from appliance.tenants import service
from appliance.tenants.keys import Caller, keys

from .requests import Request
from .services import Services

LONGEST_KEY = 200


def authenticate_key(services: Services, request: Request, key: str, owner: str | None = None) -> Caller:
    """The caller with this key on the request's host, who acts within the request's trace; raises the errors of keys.

    `owner` is whose keys are accepted, by default those of the host's tenant.  A key that is not is in the appliance's trail.
    """
    try:
        caller = keys.authenticate_key(
            services.sealer, key[:LONGEST_KEY], tenant_id=owner or request.host.tenant, address=request.address,
            request_id=request.request_id,
        )  # fmt: skip
    except (InvalidApiKey, ExpiredApiKey, RevokedApiKey) as error:
        services.limits.refused_requests.record_key("API key", error.code, request.address)
        raise
    service.refuse_reset(caller.scope.tenant_id)  # also on the base host, where only the key names the tenant
    if guard := service.guard_of(caller.scope.tenant_id):
        guard_request(guard)
    return replace(caller, scope=replace(caller.scope, trace=request.trace)) if request.trace else caller
