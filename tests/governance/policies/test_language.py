"""What a policy may say, and how it is told what is wrong."""

from typing import Any

import pytest

from appliance.core.errors import ValidationFailed
from appliance.governance.policies.language import MAX_BYTES, MAX_RULES, parse_policy, policy_schema
from tests.governance.policies.facts import policy, rule

FULL = {
    "name": "erp", "description": "What may reach the ERP.", "mode": "enforce",
    "rules": [
        {
            "id": "large-orders", "effect": "require_approval", "reason": "A large order is looked at by an owner.",
            "subject": {
                "kinds": ["agent", "key"], "actors": ["key:*"], "agents": ["clerk"], "skills": ["sha256:ab*", "orders"],
                "via": ["agent", "mcp"], "tainted": False,
            },
            "tools": ["execute_tenant_integration"], "integrations": ["erp"], "operations": ["post_*"], "effects": ["write"],
            "hosts": ["*.example.com"], "when": {"input": {"total": {"_gt": 1000}}, "subject": {"skills": {"name": "orders"}}},
            "obligations": {
                "approvers": ["role:owner", "user:Ann"], "needed": 2, "ttl_seconds": 3600, "redact": ["/customer/iban"],
                "calls_per_hour": 100, "calls_per_run": 5, "cost_per_run": 2, "dry_run_first": True,
            },
        },
    ],
}  # fmt: skip


def find_problems(document: Any, name: str = "erp") -> list[tuple[str, str]]:
    with pytest.raises(ValidationFailed) as caught:
        parse_policy(document, name)
    return [(detail.pointer, detail.message) for detail in caught.value.details]


def test_a_full_policy_round_trips() -> None:
    parsed = parse_policy(FULL, "erp")
    assert parsed.document()["rules"][0]["obligations"]["approvers"] == ["role:owner", "user:ann"]
    assert parse_policy(parsed.document(), "erp") == parsed
    shuffled = {name: FULL[name] for name in reversed(FULL)}
    assert parse_policy(shuffled, "erp").digest() == parsed.digest()
    assert parse_policy({**FULL, "mode": "observe"}, "erp").digest() != parsed.digest()
    assert parse_policy({**FULL, "description": ""}, "erp").document().keys() == {"name", "mode", "rules"}


@pytest.mark.parametrize(
    ("changes", "pointer", "message"),
    [
        ({"rule": []}, "/rule", "valid members are name, description, mode, rules"),
        ({"mode": "strict"}, "/mode", "'observe' or 'enforce'"),
        ({"rules": []}, "/rules", "omit the member"),
        ({"rules": [rule(tool=["x"])]}, "/rules/0/tool", "valid members are id, effect, subject, tools"),
        ({"rules": [rule(subject={"role": "x"})]}, "/rules/0/subject/role", "valid members are kinds, credentials, actors"),
        ({"rules": [rule("deny", obligations={})]}, "/rules/0", "cannot have obligations"),
        ({"rules": [rule(obligations={"calls": 1})]}, "/rules/0/obligations/calls", "valid members are approvers"),
        ({"rules": [rule(obligations={"approvers": ["ann"]})]}, "/rules/0/obligations/approvers/0", "user:<login>"),
        ({"rules": [rule(obligations={"approvers": ["user:a"], "needed": 2})]}, "/rules/0/obligations", "name more, or a role"),
        ({"rules": [rule(obligations={"redact": ["iban"]})]}, "/rules/0/obligations/redact/0", "JSON pointer"),
        ({"rules": [rule(obligations={"calls_per_run": "5"})]}, "/rules/0/obligations/calls_per_run", "valid integer"),
        ({"rules": [rule(tools=[])]}, "/rules/0/tools", "omit the member to match anything"),
        ({"rules": [rule(tools="*")]}, "/rules/0/tools", "valid list"),
        ({"rules": [rule(hosts=["a b"])]}, "/rules/0/hosts/0", "cannot contain spaces"),
        ({"rules": [rule(operations=["*".join("abcdefghij")])]}, "/rules/0/operations/0", "at most 8 stars"),
        ({"rules": [rule(effects=["idempotent"])]}, "/rules/0/effects/0", "'read' or 'write'"),
        ({"rules": [rule(id="Big")]}, "/rules/0/id", "lower-case letters"),
        ({"rules": [rule(id="a--b")]}, "/rules/0/id", "single hyphens"),
        ({"rules": [rule(), rule()]}, "/rules/1/id", "two rules with the id 'allow'"),
        ({"rules": [rule(reason="")]}, "/rules/0/reason", "at least 1 character"),
        ({"rules": [rule(when={"total": 1})]}, "/rules/0/when/total", "use one of action, input, subject"),
        ({"rules": [rule(when={"input": {"total": {"gt": 1, "_eq": 1}}})]}, "/rules/0/when/input/total/_eq", "is not allowed here"),
        ({"rules": [rule(when={"subject": {"role": "x"}})]}, "/rules/0/when/subject/role", "use one of actor, agent"),
        ({"rules": [rule(when={"input": 5})]}, "/rules/0/when", "compare what is inside it"),
        ({"rules": [rule(when={"input": {"owner": "$actor.id"}})]}, "/rules/0/when", "cannot use $actor"),
        ({"rules": [rule(when={"input": {"owner": {"_in": "$request.ids"}}})]}, "/rules/0/when", "cannot use $actor"),
        ({"name": "other"}, "/name", "instead of 'erp'"),
        ({"description": "x" * MAX_BYTES}, "", "256 KiB"),
        ({"rules": [rule(when={"input": {"x": float("nan")}})]}, "", "not JSON"),
    ],
)
def test_a_problem_has_its_pointer_and_a_hint(changes: dict[str, Any], pointer: str, message: str) -> None:
    problems = find_problems({**policy(rule()), **changes})
    assert pointer in [at for at, _ in problems]
    assert message in next(text for at, text in problems if at == pointer)


def test_all_problems_are_reported_at_once() -> None:
    problems = find_problems({"mode": "strict", "rules": [{"id": "x", "effect": "forbid"}, {}]})
    assert [at for at, _ in problems] == [
        "/mode", "/rules/0/effect", "/rules/0/reason", "/rules/1/id", "/rules/1/effect", "/rules/1/reason",
    ]  # fmt: skip


def test_a_policy_needs_a_valid_name_and_has_a_size_limit() -> None:
    assert find_problems(policy(rule()), "Erp")[0][0] == "/name"
    assert find_problems([])[0] == ("", "a policy must be an object with mode and rules")
    many = [rule(id=f"r{number}") for number in range(MAX_RULES + 1)]
    assert find_problems(policy(*many))[0][0] == "/rules"


def test_the_schema_matches_the_language() -> None:
    schema = policy_schema()
    assert schema["required"] == ["mode", "rules"]
    assert set(schema["properties"]) == {"name", "description", "mode", "rules"}
    assert schema["additionalProperties"] is False
    assert set(schema["$defs"]["Rule"]["properties"]) >= {"subject", "when", "obligations", "hosts"}
