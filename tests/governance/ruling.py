"""The governor as the appliance wires it, and a short way to activate policies."""

from typing import Any

from appliance.core.crypto import Sealer
from appliance.core.scope import TenantScope
from appliance.governance.approvals.action_approvals import ActionApprovals
from appliance.governance.governor import Governor
from appliance.governance.policies.decision import Decision, InspectedDetails, ToolAction
from appliance.governance.policies.service import PolicyService
from appliance.governance.subjects import Subject
from appliance.tenants import service as tenants

DENY_WRITES = {"id": "no-writes", "effect": "deny", "effects": ["write"], "reason": "writes are off"}
ASK_FOR_WRITES = {
    "id": "ask", "effect": "require_approval", "effects": ["write"], "reason": "somebody must look",
    "obligations": {"approvers": ["role:operator"]},
}  # fmt: skip


def make_governor(sealer: Sealer) -> Governor:
    """Real policies, real approvals."""
    return Governor(PolicyService(), ActionApprovals(sealer))


def put_rules(scope: TenantScope, *rules: dict[str, Any], name: str = "gate", mode: str = "enforce") -> None:
    """Save and activate a policy with these rules under the name."""
    service, system = PolicyService(), tenants.system_scope(scope.tenant_id)
    service.save_draft(system, name, {"mode": mode, "rules": list(rules)})
    service.activate(system, name)


class FailingPolicies:
    """Policies whose evaluation fails as a bug would."""

    def decide(self, scope: TenantScope, subject: Subject, action: ToolAction) -> Decision:
        raise KeyError("oops")

    def looks_at(self, scope: TenantScope) -> InspectedDetails:
        raise KeyError("oops")
