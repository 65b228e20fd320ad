"""Requests about policies."""

from collections.abc import Callable
from typing import Any

from tests.api.example import Example
from tests.api.resources import Resources, fresh

DENYING = {"id": "no-export", "effect": "deny", "operations": ["export_*"], "reason": "Nothing is exported."}
POLICY: dict[str, Any] = {"mode": "enforce", "description": "an example", "rules": [DENYING]}


def policy(tenant: Resources) -> str:
    """A deactivated policy with one version."""
    name = fresh("policy")
    tenant.ask("PUT", f"/policies/{name}", POLICY)
    tenant.ask("POST", f"/policies/{name}/activate", {"message": "an example"})
    tenant.ask("POST", f"/policies/{name}/deactivate")
    return name


def _shared(tenant: Resources) -> str:
    return tenant.once("policy", lambda: policy(tenant))


def _about(tenant: Resources) -> Example:
    return Example({"policy": _shared(tenant)})


def _version(tenant: Resources) -> Example:
    return Example({"policy": _shared(tenant), "version": "1"})


def _evaluate(tenant: Resources) -> Example:
    action = {"effect": "write", "integration": "erp", "operation": "export_orders", "input": {"all": True}}
    subject = {"via": "mcp", "skills": [{"name": "orders", "trusted": True}], "tainted_by": ["mail:inbox"]}
    return Example(body={"subject": subject, "action": action, "policy": {**POLICY, "name": fresh("policy")}})


POLICIES: dict[str, Callable[[Resources], Example]] = {
    "list_policies": lambda tenant: Example(),
    "get_policy": _about,
    "put_policy": lambda tenant: Example({"policy": fresh("policy")}, POLICY),
    "delete_policy": lambda tenant: Example({"policy": policy(tenant)}),
    "list_policy_versions": _about,
    "get_policy_version": _version,
    "get_policy_diff": _about,
    "activate_policy": lambda tenant: Example({"policy": _shared(tenant)}, {"message": "an example"}),
    "deactivate_policy": _about,
    "evaluate_policies": _evaluate,
    "replay_policy": lambda tenant: Example(body={"name": _shared(tenant), "version": 1, "limit": 5}),
}
