"""What policies decide: the stricter wins, agents may nothing by default, and doubt is a no."""

from dataclasses import replace
from typing import Any

import pytest

from appliance.governance.policies.compiled import Active, CompiledPolicies, name_matcher
from appliance.governance.policies.decision import Facts, Obligations, ToolAction
from appliance.governance.policies.evaluation import decide
from appliance.governance.subjects import SkillUsed, Subject
from tests.governance.policies.facts import (
    AGENT,
    BY_MCP,
    KEY,
    action,
    compile_policies,
    evaluate,
    policy,
    rule,
    with_skills,
    with_taint,
)

READ, WRITE, IDEMPOTENT = action("get", "read"), action(), action("put", "idempotent")
TRUSTED, FOREIGN = SkillUsed("orders", "sha256:aa", True), SkillUsed("mail", "sha256:bb")


@pytest.mark.parametrize(
    ("subject", "requested", "verdict"),
    [
        (AGENT, READ, "deny"),
        (Subject("user:u", "agent"), READ, "deny"),
        (Subject("key:k", "mcp", agent="clerk"), READ, "deny"),
        (BY_MCP, READ, "allow"),
        (BY_MCP, WRITE, "require_approval"),
        (BY_MCP, IDEMPOTENT, "require_approval"),
        (KEY, WRITE, "allow"),
        (Subject("execution:exe_1", "process"), WRITE, "allow"),
        (with_taint(Subject("execution:exe_1", "process")), READ, "allow"),
        (with_taint(Subject("execution:exe_1", "process")), WRITE, "require_approval"),
        (with_taint(BY_MCP), READ, "allow"),
    ],
)
def test_without_a_rule(subject: Subject, requested: ToolAction, verdict: str) -> None:
    decision = evaluate(subject, requested)
    assert (decision.verdict, decision.rules) == (verdict, ())
    assert decision.reasons
    assert evaluate(subject, requested, rule("deny", tools=["read_logs"])).verdict == verdict  # a rule about something else


def test_the_stricter_rule_wins_whatever_the_order_and_the_policy() -> None:
    allow, ask, deny = rule(reason="fine"), rule("require_approval", reason="ask"), rule("deny", reason="no")
    for one, other, verdict, reason in (
        (allow, ask, "require_approval", "ask"),
        (ask, deny, "deny", "no"),
        (deny, allow, "deny", "no"),
    ):
        for first, second in ((one, other), (other, one)):
            decision = evaluate(AGENT, WRITE, first, q=policy(second))
            assert decision.verdict == verdict
            assert [reason_text.partition(": ")[2] for reason_text in decision.reasons] == [reason]
    for documents in ({"p": policy(allow), "q": policy(allow)}, {"q": policy(allow), "p": policy(allow)}):
        assert evaluate(AGENT, WRITE, **documents).rules == ("p/allow", "q/allow")


@pytest.mark.parametrize(
    ("test", "fits", "fits_not"),
    [
        ({"subject": {"kinds": ["agent"]}}, (AGENT, WRITE), (KEY, WRITE)),
        ({"subject": {"via": ["rest"]}}, (KEY, WRITE), (BY_MCP, WRITE)),
        ({"subject": {"actors": ["key:*"]}}, (KEY, WRITE), (Subject("user:u", "rest"), WRITE)),
        ({"subject": {"agents": ["cl*"]}}, (AGENT, WRITE), (KEY, WRITE)),
        ({"subject": {"tainted": True}}, (with_taint(AGENT), WRITE), (AGENT, WRITE)),
        ({"subject": {"tainted": False}}, (AGENT, WRITE), (with_taint(AGENT), WRITE)),
        ({"subject": {"skills": ["mail"]}}, (with_skills(AGENT, TRUSTED, FOREIGN), WRITE), (with_skills(AGENT, TRUSTED), WRITE)),
        ({"tools": ["execute_*"]}, (KEY, WRITE), (KEY, action(tool="read_logs"))),
        ({"integrations": ["erp"]}, (KEY, WRITE), (KEY, action(integration="erp-test"))),
        ({"operations": ["b*k"]}, (KEY, WRITE), (KEY, READ)),
        ({"effects": ["write"]}, (KEY, IDEMPOTENT), (KEY, READ)),
        ({"effects": ["read"]}, (KEY, READ), (KEY, IDEMPOTENT)),
        ({"hosts": ["*.Example.com"]}, (KEY, action(host="ERP.example.com.")), (KEY, action(host="example.com.evil.org"))),
        ({"when": {"input": {"total": {"_gt": 10}}}}, (KEY, action(input={"total": "11.5"})), (KEY, action(input={"total": 9}))),
        ({"when": {"subject": {"skills": {"name": "mail"}}}}, (with_skills(KEY, FOREIGN), WRITE), (KEY, WRITE)),
        ({"when": {"action": {"credential": "secret:erp"}}}, (KEY, action(credential="secret:erp")), (KEY, WRITE)),
        ({"when": {"action": {"effect": "write"}}}, (KEY, IDEMPOTENT), (KEY, READ)),
    ],
)
def test_a_rule_is_about_what_it_names(test: dict[str, Any], fits: Any, fits_not: Any) -> None:
    denying = rule("deny", **test)
    assert evaluate(*fits, denying).rules == ("p/deny",)
    assert evaluate(*fits_not, denying).rules == ()


