"""A sandbox tenant with the example solution for a signed-in person who belongs to no tenant."""

from appliance.core.database import db
from appliance.solutions import Services, Tools, apply_solution, order_system_url, starter_solution
from appliance.tenants import people
from appliance.tenants import service as tenants


def is_offered(services: Services) -> bool:
    """Whether this appliance gives sandboxes away."""
    return services.config.console.provision == "sandbox"


def provide_tenant(services: Services, user_id: str, login: str) -> str | None:
    """A sandbox owned by this person; None when they belong to a tenant already."""

    def provide() -> str | None:
        if people.tenants_of(user_id):
            return None
        tenant = tenants.create_sandbox_tenant(login)
        people.add_member(tenants.system_scope(tenant.id), login, "owner")
        return str(tenant.id)

    tenant_id = db.write(provide)
    if tenant_id is not None:
        # Its code was checked when it was released, so that no sandbox place is waited for while somebody signs in.
        tools = Tools(None, services.integrations, skills=services.skills)
        apply_solution(tenants.system_scope(tenant_id), tools, starter_solution(order_system_url(services.config)))
    return tenant_id
