"""The pages of policies and kill switches: what they show, who can change them, and how errors are reported."""

import html
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from appliance.console.pages.govern.rule_sentences import describe_rule
from appliance.testing.running import Running
from tests.api.resources import fresh
from tests.console.browser import Browser
from tests.console.conftest import PASSWORD

SignedIn = Callable[[str], Browser]
HOSTILE = "<script>alert(1)</script>"
RULE: dict[str, Any] = {
    "id": "large", "effect": "require_approval", "operations": ["order_*"], "when": {"input": {"total": {"_gt": 1000}}},
    "obligations": {"approvers": ["role:owner"], "ttl_seconds": 3600}, "reason": f"An owner looks. {HOSTILE}",
}  # fmt: skip


@pytest.fixture
def policy(acme: httpx.Client) -> Iterator[str]:
    """A draft in observe mode, removed afterwards so that it does not affect other tests."""
    name = fresh("page-policy")
    put_policy(acme, name)
    yield name
    acme.post(f"/api/v1/policies/{name}/deactivate").raise_for_status()
    acme.delete(f"/api/v1/policies/{name}").raise_for_status()


def put_policy(client: httpx.Client, name: str, **more: Any) -> None:
    client.put(f"/api/v1/policies/{name}", json={"mode": "observe", "rules": [RULE | more]}).raise_for_status()


def activate(client: httpx.Client, name: str) -> None:
    client.post(f"/api/v1/policies/{name}/activate", json={}).raise_for_status()


def show(browser: Browser, rest: str, tenant: str = "acme") -> httpx.Response:
    return browser.get(browser.at(tenant, f"/console/policies{rest}"))


def send(browser: Browser, rest: str, **form: str) -> httpx.Response:
    return browser.post(browser.at("acme", f"/console/policies{rest}"), form)


def digest_in(page: str) -> str:
    match = re.search(r'name="digest" value="([^"]+)"', page)
    assert match
    return match[1]


def test_a_tenant_without_policies_sees_an_explanation(signed_in: SignedIn, staff: Running) -> None:
    staff.user("owner@unruled.test", PASSWORD, "unruled", "owner")
    page = show(signed_in("owner@unruled.test"), "", "unruled").text
    assert "No policies yet" in page
    assert "input.total is above 1000" in page


def test_a_draft_is_read_activated_and_deactivated(owner: Browser, acme: httpx.Client, policy: str) -> None:
    page = show(owner, f"/{policy}").text
    for part in ("input.total is above 1000", "approval of role:owner", "the operation order_*", "but nothing is refused"):
        assert part in page
    assert HOSTILE not in page
    assert html.escape(HOSTILE) in page
    active = send(owner, f"/{policy}/activate", digest=digest_in(page), message="first of all")
    assert "Active version" in active.text
    assert "first of all" in active.text
    assert "draft not activated" not in show(owner, "").text.partition(policy)[2].partition("</tr>")[0]
    assert acme.get(f"/api/v1/policies/{policy}").json()["data"]["active_version"] == 1
    send(owner, f"/{policy}/deactivate")
    assert "active_version" not in acme.get(f"/api/v1/policies/{policy}").json()["data"]


def test_a_draft_shows_its_differences_from_the_active_version(owner: Browser, acme: httpx.Client, policy: str) -> None:
    activate(acme, policy)
    put_policy(acme, policy, effect="deny", obligations=None)
    page = html.unescape(show(owner, f"/{policy}").text)
    assert "<del>require_approval</del>" in page
    assert "<ins>deny</ins>" in page
    assert "It replaces version 1" in page


def test_only_the_displayed_draft_is_activated(owner: Browser, acme: httpx.Client, policy: str) -> None:
    read = digest_in(show(owner, f"/{policy}").text)
    put_policy(acme, policy, reason="Another one.")
    refused = send(owner, f"/{policy}/activate", digest=read)
    assert refused.status_code == 412
    assert send(owner, f"/{policy}/activate").status_code == 422
    assert "active_version" not in acme.get(f"/api/v1/policies/{policy}").json()["data"]