def test_an_allowance_for_skills_is_for_runs_that_loaded_nothing_else() -> None:
    by_name, by_digest = rule(subject={"skills": ["orders", "mail"]}), rule(subject={"skills": ["sha256:aa", "sha256:bb"]})
    other = SkillUsed("other", "sha256:cc", True)
    for allowing, skills, verdict in (
        (by_name, (TRUSTED,), "allow"),
        (by_name, (), "deny"),
        (by_name, (TRUSTED, FOREIGN), "deny"),  # nobody trusts that one
        (by_digest, (TRUSTED, FOREIGN), "allow"),
        (by_digest, (TRUSTED, other), "deny"),
    ):
        assert evaluate(with_skills(AGENT, *skills), WRITE, allowing).verdict == verdict


def test_an_unknown_host_is_never_an_allowed_one() -> None:
    unknown_host, inside = action(host=""), action(host="", integration="", tool="write_entities")
    assert evaluate(AGENT, unknown_host, rule(hosts=["*"])).verdict == "deny"
    assert evaluate(KEY, unknown_host, rule("deny", hosts=["evil.org"])).verdict == "deny"
    assert evaluate(KEY, inside, rule("deny", hosts=["evil.org"])).verdict == "allow"


def test_every_one_of_several_hosts_counts_and_no_port_does() -> None:
    with_port, both = action(host="erp.example.com:8443"), action(host="erp.example.com, evil.org:443")
    allowing, denying = rule(hosts=["*.example.com"]), rule("deny", hosts=["evil.org"])
    assert [evaluate(AGENT, each, allowing).verdict for each in (with_port, both)] == ["allow", "deny"]
    assert [evaluate(KEY, each, denying).verdict for each in (with_port, both)] == ["allow", "deny"]
    assert evaluate(AGENT, with_port, rule(hosts=["erp.example.com:8443"])).verdict == "allow"
    assert evaluate(AGENT, with_port, rule(hosts=["erp.example.com:443"])).verdict == "deny"
    assert evaluate(AGENT, action(host="[::1]:80"), rule(hosts=["[::1]"])).verdict == "allow"


def test_what_cannot_be_evaluated_is_denied_with_its_reason() -> None:
    allowing = rule(id="small", when={"input": {"total": {"_lt": 100}}})
    decision = evaluate(KEY, action(input={"total": ["5"]}), allowing)
    assert (decision.verdict, decision.rules) == ("deny", ("p/small",))
    assert "p/small could not be evaluated: total: cannot order a list and a number" in decision.reasons[0]
    watched = evaluate(KEY, action(input={"total": ["5"]}), q=policy(allowing, mode="observe"))
    assert (watched.verdict, watched.would_be, watched.would_be_rules) == ("allow", "deny", ("q/small",))
    assert evaluate(KEY, action("get", input={"total": ["5"]}), {**allowing, "operations": ["book"]}).verdict == "allow"


def test_a_bug_in_a_rule_denies_too(monkeypatch: pytest.MonkeyPatch) -> None:
    policies = compile_policies(p=policy(rule(when={"input": {"a": 1}})))

    def broken(record: Any) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(policies, "rules", [_with_when(each, broken) for each in policies.rules])
    decision = decide(policies, Facts(KEY, WRITE))
    assert (decision.verdict, "ZeroDivisionError" in decision.reasons[0]) == ("deny", True)


def _with_when(rule_: Any, when: Any) -> Any:
    return replace(rule_, when=when)


def test_a_version_that_this_release_cannot_read_denies_everything() -> None:
    for mode, verdict in (("enforce", "deny"), ("observe", "allow"), ("new", "deny")):
        decision = decide(CompiledPolicies([Active("old", 3, "sha256:1", {"mode": mode, "rules": "?"})]), Facts(KEY, READ))
        assert decision.verdict == verdict
    assert "version 3 of it cannot be read" in decision.reasons[0]


def test_a_write_of_a_tainted_run_needs_a_person_unless_the_rule_speaks_of_tainted_runs() -> None:
    run = with_taint(AGENT, "mail:inbox")
    decision = evaluate(run, WRITE, rule(obligations={"redact": ["/iban"], "approvers": ["role:owner"]}))
    assert (decision.verdict, decision.rules) == ("require_approval", ("p/allow",))
    assert "mail:inbox" in decision.reasons[0]
    assert decision.obligations == Obligations(approvers=("role:owner",), redact=("/iban",))
    assert evaluate(run, READ, rule()).verdict == "allow"
    assert evaluate(run, IDEMPOTENT, rule()).verdict == "require_approval"
    assert evaluate(run, WRITE, rule(), rule(id="knowing", subject={"tainted": True})).verdict == "allow"
    assert evaluate(run, WRITE, rule(subject={"tainted": True}), q=policy(rule("require_approval"))).verdict == "require_approval"


