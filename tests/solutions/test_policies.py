"""Policies in a solution folder: what it says judges once it is applied; written back, pruned, and refused without the scope."""

from dataclasses import replace

import pytest

from appliance.core.errors import ScopeMissing
from appliance.core.pages import PageRequest
from appliance.governance import Subject
from appliance.governance.policies import PolicyService, ToolAction
from appliance.solutions.exporting import export_solution
from appliance.solutions.schemas import schema_files
from appliance.solutions.service import ApplyOptions, apply_solution, plan_solution
from tests.solutions.conftest import Place, make_solution, read
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


def verdict(place: Place) -> str:
    return PolicyService().decide(place.scope, CLERK, EXPORT).verdict


def summary(place: Place, text: str) -> str:
    return next(f"{each.action}: {each.summary}" for each in place.plan(with_policy(text)) if each.kind == "policy")


def test_what_the_folder_says_judges_once_it_is_applied(place: Place) -> None:
    assert summary(place, POLICY) == "create: 1 rule, enforce; activated as version 1"
    assert verdict(place) == "deny"
    place.apply(with_policy(), message="let it read")
    assert verdict(place) == "allow"
    assert PolicyService().get_version(place.scope, "clerk", 1).message == "let it read"
    assert actions_of(place.apply(with_policy()))["policy clerk"] == "unchanged"
    narrowed = POLICY.replace("effects: [read]", "effects: [write]").replace("enforce", "observe")
    assert summary(place, narrowed) == "update: changed mode, changed the rule read; activated as the next version"
    place.apply(with_policy(narrowed))
    assert verdict(place) == "deny"
    PolicyService().deactivate(place.scope, "clerk")
    assert summary(place, narrowed).startswith("update: 1 rule, observe; not active yet")
    PolicyService().activate(place.scope, "clerk", version=1)
    place.apply(with_policy())
    assert PolicyService().get_policy(place.scope, "clerk").draft["mode"] == "enforce"


def test_a_policy_is_written_back_as_it_judges(place: Place) -> None:
    place.apply(with_policy())
    PolicyService().save_draft(place.scope, "clerk", {"mode": "observe", "rules": [{"id": "x", "effect": "deny", "reason": "no"}]})
    for drafts, mode in ((False, "enforce"), (True, "observe")):
        files = export_solution(place.scope, place.tools.integrations, drafts=drafts)
        again = read({"solution.yaml": "name: x\n", "policies/clerk.yaml": files["policies/clerk.yaml"].decode()})
        assert (again.policies["clerk"].mode, again.policies["clerk"].name) == (mode, "clerk")
    reader = replace(place.scope, scopes=place.scope.scopes - {"policies.read"})
    with pytest.raises(ScopeMissing, match=r"policies\.read"):
        export_solution(reader, place.tools.integrations)


def test_only_who_may_change_policies_applies_a_change_of_one(place: Place) -> None:
    builder = replace(place.scope, scopes=place.scope.scopes - {"policies.write"})
    with pytest.raises(ScopeMissing, match=r"policies\.write"):
        plan_solution(builder, place.tools, read(with_policy()))
    assert PolicyService().list_policies(place.scope, PageRequest()).items == []
    place.apply(with_policy())
    changes = apply_solution(builder, place.tools, read(with_policy()))
    assert actions_of(changes)["policy clerk"] == "unchanged"
    with pytest.raises(ScopeMissing, match=r"policies\.write"):
        apply_solution(builder, place.tools, read(make_solution()), ApplyOptions(prune=True))
    assert verdict(place) == "allow"


def test_a_leftover_policy_is_pruned_and_judges_no_more(place: Place) -> None:
    place.apply(with_policy())
    assert actions_of(place.apply(make_solution()))["policy clerk"] == "leftover"
    assert verdict(place) == "allow"
    assert actions_of(place.apply(make_solution(), prune=True))["policy clerk"] == "delete"
    assert verdict(place) == "deny"


def test_a_problem_of_a_policy_is_reported_with_its_line() -> None:
    problems = problems_of(with_policy(POLICY.replace("effects: [read]", "effects: [reed]")))
    assert problems["policies/clerk.yaml"].startswith("policies/clerk.yaml:4: ")
    assert "/rules/0/effects/0 input should be 'read' or 'write'" in problems["policies/clerk.yaml"]


def test_an_empty_policy_is_refused_and_not_overlooked() -> None:
    assert "/mode this member is required" in problems_of(with_policy("{}\n"))["policies/clerk.yaml"]


def test_editors_get_the_schema_of_a_policy(place: Place) -> None:
    schema = schema_files(place.tools.integrations.registry)["policy.schema.json"]
    assert (schema["title"], schema["required"]) == ("policy", ["mode", "rules"])
    assert place.api.get("/api-docs/policy.schema.json").json() == schema
