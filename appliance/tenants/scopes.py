"""The scopes of CONTRACT § 4 and which of them a role of the console holds."""

from collections.abc import Iterable

from appliance.core.errors import Detail, ValidationFailed

SCOPES: dict[str, str] = {
    "processflow.execute": "execute, cancel, retry and resume processes",
    "processflow.read": "read definitions, executions and journals",
    "processflow.write": "create, change and publish processes",
    "integrations.execute": "execute an action of an integration",
    "integrations.read": "list integrations and their calls",
    "integrations.write": "create, change and test integrations",
    "entities.read": "list collections and query entities",
    "entities.write": "create, change, delete and import entities",
    "datapool.admin": "create and change collections",
    "webapps.read": "read WebApps",
    "webapps.write": "upload versions, change routes and domains",
    "webapps.publish": "publish, roll back and unpublish WebApps",
    "documents.read": "read documents",
    "documents.write": "upload and change documents",
    "documents.review": "ask for reviews of documents",
    "documents.share": "publish documents and make shares",
    "documents.retain": "retain documents, put them under legal holds and release them, set rules of folders",
    "logs.read": "read logs, analytics, queues, failures and the audit trail",
    "agents.read": "read agents and their runs",
    "agents.run": "run agents and cancel their runs",
    "agents.write": "define agents",
    "policies.read": "read policies, and ask what they say of an action",
    "policies.write": "draft, activate, deactivate and delete policies; no agent holds it",
    "skills.read": "load skills",
    "skills.write": "change skills",
    "approvals.read": "read approvals",
    "approvals.request": "ask a human",
    "secrets.write": "set, list and delete secrets",
    "keys.read": "list API keys",
    "keys.write": "issue, rotate and revoke API keys",
    "solutions.apply": "push a solution folder",
}
ALL = frozenset(SCOPES)
NEVER_OF_AGENTS = frozenset({"policies.write"})
"""What the run of an agent may not do, whoever started it: it never changes what judges it."""
ROLES = ("viewer", "operator", "builder", "owner")

_VIEWER = frozenset(name for name in SCOPES if name.endswith(".read"))
_OPERATOR = _VIEWER | {
    "processflow.execute", "integrations.execute", "entities.write", "documents.write", "agents.run", "approvals.request",
}  # fmt: skip
_BUILDER = ALL - {"keys.write", "policies.write"}
_BY_ROLE = {"viewer": _VIEWER, "operator": _OPERATOR, "builder": _BUILDER, "owner": ALL}


def scopes_of_role(role: str) -> frozenset[str]:
    """What a signed-in person with this role may do."""
    return _BY_ROLE[role]


def check_scopes(names: Iterable[str], *, pointer: str = "/scopes") -> list[str]:
    """The names, sorted and unique; ValidationFailed lists every unknown one."""
    wanted = list(names)
    unknown = [
        Detail(f"{pointer}/{index}", "validation_failed", f"{name[:60]!r} is not a scope")
        for index, name in enumerate(wanted)
        if name not in SCOPES
    ]
    if unknown or not wanted:
        raise ValidationFailed("name at least one known scope; GET /api-docs/ lists them", details=unknown, pointer=pointer)
    return sorted(set(wanted))
