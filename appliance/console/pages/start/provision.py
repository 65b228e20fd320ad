"""Provides sandbox tenants with the starter solution to people who are not a member of any tenant."""

from appliance.core.database import db
from appliance.solutions import SolutionServices, apply_solution, order_system_url, starter_solution
from appliance.tenants import people
from appliance.tenants import service as tenants
from appliance.web import Services


def is_offered(services: Services) -> bool:
    """Whether this appliance provides sandbox tenants."""
    return services.config.console.provision == "sandbox"


def provide_tenant(services: Services, user_id: str, login: str) -> str | None:
    """Create a sandbox tenant owned by this person and return its id; None when they are already a member of a tenant."""

    def provide() -> str | None:
        if people.tenants_of(user_id):
            return None
        tenant = tenants.create_sandbox_tenant(login)
        people.add_member(tenants.system_scope(tenant.id), login, "owner")
        return str(tenant.id)

    tenant_id = db.write(provide)
    if tenant_id is not None:
        # The starter's code is checked before a release, so no pool is passed: signing in must not wait for a sandbox.
        tools = SolutionServices(None, services.integrations, skills=services.agents.skills)
        apply_solution(tenants.system_scope(tenant_id), tools, starter_solution(order_system_url(services.config)))
    return tenant_id
