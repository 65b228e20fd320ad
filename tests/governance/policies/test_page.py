"""What docs/policies.md shows, holds: its policy is valid, and its decisions are those it tells."""

import json
import re

import pytest

from appliance.conditions import GROUPS, OPERATORS
from appliance.connectors.contract import EFFECTS
from appliance.core import yaml12
from appliance.governance.policies.compiled import record_of
from appliance.governance.policies.decision import Facts, ToolAction
from appliance.governance.policies.evaluation import decide
from appliance.governance.policies.language import MAX_BYTES, MAX_RULES, Rule
from appliance.governance.policies.service import MAX_ACTIVE_RULES, MAX_POLICIES
from appliance.governance.subjects import SkillUsed, Subject
from tests.architecture.source_tree import ROOT
from tests.governance.policies.facts import compile_policies

PAGE = (ROOT / "docs" / "policies.md").read_text("utf-8")
POLICIES = {
    name: yaml12.load(text) for name, text in re.findall(r"```yaml\n# policies/([a-z-]+)\.yaml\n(.*?)```", PAGE, re.DOTALL)
}
DECISIONS = re.findall(r"```json\n(.*?)```\n\nanswers `(\w+)` by `([a-z/-]+)`", PAGE, re.DOTALL)


@pytest.mark.parametrize(("facts_json", "verdict", "rule"), DECISIONS, ids=[verdict for _, verdict, _ in DECISIONS])
def test_the_decisions_of_the_page_are_made(facts_json: str, verdict: str, rule: str) -> None:
    facts = json.loads(facts_json)
    subject = facts["subject"]
    skills = tuple(SkillUsed(each["name"], "sha256:aa", each["trusted"]) for each in subject.pop("skills", ()))
    caller = Subject("key:k", skills=skills, tainted_by=tuple(subject.pop("tainted_by", ())), **subject)
    action = ToolAction("execute_tenant_integration", **{"input": {}, **facts["action"]})
    assert action.effect in EFFECTS
    decision = decide(compile_policies(**POLICIES), Facts(caller, action))
    assert (decision.verdict, decision.rules) == (verdict, (rule,))


def test_the_page_shows_policies_and_decisions() -> None:
    assert (set(POLICIES), len(DECISIONS)) == ({"erp"}, PAGE.count("```json"))


def test_the_page_names_every_member_and_the_limits() -> None:
    members = set(Rule.model_fields) - {"id"}
    assert [name for name in members if f"`{name}`" not in PAGE] == []
    assert [name for name in (*OPERATORS, *GROUPS) if name not in PAGE] == []
    known = record_of(Facts(Subject("key:k", "rest"), ToolAction("x", "read", {})))
    assert f"`subject` has `{' '.join(known['subject'])}`" in PAGE.replace("\n", " ")
    assert f"`action` has `{' '.join(known['action'])}`" in PAGE.replace("\n", " ")
    assert f"{MAX_RULES} rules and {MAX_BYTES >> 10} KiB each, {MAX_POLICIES} policies" in PAGE
    assert f"{MAX_ACTIVE_RULES:,} active rules" in PAGE
