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


def refused(document: Any, name: str = "erp") -> list[tuple[str, str]]:
    with pytest.raises(ValidationFailed) as found:
        parse_policy(document, name)
    return [(detail.pointer, detail.message) for detail in found.value.details]


def test_everything_a_policy_can_say_is_read_and_written_back() -> None:
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
def test_what_is_wrong_is_pointed_at_with_what_to_do(changes: dict[str, Any], pointer: str, message: str) -> None:
    found = refused({**policy(rule()), **changes})
    assert pointer in [at for at, _ in found]
    assert message in next(told for at, told in found if at == pointer)


def test_every_finding_is_told_at_once() -> None:
    found = refused({"mode": "strict", "rules": [{"id": "x", "effect": "forbid"}, {}]})
    assert [at for at, _ in found] == [
        "/mode", "/rules/0/effect", "/rules/0/reason", "/rules/1/id", "/rules/1/effect", "/rules/1/reason",
    ]  # fmt: skip


def test_a_policy_has_a_name_and_an_end() -> None:
    assert refused(policy(rule()), "Erp")[0][0] == "/name"
    assert refused([])[0] == ("", "a policy must be an object with mode and rules")
    many = [rule(id=f"r{number}") for number in range(MAX_RULES + 1)]
    assert refused(policy(*many))[0][0] == "/rules"


def test_the_schema_knows_what_the_language_knows() -> None:
    schema = policy_schema()
    assert schema["required"] == ["mode", "rules"]
    assert set(schema["properties"]) == {"name", "description", "mode", "rules"}
    assert schema["additionalProperties"] is False
    assert set(schema["$defs"]["Rule"]["properties"]) >= {"subject", "when", "obligations", "hosts"}