def test_obligations_add_up_to_the_stricter() -> None:
    one = rule(obligations={"needed": 1, "ttl_seconds": 7 * 86_400, "redact": ["/b"], "calls_per_hour": 10, "cost_per_run": 2})
    other = rule("require_approval", obligations={
        "approvers": ["role:builder", "user:ann"], "needed": 2, "ttl_seconds": 3 * 86_400, "redact": ["/a", "/b"],
        "calls_per_hour": 5, "calls_per_run": 3, "dry_run_first": True,
    })  # fmt: skip
    third = rule("require_approval", id="third", obligations={"approvers": ["role:owner", "user:ann", "user:bob"]})
    assert evaluate(AGENT, WRITE, one, other, third).obligations == Obligations(
        ("role:owner", "user:ann"), 2, 3 * 86_400, ("/a", "/b"), 5, 3, 2.0, True
    )
    assert evaluate(AGENT, WRITE, rule("deny"), one).obligations == Obligations()
    assert evaluate(BY_MCP, WRITE).obligations == Obligations()


def test_approvers_that_have_nobody_in_common_approve_nothing() -> None:
    ann, owner = ({"approvers": [name]} for name in ("user:ann", "role:owner"))
    decision = evaluate(
        AGENT, WRITE, rule("require_approval", obligations=ann), q=policy(rule("require_approval", obligations=owner))
    )
    assert (decision.verdict, decision.rules) == ("deny", ("p/require-approval", "q/require-approval"))
    assert "name different approvers" in decision.reasons[0]
    assert evaluate(AGENT, WRITE, rule(obligations=ann), q=policy(rule(obligations=owner))).verdict == "allow"


def test_a_policy_that_observes_decides_nothing_and_says_what_it_would_have() -> None:
    watching = policy(rule("deny"), rule("require_approval"), mode="observe")
    decision = evaluate(AGENT, WRITE, rule(), q=watching)
    assert (decision.verdict, decision.rules, decision.obligations) == ("allow", ("p/allow",), Obligations())
    assert (decision.would_be, decision.would_be_rules) == ("deny", ("q/deny",))
    same = evaluate(KEY, WRITE, q=policy(rule(), mode="observe"))
    assert (same.verdict, same.would_be, same.would_be_rules) == ("allow", None, ())
    opened = evaluate(AGENT, WRITE, q=policy(rule(), mode="observe"))
    assert (opened.verdict, opened.would_be, opened.would_be_rules) == ("deny", "allow", ("q/allow",))


def test_the_version_names_the_set_of_policies_and_nothing_else() -> None:
    one, other = policy(rule()), policy(rule("deny"))
    assert compile_policies(a=one, b=other).version == compile_policies(b=other, a=one).version
    versions = {compile_policies().version, compile_policies(a=one).version, compile_policies(b=one).version, compile_policies(
        a=one, b=other
    ).version}
    versions |= {
        CompiledPolicies([Active("a", 2, "sha256:x", one)]).version,
        CompiledPolicies([Active("a", 2, "sha256:y", one)]).version,
    }
    assert len(versions) == 6
    assert evaluate(KEY, READ, rule()).version == compile_policies(p=policy(rule())).version


@pytest.mark.parametrize(
    ("glob", "fits", "fits_not"),
    [
        ("a*", "a", "b"), ("*", "", None), ("**", "x", None), ("a*c", "abc", "ab"), ("a*a", "aba", "a"),
        ("*b*b*", "abxb", "axb"), ("a.c", "a.c", "abc"), ("*[x]", "a[x]", "ax"), ("a*b*c", "abc", "acb"), ("ab*ba", "abba", "aba"),
    ],
)  # fmt: skip
def test_a_star_stands_for_any_characters_and_everything_else_for_itself(glob: str, fits: str, fits_not: str | None) -> None:
    assert name_matcher([glob])(fits)
    assert fits_not is None or not name_matcher([glob, "other"])(fits_not)
    assert name_matcher([glob, "other"])("other")


def test_a_pattern_costs_time_in_proportion_to_the_name_only() -> None:
    assert not name_matcher(["a*a*a*a*a*a*a*a*b"])("a" * 200_000)


def test_what_a_skill_was_not_granted_asks_a_person() -> None:
    everything, for_orders = rule(), rule(subject={"skills": ["orders"]})
    for granted, allowing, requested, verdict in (
        (("execute_tenant_integration",), everything, WRITE, "allow"),
        (("read_logs",), everything, WRITE, "require_approval"),
        ((), everything, WRITE, "require_approval"),
        ((), everything, READ, "allow"),
        ((), for_orders, WRITE, "allow"),
        (("execute_tenant_integration",), rule("deny"), WRITE, "deny"),
    ):
        decision = evaluate(with_skills(AGENT, replace(TRUSTED, granted=granted)), requested, allowing)
        assert decision.verdict == verdict, (granted, decision)
        assert ("not granted to the skill orders" in decision.reasons[0]) == (verdict == "require_approval")
    both = (replace(TRUSTED, granted=("execute_tenant_integration",)), SkillUsed("mail", "sha256:bb", True, ()))
    assert evaluate(with_skills(AGENT, *both), WRITE, everything).verdict == "require_approval"
