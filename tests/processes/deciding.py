"""Policy rules and approval decisions for tests of executions."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from appliance.core.database import db
from appliance.core.events import hub
from appliance.governance.approvals import ApprovalClosed, Verdict, approvals
from appliance.governance.policies import PolicyService
from appliance.tenants import SignedIn
from appliance.tenants import service as tenants
from appliance.tenants.models import Person
from tests.governance.asking import TenantFixture
from tests.governance.ruling import put_rules

from .world import World

ASK = {"id": "ask", "effect": "require_approval", "operations": ["ring"], "reason": "somebody must look"}


@contextmanager
def active_rules(world: World, *rules: dict[str, Any]) -> Iterator[None]:
    """The rules are active within the block."""
    put_rules(world.scope, *rules)
    try:
        yield
    finally:
        service, system = PolicyService(), tenants.system_scope("acme")
        service.deactivate(system, "gate")
        service.delete_policy(system, "gate")


def vote(world: World, approval_id: str, verdict: Verdict = "approve") -> None:
    """A person decides; the execution is woken in the same transaction, as in the appliance."""
    tenant = TenantFixture(tenants.system_scope("acme"))
    names = list(Person.select().where(Person.login == "eve@acme.test"))
    if names:
        scope = world.scope.with_actor(f"user:{names[0].id}")
        tenant.people["eve"] = SignedIn(names[0].id, names[0].login, "operator", scope)
    else:
        tenant.person("eve", "operator", approver=True)
    forget = hub.subscribe(ApprovalClosed, world.flow.answer_approval)
    try:
        tenant.decide("eve", approvals.get_approval(world.scope, approval_id), verdict)
    finally:
        forget()


def list_approvals(world: World, execution: str) -> list[approvals.Approval]:
    """The approval requests of the execution, oldest first."""
    rows = db.rows("SELECT id FROM approval WHERE execution_id = ? ORDER BY created_at, id", (execution,))
    return [approvals.get_approval(world.scope, row[0]) for row in rows]
