"""Policies of a tenant: drafts decide nothing, versions never change, and what is active judges at once, in every process."""

from collections.abc import Callable
from typing import Any

import pytest

from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, PolicyDenied, ScopeMissing, ValidationFailed, VersionConflict
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.governance.policies import service as module
from appliance.governance.policies.models import PolicyVersionRow
from appliance.governance.policies.service import PolicyService
from appliance.monitor import audit
from appliance.tenants import FORBIDDEN_TO_AGENTS, SCOPES, scopes_of_role
from tests.governance.policies.facts import AGENT, KEY, action, policy, rule
from tests.integrations.world import World

ALLOW, DENY = policy(rule()), policy(rule("deny"))


def verdict(policies: PolicyService, scope: TenantScope, subject: Any = AGENT) -> str:
    return policies.decide(scope, subject, action()).verdict


def audit_lines(scope: TenantScope) -> list[str]:
    entries = audit.list_entries(scope, audit.AuditFilter(), PageRequest()).items
    return [f"{entry.action} {entry.subject}" for entry in reversed(entries) if entry.action.startswith("policy.")]


def test_a_draft_takes_effect_only_while_it_is_active(world: World) -> None:
    policies, other_process = PolicyService(), PolicyService()  # as two processes have them
    empty = policies.decide(world.one, AGENT, action()).version
    _, is_new = policies.save_draft(world.one, "erp", ALLOW)
    assert is_new
    assert verdict(policies, world.one) == verdict(other_process, world.one) == "deny"
    first = policies.activate(world.one, "erp", message="let it book")
    assert (first.number, first.state, first.message, first.created_by) == (1, "active", "let it book", "key:test")
    assert verdict(policies, world.one) == verdict(other_process, world.one) == "allow"
    assert verdict(policies, world.two) == "deny"
    policies.save_draft(world.one, "erp", DENY)
    assert verdict(policies, world.one, KEY) == "allow"
    assert policies.activate(world.one, "erp").number == 2
    assert verdict(other_process, world.one, KEY) == "deny"
    with_deny = policies.decide(world.one, KEY, action()).version
    policies.activate(world.one, "erp", version=1)
    assert verdict(other_process, world.one, KEY) == "allow"
    assert other_process.deactivate(world.one, "erp").active_version is None
    assert policies.decide(world.one, AGENT, action()).version == empty != with_deny
    states = [(each.number, each.state) for each in policies.list_versions(world.one, "erp", PageRequest()).items]
    assert states == [(2, "retired"), (1, "retired")]


def test_unchanged_policies_make_no_version_and_no_audit_entry(world: World) -> None:
    policies = PolicyService()
    policies.save_draft(world.one, "erp", ALLOW)
    assert policies.save_draft(world.one, "erp", {**ALLOW, "name": "erp"})[1] is False
    assert [policies.activate(world.one, "erp").number for _ in range(2)] == [1, 1]
    policies.deactivate(world.one, "erp")
    policies.deactivate(world.one, "erp")
    assert policies.activate(world.one, "erp").number == 1
    assert audit_lines(world.one) == ["policy.draft erp", "policy.activate erp", "policy.deactivate erp", "policy.activate erp"]


def test_an_active_policy_is_not_deleted(world: World) -> None:
    policies = PolicyService()
    policies.save_draft(world.one, "erp", ALLOW)
    policies.activate(world.one, "erp")
    with pytest.raises(Conflict, match="deactivate it first"):
        policies.delete_policy(world.one, "erp")
    policies.deactivate(world.one, "erp")
    policies.delete_policy(world.one, "erp")
    assert policies.list_policies(world.one, PageRequest()).items == []
    assert db.rows("SELECT COUNT(*) FROM policy_version") == [(0,)]
    assert audit_lines(world.one)[-1] == "policy.delete erp"


