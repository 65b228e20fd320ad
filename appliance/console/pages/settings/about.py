"""The page about this tenant: its URLs, people and installed version."""

import importlib.metadata

from appliance.console.frame.routing import Answer, Page, Visit, page
from appliance.core.texts import mark
from appliance.tenants import people, service

DISTRIBUTION = "gos-appliance"
ROLES = {
    "owner": mark("everything, API keys and members included"),
    "builder": mark("everything but API keys and members"),
    "operator": mark("runs processes and changes data"),
    "viewer": mark("reads"),
}


@page("GET", "/about", scope=None)
def show_about(visit: Visit) -> Answer:
    """The tenant's URLs, members, and the state of the sandbox."""
    tenant = service.get_tenant(visit.scope.tenant_id)
    protections = visit.services.sandbox.protections()
    url = visit.services.config.tenant_url(tenant.id)
    values = {
        "row": tenant, "url": url, "version": importlib.metadata.version(DISTRIBUTION), "roles": ROLES,
        "members": people.list_members(visit.scope) if visit.may("keys.read") else [],
        "provisions": tenant.kind == "sandbox",
        "sandbox": visit.services.sandbox.health() if visit.may("logs.read") else None,
        "runtimes": visit.services.sandbox.runtimes() if visit.may("logs.read") else [],
        "protections": list(protections.lines()) if protections is not None else [],
        "on_demand": visit.services.sandbox.settings.starts_on_demand,
    }  # fmt: skip
    return Page("about.html", values)