def test_an_older_version_can_be_reactivated(owner: Browser, acme: httpx.Client, policy: str) -> None:
    activate(acme, policy)
    put_policy(acme, policy, reason="Another one.")
    activate(acme, policy)
    page = show(owner, f"/{policy}/versions/1").text
    send(owner, f"/{policy}/activate", version="1", digest=digest_in(page))
    assert acme.get(f"/api/v1/policies/{policy}").json()["data"]["active_version"] == 1
    assert show(owner, f"/{policy}/versions/none").status_code == 404


def test_a_member_who_cannot_change_policies_sees_who_can(signed_in: SignedIn, acme: httpx.Client, policy: str) -> None:
    builder = signed_in("builder@acme.test")
    page = show(builder, f"/{policy}").text
    assert "Only owners of this tenant can activate policies" in page
    assert re.findall(r'<form method="post" action="([^"]+)"', page) == ["/console/sign-out"]
    digest = acme.get(f"/api/v1/policies/{policy}").json()["data"]["draft_digest"]
    for rest in (f"/{policy}/activate", f"/{policy}/deactivate", f"/{policy}/draft", "/-/new"):
        assert send(builder, rest, digest=digest, text="mode: observe").status_code == 403
    assert "active_version" not in acme.get(f"/api/v1/policies/{policy}").json()["data"]


def test_problems_of_a_policy_are_shown_at_their_line(owner: Browser, acme: httpx.Client) -> None:
    name = fresh("written")
    text = "mode: observe\nrules:\n  - id: one\n    effect: maybe\n    reason: <b>so</b>\n"
    wrong = send(owner, "/-/new", name=name, text=text)
    assert wrong.status_code == 422
    assert "line 4, <code>/rules/0/effect</code>" in wrong.text
    assert "effect: maybe\n    reason: &lt;b&gt;so" in wrong.text
    assert "line 1, <code>/</code>: column" in send(owner, "/-/new", name=name, text="mode: a: b").text
    assert send(owner, "/-/new", name=name, text=text.replace("maybe", "deny")).status_code == 200
    again = send(owner, "/-/new", name=name, text=text.replace("maybe", "allow"))
    assert again.status_code == 409
    assert acme.get(f"/api/v1/policies/{name}").json()["data"]["draft"]["rules"][0]["effect"] == "deny"
    acme.delete(f"/api/v1/policies/{name}").raise_for_status()


def test_a_concurrently_changed_draft_is_not_overwritten(owner: Browser, acme: httpx.Client, policy: str) -> None:
    read = digest_in(show(owner, f"/{policy}/draft").text)
    put_policy(acme, policy, reason="Another one.")
    text = "mode: observe\nrules: [{id: mine, effect: deny, reason: mine}]"
    late = send(owner, f"/{policy}/draft", digest=read, text=text)
    assert late.status_code == 412
    assert "id: mine" in late.text
    assert acme.get(f"/api/v1/policies/{policy}").json()["data"]["draft"]["rules"][0]["reason"] == "Another one."


def test_a_decision_is_explained_to_readers(signed_in: SignedIn, policy: str) -> None:
    viewer = signed_in("viewer@acme.test")
    form = {"operation": "order_new", "effect": "write", "input": '{"total": 1500}', "policy": policy}
    page = send(viewer, "/-/decide", **form, kind="agent", who="clerk").text
    assert 'tone-bad">deny' in page
    assert f"{policy}/large" in page
    assert 'tone-wait">require approval' in page
    small = send(viewer, "/-/decide", **(form | {"input": '{"total": 5}'})).text
    assert "no, <code>when</code> does not match" in small
    assert 'tone-good">allow' in small


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"input": "{"}, "The input is not JSON"),
        ({"input": "[]"}, "The input must be a JSON object"),
        ({"kind": "agent"}, "Enter the id of the agent"),
        ({"who": "nobody@acme.test"}, "No member of this tenant has this login"),
        ({"effect": "maybe"}, "Choose a value from the list"),
    ],
)
def test_an_invalid_question_is_explained(owner: Browser, form: dict[str, str], message: str) -> None:
    page = send(owner, "/-/decide", **form)
    assert page.status_code == 422
    assert message in page.text
    assert 'aria-invalid="true"' in page.text


