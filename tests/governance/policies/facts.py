"""Short constructors for policies and facts."""

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


def rule(effect: str = "allow", **fields: Any) -> dict[str, Any]:
    return {"id": fields.pop("id", effect.replace("_", "-")), "effect": effect, "reason": fields.pop("reason", "because"), **fields}


def policy(*rules: dict[str, Any], mode: str = "enforce") -> dict[str, Any]:
    return {"mode": mode, "rules": list(rules)}


def compile_policies(**policies: dict[str, Any]) -> CompiledPolicies:
    parsed = [parse_policy(document, name) for name, document in policies.items()]
    return CompiledPolicies(Active(each.name, 1, each.digest(), each.document()) for each in parsed)


def action(operation: str = "book", effect: str = "write", **overrides: Any) -> ToolAction:
    fields = {"integration": "erp", "host": "erp.example.com", "connector": "http 1.0", **overrides}
    return ToolAction(fields.pop("tool", TOOL), effect, fields.pop("input", {}), operation=operation, **fields)  # type: ignore[arg-type]


def evaluate(subject: Subject, action: ToolAction, *rules: dict[str, Any], **others: dict[str, Any]) -> Decision:
    """The decision of one enforcing policy `p` with these rules, and of other policies."""
    policies = {**({"p": policy(*rules)} if rules else {}), **others}
    return decide(compile_policies(**policies), Facts(subject, action))


def with_taint(subject: Subject, *sources: str) -> Subject:
    return Subject(subject.actor, subject.via, subject.agent, subject.run_id, subject.skills, sources or ("mail:inbox",))


def with_skills(subject: Subject, *skills: SkillUsed) -> Subject:
    return Subject(subject.actor, subject.via, subject.agent, subject.run_id, skills, subject.tainted_by)
