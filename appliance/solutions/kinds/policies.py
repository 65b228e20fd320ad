"""The policies of a solution in a tenant: compare with the active ones, activate, delete and export them."""

from collections.abc import Iterator
from typing import Any

from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.governance.policies import Policy, PolicyService, StoredPolicy, diff_policies
from appliance.solutions.kinds.changes import Change, read_all

_service = PolicyService()  # it has no state but a cache of the active policies


def plan_policy(scope: TenantScope, policy: Policy) -> Change:
    """What an apply would do with this policy; afterwards the version of the folder is active."""
    rules = f"{len(policy.rules)} {'rule' if len(policy.rules) == 1 else 'rules'}, {policy.mode}"
    try:
        stored = _service.get_policy(scope, policy.name)
    except NotFound:
        return Change("policy", policy.name, "create", f"{rules}; activated as version 1")
    if stored.active_version is None:
        return Change("policy", policy.name, "update", f"{rules}; not active yet, will be activated")
    active = _service.get_version(scope, policy.name, stored.active_version)
    if active.digest == policy.digest():
        if stored.draft_digest == active.digest:
            return Change("policy", policy.name, "unchanged", f"version {active.number}")
        return Change("policy", policy.name, "update", f"the draft is replaced by version {active.number}")
    changes = diff_policies(active.document, policy.document())
    parts = [f"{each.happened} {f'the rule {each.rule}' if each.rule else each.member}" for each in changes]
    return Change("policy", policy.name, "update", f"{', '.join(dict.fromkeys(parts))}; activated as the next version")


def apply_policy(scope: TenantScope, policy: Policy, message: str) -> None:
    """Inside the write: activate the policy of the folder."""
    _service.save_draft(scope, policy.name, policy.document())
    _service.activate(scope, policy.name, message=message)


def delete_policy(scope: TenantScope, name: str) -> None:
    """Inside the write: deactivate and delete the policy."""
    _service.deactivate(scope, name)
    _service.delete_policy(scope, name)


def find_policy(scope: TenantScope, name: str) -> StoredPolicy:
    """The tenant's policy; NotFound."""
    return _service.get_policy(scope, name)


def export_policies(scope: TenantScope, *, drafts: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and document of every active policy, or with `drafts` of all drafts; ScopeMissing if there are any."""
    for policy in read_all(lambda page: _service.list_policies(scope, page)):
        if drafts or policy.active_version is not None:
            scope.require("policies.read")
            active = policy.active_version
            document = policy.draft if drafts or active is None else _service.get_version(scope, policy.name, active).document
            yield policy.name, {member: value for member, value in document.items() if member != "name"}
