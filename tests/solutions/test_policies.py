"""Policies in a solution folder: applied, exported, pruned, and refused without the scope."""

from dataclasses import replace

import pytest

from appliance.core.errors import ScopeMissing
from appliance.core.pages import PageRequest
from appliance.governance import Subject
from appliance.governance.policies import PolicyService, ToolAction
from appliance.solutions.exporting import export_solution
from appliance.solutions.schemas import schema_files
from appliance.solutions.service import ApplyOptions, apply_solution, plan_solution
from tests.solutions.conftest import SolutionTenant, make_solution, read
from tests.solutions.test_definition import problems_of
from tests.solutions.test_service import actions_of

POLICY = """
mode: enforce
rules:
  - {id: read, effect: allow, subject: {agents: [clerk]}, effects: [read], reason: Reading is harmless.}
"""
EXPORT = ToolAction("execute_tenant_integration", "read", {}, integration="erp", operation="export")
CLERK = Subject("key:k", "agent", agent="clerk")


def with_policy(text: str = POLICY) -> dict[str, str]:
    return make_solution(**{"policies/clerk.yaml": text})


def decide_verdict(tenant: SolutionTenant) -> str:
    return PolicyService().decide(tenant.scope, CLERK, EXPORT).verdict


def summary(tenant: SolutionTenant, text: str) -> str:
    return next(f"{each.action}: {each.summary}" for each in tenant.plan(with_policy(text)) if each.kind == "policy")


def test_a_policy_takes_effect_once_applied(tenant: SolutionTenant) -> None:
    assert summary(tenant, POLICY) == "create: 1 rule, enforce; activated as version 1"
    assert decide_verdict(tenant) == "deny"
    tenant.apply(with_policy(), message="let it read")
    assert decide_verdict(tenant) == "allow"
    assert PolicyService().get_version(tenant.scope, "clerk", 1).message == "let it read"
    assert actions_of(tenant.apply(with_policy()))["policy clerk"] == "unchanged"
    narrowed = POLICY.replace("effects: [read]", "effects: [write]").replace("enforce", "observe")
    assert summary(tenant, narrowed) == "update: changed mode, changed the rule read; activated as the next version"
    tenant.apply(with_policy(narrowed))
    assert decide_verdict(tenant) == "deny"
    PolicyService().deactivate(tenant.scope, "clerk")
    assert summary(tenant, narrowed).startswith("update: 1 rule, observe; not active yet")
    PolicyService().activate(tenant.scope, "clerk", version=1)
    tenant.apply(with_policy())
    assert PolicyService().get_policy(tenant.scope, "clerk").draft["mode"] == "enforce"


def test_a_policy_is_exported_as_it_was_applied(tenant: SolutionTenant) -> None:
    tenant.apply(with_policy())
    PolicyService().save_draft(tenant.scope, "clerk", {"mode": "observe", "rules": [{"id": "x", "effect": "deny", "reason": "no"}]})
    for drafts, mode in ((False, "enforce"), (True, "observe")):
        files = export_solution(tenant.scope, tenant.tools.integrations, drafts=drafts)
        again = read({"solution.yaml": "name: x\n", "policies/clerk.yaml": files["policies/clerk.yaml"].decode()})
        assert (again.policies["clerk"].mode, again.policies["clerk"].name) == (mode, "clerk")
    reader = replace(tenant.scope, scopes=tenant.scope.scopes - {"policies.read"})
    with pytest.raises(ScopeMissing, match=r"policies\.read"):
        export_solution(reader, tenant.tools.integrations)


def test_applying_a_policy_change_needs_the_policy_scope(tenant: SolutionTenant) -> None:
    builder = replace(tenant.scope, scopes=tenant.scope.scopes - {"policies.write"})
    with pytest.raises(ScopeMissing, match=r"policies\.write"):
        plan_solution(builder, tenant.tools, read(with_policy()))
    assert PolicyService().list_policies(tenant.scope, PageRequest()).items == []
    tenant.apply(with_policy())
    changes = apply_solution(builder, tenant.tools, read(with_policy()))
    assert actions_of(changes)["policy clerk"] == "unchanged"
    with pytest.raises(ScopeMissing, match=r"policies\.write"):
        apply_solution(builder, tenant.tools, read(make_solution()), ApplyOptions(prune=True))
    assert decide_verdict(tenant) == "allow"


def test_a_leftover_policy_is_pruned_and_no_longer_applies(tenant: SolutionTenant) -> None:
    tenant.apply(with_policy())
    assert actions_of(tenant.apply(make_solution()))["policy clerk"] == "leftover"
    assert decide_verdict(tenant) == "allow"
    assert actions_of(tenant.apply(make_solution(), prune=True))["policy clerk"] == "delete"
    assert decide_verdict(tenant) == "deny"


def test_a_problem_of_a_policy_is_reported_with_its_line() -> None:
    problems = problems_of(with_policy(POLICY.replace("effects: [read]", "effects: [reed]")))
    assert problems["policies/clerk.yaml"].startswith("policies/clerk.yaml:4: ")
    assert "/rules/0/effects/0 input should be 'read' or 'write'" in problems["policies/clerk.yaml"]


def test_an_empty_policy_is_refused() -> None:
    assert "/mode this member is required" in problems_of(with_policy("{}\n"))["policies/clerk.yaml"]


def test_editors_get_the_schema_of_a_policy(tenant: SolutionTenant) -> None:
    schema = schema_files(tenant.tools.integrations.registry)["policy.schema.json"]
    assert (schema["title"], schema["required"]) == ("policy", ["mode", "rules"])
    assert tenant.api.get("/api-docs/policy.schema.json").json() == schema
