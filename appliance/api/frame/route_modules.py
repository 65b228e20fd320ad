"""The modules that declare routes, by the first part of their paths; the first request to such a path loads them.

Most appliances serve few of these families, and all together take longer to load than anything else in the appliance.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module

from .routing import ROUTES, Route

MODULES: Mapping[str, tuple[str, ...]] = {
    "agents": ("agents.agent_runs", "agents.agents"),
    "approvals": ("governance.approvals",),
    "connectors": ("integrations.integrations",),
    "datapool": ("datapool",),
    "documents": (
        "documents.delivery", "documents.documents", "documents.previews", "documents.retention", "documents.reviews",
        "documents.shares",
    ),
    "executions": ("processes.bulk", "processes.executions"),
    "integrations": ("integrations.actions", "integrations.calls", "integrations.integrations", "integrations.oauth"),
    "invitations": ("tenants.invitations",),
    "keys": ("tenants.key_addresses", "tenants.key_requests", "tenants.keys"),
    "kill-switches": ("governance.kill_switches",),
    "llm-profiles": ("agents.llm",),
    "logs": ("integrations.calls", "monitor.alerts", "monitor.logs"),
    "members": ("tenants.tenants",),
    "policies": ("governance.policies", "governance.policy_replay"),
    "processes": (
        "processes.dry_runs", "processes.executions", "processes.processes", "processes.replay", "processes.retry_plan",
        "processes.triggers", "processes.version_diff",
    ),
    "quotas": ("tenants.quotas",),
    "secrets": ("tenants.secrets",),
    "service-accounts": ("tenants.service_accounts",),
    "skills": ("agents.skills",),
    "solutions": ("solutions",),
    "tenant": ("tenants.tenants",),
    "uploads": ("documents.document_uploads",),
    "webapps": (
        "webapps.certificates", "webapps.domains", "webapps.publishing", "webapps.traffic", "webapps.visits", "webapps.webapps",
    ),
    "webhooks": ("monitor.webhooks",),
}  # fmt: skip

APPLIANCE: Mapping[str, tuple[str, ...]] = {
    "appliance": (
        "appliance.backups", "appliance.health", "appliance.scim_tokens", "appliance.tenants", "appliance.users",
    ),
}  # fmt: skip
"""The routes of the appliance itself, which no key of a tenant reaches."""
FAMILIES: Mapping[str, tuple[str, ...]] = {**MODULES, **APPLIANCE}


def load_family(family: str) -> Sequence[Route]:
    """The routes whose path begins with this part; none if there is no such family."""
    for module in FAMILIES.get(family, ()):
        import_module(f"appliance.api.{module}")
    return [route for route in ROUTES if route.family == family]


def load_routes() -> Sequence[Route]:
    """Every route of tenants."""
    return [route for family in MODULES for route in load_family(family)]


def load_appliance_routes() -> Sequence[Route]:
    """Every route of the appliance itself."""
    return [route for family in APPLIANCE for route in load_family(family)]
