"""Who acts, when a key of the appliance changes something in a tenant."""

from appliance.api.frame.routing import Call
from appliance.core.scope import TenantScope
from appliance.tenants import service


def actor_of(call: Call) -> str:
    """The caller as entries in trails of tenants name it, where `key:…` is a key of the tenant."""
    return f"appliance:{call.scope.actor.removeprefix('key:')}"


def tenant_scope(call: Call, tenant_id: str) -> TenantScope:
    """The scope in which the caller acts in a tenant.  NotFound."""
    return service.system_scope(service.get_tenant(tenant_id).id, actor_of(call))
