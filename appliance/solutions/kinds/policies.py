"""The policies of a solution in a tenant: compare with the active ones, activate, delete and export them."""

from collections.abc import Iterator
from typing import Any

from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.governance.policies import Policy, PolicyService, StoredPolicy, differences
from appliance.solutions.kinds.changes import Change, read_all

_service = PolicyService()  # it has no state but a cache of the active policies


def plan_policy(scope: TenantScope, wanted: Policy) -> Change:
    """What an apply would do with this policy; afterwards the version of the folder is active."""
    rules = f"{len(wanted.rules)} {'rule' if len(wanted.rules) == 1 else 'rules'}, {wanted.mode}"
    try:
        found = _service.get_policy(scope, wanted.name)
    except NotFound:
        return Change("policy", wanted.name, "create", f"{rules}; activated as version 1")
    if found.active_version is None:
        return Change("policy", wanted.name, "update", f"{rules}; not active yet, will be activated")
    active = _service.get_version(scope, wanted.name, found.active_version)
    if active.digest == wanted.digest():
        if found.draft_digest == active.digest:
            return Change("policy", wanted.name, "unchanged", f"version {active.number}")
        return Change("policy", wanted.name, "update", f"the draft is replaced by version {active.number}")
    changes = differences(active.document, wanted.document())
    told = [f"{each.happened} {f'the rule {each.rule}' if each.rule else each.member}" for each in changes]
    return Change("policy", wanted.name, "update", f"{', '.join(dict.fromkeys(told))}; activated as the next version")


def apply_policy(scope: TenantScope, wanted: Policy, message: str) -> None:
    """Inside the write: activate the policy of the folder."""
    _service.put_draft(scope, wanted.name, wanted.document())
    _service.activate(scope, wanted.name, message=message)


def delete_policy(scope: TenantScope, name: str) -> None:
    """Inside the write: deactivate and delete the policy."""
    _service.deactivate(scope, name)
    _service.delete_policy(scope, name)


def find_policy(scope: TenantScope, name: str) -> StoredPolicy:
    """The tenant's policy; NotFound."""
    return _service.get_policy(scope, name)


def written_policies(scope: TenantScope, *, drafts: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and document of every active policy, or with `drafts` of all drafts; ScopeMissing if there are any."""
    for found in read_all(lambda page: _service.list_policies(scope, page)):
        if drafts or found.active_version is not None:
            scope.require("policies.read")
            active = found.active_version
            document = found.draft if drafts or active is None else _service.get_version(scope, found.name, active).document
            yield found.name, {member: value for member, value in document.items() if member != "name"}
