"""Policies and facts for tests, short to write."""

from typing import Any

from appliance.governance.policies.compiled import Active, CompiledPolicies
from appliance.governance.policies.decision import Decision, Facts, ToolAction
from appliance.governance.policies.evaluation import decide
from appliance.governance.policies.language import parse_policy
from appliance.governance.subjects import SkillUsed, Subject

TOOL = "execute_tenant_integration"
AGENT = Subject("key:key_1", "agent", agent="clerk", run_id="run_1")
KEY = Subject("key:key_1", "rest")
BY_MCP = Subject("key:key_1", "mcp")


def rule(effect: str = "allow", **more: Any) -> dict[str, Any]:
    return {"id": more.pop("id", effect.replace("_", "-")), "effect": effect, "reason": more.pop("reason", "because"), **more}


def policy(*rules: dict[str, Any], mode: str = "enforce") -> dict[str, Any]:
    return {"mode": mode, "rules": list(rules)}


def compiled(**policies: dict[str, Any]) -> CompiledPolicies:
    parsed = [parse_policy(document, name) for name, document in policies.items()]
    return CompiledPolicies(Active(each.name, 1, each.digest(), each.document()) for each in parsed)


def action(operation: str = "book", effect: str = "write", **more: Any) -> ToolAction:
    given = {"integration": "erp", "host": "erp.example.com", "connector": "http 1.0", **more}
    return ToolAction(given.pop("tool", TOOL), effect, given.pop("input", {}), operation=operation, **given)  # type: ignore[arg-type]


def judged(subject: Subject, wanted: ToolAction, *rules: dict[str, Any], **others: dict[str, Any]) -> Decision:
    """By one enforcing policy `p` of these rules, and others."""
    policies = {**({"p": policy(*rules)} if rules else {}), **others}
    return decide(compiled(**policies), Facts(subject, wanted))


def tainted(subject: Subject, *sources: str) -> Subject:
    return Subject(subject.actor, subject.via, subject.agent, subject.run_id, subject.skills, sources or ("mail:inbox",))


def with_skills(subject: Subject, *skills: SkillUsed) -> Subject:
    return Subject(subject.actor, subject.via, subject.agent, subject.run_id, skills, subject.tainted_by)