def test_policies_of_other_tenants_are_not_found(signed_in: SignedIn, policy: str) -> None:
    stranger = signed_in("owner@globex.test")
    for rest in ("", "/draft", "/versions/1"):
        assert show(stranger, f"/{policy}{rest}", "globex").status_code == 404


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({}, {"Who": "anyone", "What": "anything"}),
        (
            {"subject": {"agents": ["a", "b"], "via": ["mcp"], "skills": ["s"], "tainted": False}, "effects": ["read"]},
            {
                "Who": "the agent a or b, through MCP, with the skill s loaded, without reading content from outside",
                "What": "reads",
            },
        ),
        (
            {"when": {"_or": [{"input": {"total": {"_between": [1, 2]}}}, {"subject": {"skills": {"_none": {"name": "x"}}}}]}},
            {"When": '(input.total is between 1 and 2 or no item of subject.skills matches (name is "x"))'},
        ),
        (
            {"obligations": {"needed": 2, "redact": ["/iban"], "cost_per_run": 0.5, "dry_run_first": True}},
            {
                "With": "approval of 2 of people who may approve; /iban hidden from the result; at most 0.5 US dollars per run; "
                "a preview of the same action first"
            },
        ),
    ],
)
def test_rules_are_described_in_sentences(rule: dict[str, Any], expected: dict[str, str]) -> None:
    sections = dict(describe_rule({"id": "r", "effect": "allow", "reason": "so"} | rule).sections)
    assert {name: sections[name] for name in expected} == expected


# -- kill switches


def switch(browser: Browser, way: str, **form: str) -> httpx.Response:
    return browser.post(browser.at("acme", f"/console/kill-switches/{way}"), form)


def list_switched_off(acme: httpx.Client) -> list[tuple[str, str]]:
    return [(row["kind"], row["name"]) for row in acme.get("/api/v1/kill-switches").json()["data"]]


def test_an_agent_is_switched_off_with_a_reason_and_on_again(owner: Browser, acme: httpx.Client) -> None:
    name = fresh("rogue")
    page = switch(owner, "off", kind="agent", name=name, reason=f"it orders {HOSTILE}", sure="yes").text
    assert name in page
    assert html.escape(HOSTILE) in page
    assert "owner@acme.test" in page
    assert ("agent", name) in list_switched_off(acme)
    assert name not in switch(owner, "on", kind="agent", name=name).text
    assert ("agent", name) not in list_switched_off(acme)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reason": " "}, "Enter a reason"),
        ({"sure": ""}, "Confirm with the checkbox"),
        ({"name": ""}, "Enter a name"),
        ({"kind": "tenant"}, "Leave the name empty"),
        ({"kind": "world"}, "Choose what to switch"),
        ({"kind": "integration"}, "There is no integration careful"),
    ],
)
def test_nothing_is_switched_off_by_mistake(owner: Browser, acme: httpx.Client, change: dict[str, str], message: str) -> None:
    before = list_switched_off(acme)
    page = switch(owner, "off", **({"kind": "agent", "name": "careful", "reason": "so", "sure": "yes"} | change))
    assert page.status_code == 422
    assert message in page.text
    assert list_switched_off(acme) == before


def test_a_member_who_cannot_switch_sees_who_can(signed_in: SignedIn, acme: httpx.Client) -> None:
    operator = signed_in("operator@acme.test")
    page = operator.get(operator.at("acme", "/console/kill-switches")).text
    assert "Only builders and owners of this tenant" in page
    assert re.findall(r'<form method="post" action="([^"]+)"', page) == ["/console/sign-out"]
    assert switch(operator, "off", kind="agent", name="a", reason="so", sure="yes").status_code == 403
    assert switch(operator, "on", kind="agent", name="a").status_code == 403
