"""Two tenants with people in every role, and executions that ask them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.core import clock, ids
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.governance.approvals import approvals
from appliance.governance.approvals.approvals import Approval, Decision, Origin, Verdict
from appliance.tenants import SignedIn, people, scopes_of_role, service
from appliance.tenants.keys import keys
from appliance.tenants.models import Person


@dataclass
class TenantFixture:
    """A tenant and its people by the name before the @ of their login."""

    scope: TenantScope
    people: dict[str, SignedIn] = field(default_factory=dict)

    def person(self, name: str, role: str, *, approver: bool = False) -> SignedIn:
        login = f"{name}@{self.scope.tenant_id}.test"
        row = Person(id=ids.new("usr"), login=login, password_hash="", created_at=1)
        db.write(lambda: row.save(force_insert=True))
        people.add_member(self.scope, login, role, approver=approver)
        scope = TenantScope(self.scope.tenant_id, f"user:{row.id}", scopes_of_role(role))
        self.people[name] = SignedIn(row.id, login, role, scope)
        return self.people[name]

    def execution(self, actor: str = "system") -> str:
        """A running execution that this actor started."""
        execution_id = ids.new("exe")

        def insert() -> str:
            db.execute(
                "INSERT INTO process (tenant_id, id, name, definition, files, draft_digest, created_at, updated_at) "
                "VALUES (?, 'order-intake', 'Order intake', '{}', '{}', '', 1, 1) ON CONFLICT (tenant_id, id) DO NOTHING",
                (self.scope.tenant_id,),
            )
            db.execute(
                "INSERT INTO execution (tenant_id, id, process_id, version, status, input, priority, created_at, enqueued_at, "
                "active_ms, lease_until, fence, claims, cancel_requested, actor, request_id) "
                "VALUES (?, ?, 'order-intake', 1, 'running', '{}', 0, 1, 1, 0, 0, 0, 0, 0, ?, '')",
                (self.scope.tenant_id, execution_id, actor),
            )
            return execution_id

        return db.write(insert)

    def origin(self, execution_id: str) -> Origin:
        return Origin(execution_id, "order-intake", "approve", "lines/approve", "0", 2, 1)

    def ask(self, kind: str = "approval", *, actor: str = "system", **fields: Any) -> Approval:
        """A request of a new execution that this actor started."""
        origin = self.origin(self.execution(actor))
        request = approvals.parse_request({"kind": kind, "title": "Order over limit", **fields}, origin, clock.now_ms())
        running = self.scope.with_actor(f"execution:{origin.execution_id}")
        return db.write(lambda: approvals.request_approval(running, request))

    def decide(self, name: str, approval: Approval, verdict: Verdict = "approve", **details: Any) -> Approval:
        person = self.people[name]
        assert person.scope is not None
        return approvals.decide_approval(person.scope, person, approval.id, Decision(verdict, **details))

    def key(self, issuer: TenantScope) -> str:
        """An API key's actor."""
        spec = keys.KeySpec("ci", ["processflow.execute", "keys.write", "keys.read"])
        return f"key:{keys.issue_key(issuer, SEALER, spec)[0].id}"

    def audit_entries(self, approval_id: str) -> list[tuple[str, str, Mapping[str, Any]]]:
        """(actor, action, fields) of the audit entries about a request, oldest first."""
        rows = db.rows(
            "SELECT actor, action, fields FROM audit_entry WHERE tenant_id = ? AND subject = ? ORDER BY seq",
            (self.scope.tenant_id, approval_id),
        )
        return [(actor, action, db.JsonField().python_value(fields)) for actor, action, fields in rows]


SEALER = Sealer(b"k" * 32)


def make_tenant(name: str, *, kind: str = "standard") -> TenantFixture:
    """A new tenant with ann (owner), bob (builder), olga (operator), victor (viewer) and eve (operator, approver)."""
    service.create_tenant(name, name.title(), kind=kind)
    tenant = TenantFixture(service.system_scope(name))
    for person, role, approver in (
        ("ann", "owner", False), ("bob", "builder", False), ("olga", "operator", False), ("victor", "viewer", False),
        ("eve", "operator", True),
    ):  # fmt: skip
        tenant.person(person, role, approver=approver)
    return tenant