def test_policies_are_isolated_by_tenant(world: World) -> None:
    policies = PolicyService()
    policies.save_draft(world.one, "erp", ALLOW)
    policies.activate(world.one, "erp")
    assert policies.list_policies(world.two, PageRequest()).items == []
    for verb in (policies.get_policy, policies.activate, policies.deactivate, policies.delete_policy):
        with pytest.raises(NotFound):
            verb(world.two, "erp")
    for verb in (policies.get_policy, policies.activate):
        with pytest.raises(NotFound):
            verb(world.one, "other")
    with pytest.raises(NotFound):
        policies.get_version(world.one, "erp", 2)
    with pytest.raises(NotFound):
        policies.activate(world.one, "erp", version=2)
    assert verdict(policies, world.one) == "allow"


def test_a_stale_reader_changes_nothing(world: World) -> None:
    policies = PolicyService()
    draft, _ = policies.save_draft(world.one, "erp", ALLOW)
    policies.save_draft(world.one, "erp", DENY, if_digest=draft.draft_digest)
    with pytest.raises(VersionConflict):
        policies.save_draft(world.one, "erp", ALLOW, if_digest=draft.draft_digest)
    with pytest.raises(VersionConflict):
        policies.activate(world.one, "erp", if_digest=draft.draft_digest)
    assert policies.list_versions(world.one, "erp", PageRequest()).items == []


def test_only_people_and_keys_with_the_scope_change_policies(world: World) -> None:
    policies = PolicyService()
    policies.save_draft(world.one, "erp", ALLOW)
    verbs: list[Callable[[TenantScope], object]] = [
        lambda scope: policies.save_draft(scope, "erp", DENY), lambda scope: policies.activate(scope, "erp"),
        lambda scope: policies.deactivate(scope, "erp"), lambda scope: policies.delete_policy(scope, "erp"),
    ]  # fmt: skip
    writer = TenantScope("one", "key:k", frozenset(SCOPES) - {"policies.write"})
    for verb in verbs:
        with pytest.raises(ScopeMissing):
            verb(writer)
        for actor in ("execution:exe_1", "agent:clerk", "run:run_1"):
            with pytest.raises(PolicyDenied, match="not the agents and processes"):
                verb(TenantScope("one", actor, frozenset(SCOPES)))
    assert policies.get_policy(world.one, "erp").active_version is None
    assert "policies.write" in FORBIDDEN_TO_AGENTS
    assert ["policies.write" in scopes_of_role(role) for role in ("viewer", "operator", "builder", "owner")] == [False] * 3 + [True]


def test_limits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    policies = PolicyService()
    monkeypatch.setattr(module, "MAX_POLICIES", 2)
    monkeypatch.setattr(module, "MAX_ACTIVE_RULES", 2)
    policies.save_draft(world.one, "a", policy(rule(), rule("deny")))
    policies.save_draft(world.one, "b", ALLOW)
    with pytest.raises(Conflict, match="at most 2 policies"):
        policies.save_draft(world.one, "c", ALLOW)
    policies.activate(world.one, "a")
    with pytest.raises(Conflict, match="at most 2 rules can be active"):
        policies.activate(world.one, "b")
    with pytest.raises(ValidationFailed, match="500 characters"):
        policies.activate(world.one, "a", message="x" * 501)


def test_an_unreadable_version_denies_and_cannot_be_activated(world: World) -> None:
    policies = PolicyService()
    policies.save_draft(world.one, "erp", ALLOW)
    policies.activate(world.one, "erp")
    broken = {"mode": "enforce", "rules": [rule(effect="perhaps")]}
    db.write(lambda: world.one.update(PolicyVersionRow, document=broken).execute())
    assert PolicyService().decide(world.one, KEY, action()).verdict == "deny"
    policies.deactivate(world.one, "erp")
    with pytest.raises(ValidationFailed, match="/rules/0/effect"):
        policies.activate(world.one, "erp", version=1)
    assert verdict(policies, world.one, KEY) == "allow"
