"""The scopes of docs/contract.md § 4, and the scopes of each role."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from appliance.core.errors import Detail, ValidationFailed
from appliance.core.scope import APPLIANCE, TenantScope
from appliance.core.sentences import Sentence
from appliance.core.texts import mark

SCOPES: dict[str, str] = {
    "processflow.execute": mark("execute, cancel, retry and resume processes"),
    "processflow.read": mark("read definitions, executions and journals"),
    "processflow.write": mark("create, change and publish processes"),
    "integrations.execute": mark("execute an action of an integration"),
    "integrations.read": mark("list integrations and their calls"),
    "integrations.write": mark("create, change and test integrations"),
    "entities.read": mark("list collections and query entities"),
    "entities.write": mark("create, change, delete and import entities"),
    "datapool.admin": mark("create and change collections"),
    "webapps.read": mark("read WebApps"),
    "webapps.write": mark("upload versions, change routes and domains"),
    "webapps.publish": mark("publish, roll back and unpublish WebApps"),
    "documents.read": mark("read documents"),
    "documents.write": mark("upload and change documents"),
    "documents.review": mark("request reviews of documents"),
    "documents.share": mark("publish and share documents"),
    "documents.retain": mark("set retention, legal holds and folder rules of documents"),
    "logs.read": mark("read logs, analytics, queues, failures and the audit trail"),
    "agents.read": mark("read agents and their runs"),
    "agents.run": mark("run agents and cancel their runs"),
    "agents.write": mark("define agents"),
    "policies.read": mark("read policies and explain their decisions"),
    "policies.write": mark("draft, activate, deactivate and delete policies; never for agents"),
    "skills.read": mark("load skills"),
    "skills.write": mark("change skills"),
    "approvals.read": mark("read approvals"),
    "approvals.request": mark("ask people for approvals and answers"),
    "secrets.write": mark("set, list and delete secrets"),
    "keys.read": mark("list API keys"),
    "keys.write": mark("issue, rotate and revoke API keys"),
    "solutions.apply": mark("apply a solution folder"),
}
ALL_SCOPES = frozenset(SCOPES)
APPLIANCE_SCOPES: dict[str, str] = {
    "appliance.read": mark("read tenants, users, SCIM tokens, backups, health and the audit trail of the appliance"),
    "appliance.tenants": mark("create, change and delete tenants, and set their quotas"),
    "appliance.users": mark("create, disable and delete users, and change their memberships"),
    "appliance.scim": mark("issue, rotate and revoke the SCIM tokens of identity providers"),
    "appliance.backups": mark("make backups and rehearse restores"),
}
"""Scopes of the keys of the appliance itself, which no key of a tenant can have."""
FORBIDDEN_TO_AGENTS = frozenset({"policies.write"})
"""Scopes that an agent's run never has, whoever started it: it must not change the policies that govern it."""
ROLES = ("viewer", "operator", "builder", "owner")

_VIEWER = frozenset(name for name in SCOPES if name.endswith(".read"))
_OPERATOR = _VIEWER | {
    "processflow.execute", "integrations.execute", "entities.write", "documents.write", "agents.run", "approvals.request",
}  # fmt: skip
_BUILDER = ALL_SCOPES - {"keys.write", "policies.write"}
_BY_ROLE = {"viewer": _VIEWER, "operator": _OPERATOR, "builder": _BUILDER, "owner": ALL_SCOPES}


def scopes_of_role(role: str) -> frozenset[str]:
    """The scopes of a signed-in person with this role."""
    return _BY_ROLE[role]


def every_scope(tenant_id: str) -> frozenset[str]:
    """All scopes that a key of this tenant, or of the appliance, can have."""
    return frozenset(APPLIANCE_SCOPES) if tenant_id == APPLIANCE else ALL_SCOPES


def appliance_scope(actor: str = "system", request_id: str = "") -> TenantScope:
    """The scope of the appliance's own keys and audit trail, with every permission there and none in any tenant."""
    return TenantScope(APPLIANCE, actor, every_scope(APPLIANCE), request_id)


def validate_scopes(
    names: Iterable[str], *, pointer: str = "/scopes", known: AbstractSet[str] = ALL_SCOPES
) -> list[str]:  # fmt: skip
    """Validate and sort scope names; ValidationFailed lists every unknown one."""
    requested = list(names)
    unknown = [
        Detail(f"{pointer}/{index}", "validation_failed", Sentence("%(name)s is not a scope", name=repr(name[:60])))
        for index, name in enumerate(requested)
        if name not in known
    ]
    if unknown or not requested:
        raise ValidationFailed("name at least one known scope; GET /api-docs/ lists them", details=unknown, pointer=pointer)
    return sorted(set(requested))
