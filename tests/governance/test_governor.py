"""The governor enforces the tenant's rules; an approved action is done once, exactly as approved."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from appliance.core.database import db
from appliance.core.errors import ApplianceError, ApprovalRequired, BudgetExceeded, PolicyDenied
from appliance.governance import kill_switches
from appliance.governance.approvals.action_approvals import ActionApprovals
from appliance.governance.approvals.approvals import Approval, get_approval
from appliance.governance.executor.polling import PollRequest
from appliance.governance.executor.requests import ActionFailed, ActionRequest
from appliance.governance.governor import ActionNeedsApproval
from appliance.governance.subjects import Subject
from appliance.integrations import IntegrationSpec, Origin, OutcomeUnknown
from appliance.integrations.models import CallRow
from tests.governance.asking import TenantFixture
from tests.governance.ruling import ASK_FOR_WRITES, DENY_WRITES, make_governor, put_rules
from tests.integrations.world import Ledger, World

PAYLOAD = {"amount": 7, "note": "for the roof"}


def expect_approval_needed(world: World, **options: Any) -> ActionNeedsApproval:
    """The refusal of a call that nobody has approved."""
    with pytest.raises(ActionNeedsApproval) as caught:
        world.executor.execute(world.one, world.request(input=PAYLOAD, **options))
    return caught.value


def ask(world: World, refusal: ActionNeedsApproval) -> Approval:
    permit = refusal.permit
    return ActionApprovals(world.sealer).request_action(permit.scope, permit.subject, permit.action, permit.decision)


def obtain_approval(world: World, refusal: ActionNeedsApproval) -> str:
    """The id of an approval that a person of the tenant has given."""
    tenant, approval = TenantFixture(world.one), ask(world, refusal)
    tenant.person("eve", "operator", approver=True)
    return tenant.decide("eve", approval).id


def audit_fields(world: World, action: str) -> list[Mapping[str, Any]]:
    rows = db.rows("SELECT fields FROM audit_entry WHERE tenant_id = 'one' AND action = ? ORDER BY seq", (action,))
    return [db.JsonField().python_value(row[0]) for row in rows]


def expect_refusal(world: World, request: ActionRequest, kind: type[ApplianceError] = PolicyDenied) -> ApplianceError:
    with pytest.raises(kind) as caught:
        world.executor.execute(world.one, request)
    return caught.value


def rows(world: World) -> list[CallRow]:
    return list(world.one.select(CallRow).order_by(CallRow.created_at))


# Approvals


def test_an_action_that_needs_approval_is_not_sent_and_names_the_next_step(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    refusal = expect_approval_needed(world)
    details = refusal.extra
    assert (refusal.code, details["rules"], details["verdict"]) == ("approval_required", ["gate/ask"], "require_approval")
    assert len(refusal.extra["action_digest"]) == 64
    assert "approval_id" in refusal.extra["next"]
    assert Ledger.booked == []
    [entry] = audit_fields(world, "policy.require_approval")
    assert (entry["action_digest"], entry["actor"], entry["via"]) == (refusal.extra["action_digest"], "key:test", "rest")
    assert (entry["rules"], entry["verdict"]) == (["gate/ask"], "require_approval")
    assert "somebody must look" in entry["reasons"][0]
    world.executor.execute(world.one, world.request("look"))
    world.ledger(world.two)
    world.executor.execute(world.two, world.request(input=PAYLOAD))
    assert [each[0] for each in Ledger.booked] == ["look", "book"]


def test_an_approved_action_is_done_once(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    approval_id = obtain_approval(world, expect_approval_needed(world))
    request = world.request(input=PAYLOAD, approval_id=approval_id)
    assert world.executor.execute(world.one, request).status == "executed"
    assert expect_refusal(world, request).extra["reason"] == "used"
    assert [each[2] for each in Ledger.booked] == [PAYLOAD]
    [row] = rows(world)
    assert (row.approval_id, row.decision["rules"], row.decision["verdict"]) == (approval_id, ["gate/ask"], "require_approval")
    assert [each["by"] for each in audit_fields(world, "approval.use")] == [f"call:{row.id}"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"input": {**PAYLOAD, "amount": 8}}, "digest_differs"), ({"subject": Subject("key:other", "rest")}, "digest_differs")],
)
def test_another_action_than_the_approved_one_is_refused(world: World, change: dict[str, Any], reason: str) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    approval_id = obtain_approval(world, expect_approval_needed(world))
    request = world.request(**{"input": PAYLOAD, "approval_id": approval_id, **change})
    assert expect_refusal(world, request).extra["reason"] == reason
    assert audit_fields(world, "approval.refuse")[-1]["reason"] == reason
    assert (Ledger.booked, rows(world)) == ([], [])


def test_new_settings_and_policies_invalidate_an_approval(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    first, second = obtain_approval(world, expect_approval_needed(world)), ask(world, expect_approval_needed(world))
    world.integrations.replace_integration(world.one, "books", IntegrationSpec("ledger", {"token": "tok-other-secret"}))
    changed = expect_refusal(world, world.request(input=PAYLOAD, approval_id=first))
    assert (changed.extra["reason"], changed.extra["changed"]) == ("digest_differs", ["credential"])
    put_rules(world.one, {**ASK_FOR_WRITES, "reason": "two must look"})
    assert "policy" in expect_refusal(world, world.request(input=PAYLOAD, approval_id=second.id)).extra["changed"]
    assert Ledger.booked == []


def test_a_repeated_key_returns_the_recorded_answer(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    approval_id = obtain_approval(world, expect_approval_needed(world, idempotency_key="k"))
    request = world.request(input=PAYLOAD, approval_id=approval_id, idempotency_key="k")
    first = world.executor.execute(world.one, request)
    assert world.executor.execute(world.one, request).status == "recorded"
    repeated = world.executor.execute(world.one, world.request(input=PAYLOAD, idempotency_key="k"))
    assert (repeated.status, repeated.output, repeated.call_id) == ("recorded", first.output, first.call_id)
    assert len(Ledger.booked) == len(audit_fields(world, "approval.use")) == 1


def test_a_call_that_was_not_done_is_sent_again_under_its_approval(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    payload = {"do": "TransientError not_done"}
    with pytest.raises(ActionNeedsApproval) as caught:
        world.executor.execute(world.one, world.request(input=payload, idempotency_key="k"))
    approval_id = obtain_approval(world, caught.value)
    request = world.request(input=payload, idempotency_key="k", approval_id=approval_id)
    for each in (request, world.request(input=payload, idempotency_key="k")):
        expect_refusal(world, each, ApplianceError)
    assert [(each[0], each[1]) for each in Ledger.booked] == [("book", "k")] * 2
    assert len(audit_fields(world, "approval.use")) == 1
    put_rules(world.one, {**ASK_FOR_WRITES, "reason": "not like that"})
    expect_refusal(world, world.request(input=payload, idempotency_key="k"), ApprovalRequired)
    assert len(Ledger.booked) == 2


@pytest.mark.parametrize("change", ["policies", "subject", "settings"])
def test_a_used_approval_is_refused_for_another_action(world: World, change: str) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    payload = {"do": "TransientError not_done"}
    with pytest.raises(ActionNeedsApproval) as caught:
        world.executor.execute(world.one, world.request(input=payload))
    options: dict[str, Any] = {"input": payload, "idempotency_key": "k", "approval_id": obtain_approval(world, caught.value)}
    expect_refusal(world, world.request(**options), ApplianceError)
    if change == "policies":
        put_rules(world.one, {**ASK_FOR_WRITES, "reason": "not like that"})
    elif change == "subject":
        options["subject"] = Subject("key:other", "rest")
    else:
        world.integrations.replace_integration(world.one, "books", IntegrationSpec("ledger", {"token": "tok-other-secret"}))
    assert expect_refusal(world, world.request(**options)).extra["reason"] == "digest_differs"
    assert audit_fields(world, "approval.refuse")[-1]["reason"] == "digest_differs"
    assert (len(Ledger.booked), [row.status for row in rows(world)]) == (1, ["failed"])


def test_a_call_that_no_longer_needs_approval_is_sent_again_without_it(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    payload = {"do": "TransientError not_done"}
    with pytest.raises(ActionNeedsApproval) as caught:
        world.executor.execute(world.one, world.request(input=payload))
    approval_id = obtain_approval(world, caught.value)
    expect_refusal(world, world.request(input=payload, idempotency_key="k", approval_id=approval_id), ApplianceError)
    put_rules(world.one, {"id": "all", "effect": "allow", "reason": "trusted"})
    expect_refusal(world, world.request(input=payload, idempotency_key="k"), ActionFailed)
    assert (len(Ledger.booked), [row.approval_id for row in rows(world)]) == (2, [None])


def test_an_approved_call_of_unknown_outcome_stays_unknown(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    payload = {"do": "TransientError unknown"}
    with pytest.raises(ActionNeedsApproval) as caught:
        world.executor.execute(world.one, world.request(input=payload))
    request = world.request(input=payload, idempotency_key="k", approval_id=obtain_approval(world, caught.value))
    expect_refusal(world, request, ApplianceError)
    expect_refusal(world, request, OutcomeUnknown)
    assert (len(Ledger.booked), [row.status for row in rows(world)]) == (1, ["waiting"])


def test_of_twenty_calls_under_one_approval_one_is_sent(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    approval_id = obtain_approval(world, expect_approval_needed(world))
    together, results = threading.Barrier(20), []

    def call() -> None:
        together.wait(60)
        try:
            results.append(world.executor.execute(world.one, world.request(input=PAYLOAD, approval_id=approval_id)).status)
        except PolicyDenied as error:
            results.append(error.extra["reason"])

    threads = [threading.Thread(target=call) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["executed", *["used"] * 19]
    assert len(Ledger.booked) == len(rows(world)) == 1


def test_a_queued_call_uses_its_approval_when_it_is_queued(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    approval_id = obtain_approval(world, expect_approval_needed(world))
    request = world.request(input=PAYLOAD, approval_id=approval_id)
    call_id = world.executor.enqueue(world.one, request)
    with pytest.raises(PolicyDenied):
        world.executor.enqueue(world.one, request)
    assert len(world.queued) == 1
    world.executor.run_queued(world.one, call_id)
    assert [row.status for row in rows(world)] == ["succeeded"]
    assert [each[2] for each in Ledger.booked] == [PAYLOAD]


def test_a_queued_call_is_judged_again_when_it_is_made(world: World) -> None:
    world.ledger()
    call_id = world.executor.enqueue(world.one, world.request(input=PAYLOAD))
    put_rules(world.one, DENY_WRITES)
    world.executor.run_queued(world.one, call_id)
    [row] = rows(world)
    assert (row.status, row.error["class"], Ledger.booked) == ("failed", "policy_denied", [])


def test_a_read_that_was_approved_is_made_once(world: World) -> None:
    world.ledger()
    put_rules(world.one, {**ASK_FOR_WRITES, "effects": ["read"]})
    with pytest.raises(ActionNeedsApproval) as caught:
        world.executor.execute(world.one, world.request("look"))
    request = world.request("look", approval_id=obtain_approval(world, caught.value))
    world.executor.execute(world.one, request)
    assert expect_refusal(world, request).extra["reason"] == "used"
    assert len(Ledger.booked) == 1


def test_a_poll_never_asks_for_approval(world: World) -> None:
    world.ledger()
    put_rules(world.one, {**ASK_FOR_WRITES, "effects": ["read"]})
    with pytest.raises(PolicyDenied):
        world.executor.poll(world.one, PollRequest("books", "entries", {}))


# What comes with permission


def test_a_preview_shows_the_decision_and_consumes_nothing(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    result = world.executor.execute(world.one, world.request(input=PAYLOAD, mode="preview"))
    assert result.ruling is not None
    assert (result.status, result.ruling.decision.verdict) == ("previewed", "require_approval")
    assert result.ruling.action_digest == expect_approval_needed(world).extra["action_digest"]
    assert Ledger.booked == []


def test_redacted_members_are_neither_returned_nor_stored(world: World) -> None:
    world.ledger()
    rule = {"id": "hide", "effect": "allow", "reason": "numbers are private", "obligations": {"redact": ["/n", "/said"]}}
    put_rules(world.one, rule)
    assert world.executor.execute(world.one, world.request()).output == {}
    assert world.executor.execute(world.one, world.request("look", input={"do": "echo"})).output is not None
    assert all("n" not in row.output and "said" not in row.output for row in rows(world))


@pytest.mark.parametrize("action", ["look", "book"])
def test_with_a_redact_rule_a_failure_quotes_nothing(world: World, action: str) -> None:
    world.ledger()
    request = world.request(action, input={"do": "quote"})
    assert expect_refusal(world, request, ActionFailed).extra["foreign"]["excerpt"] == "iban DE89 of Ann"
    put_rules(world.one, {"id": "hide", "effect": "allow", "reason": "private", "obligations": {"redact": ["/iban"]}})
    assert expect_refusal(world, request, ActionFailed).extra["foreign"] == {"status": 409}
    assert sorted(len(row.error["details"]) for row in rows(world)) == [1, 2]


def test_an_action_switched_off_after_its_permit_is_not_started(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    permit = expect_approval_needed(world).permit
    approval_id = obtain_approval(world, expect_approval_needed(world))
    permission = make_governor(world.sealer).permit(permit.scope, permit.subject, permit.action, approval_id)
    kill_switches.switch_off(world.one, "integration", "books", "an incident")
    with pytest.raises(PolicyDenied) as caught:
        db.write(lambda: permission.consume("call:1"))
    assert caught.value.extra["rules"] == ["kill-switches/integration"]
    assert "an incident" in audit_fields(world, "policy.deny")[-1]["reasons"][0]
    assert (audit_fields(world, "approval.use"), get_approval(world.one, approval_id).status) == ([], "approved")


def test_parallel_calls_do_not_overrun_a_cap(world: World) -> None:
    world.ledger()
    rule = {"id": "few", "effect": "allow", "reason": "few", "obligations": {"calls_per_hour": 3}}
    put_rules(world.one, rule)
    together, results = threading.Barrier(12), []

    def call() -> None:
        together.wait(60)
        try:
            results.append(world.executor.execute(world.one, world.request("look")).status)
        except BudgetExceeded as error:
            results.append(error.extra["reason"])

    threads = [threading.Thread(target=call) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [*["calls_per_hour"] * 9, *["executed"] * 3]
    assert len(Ledger.booked) == len(rows(world)) == 3
    denials = audit_fields(world, "policy.deny")
    assert len(denials) == 9
    assert "few allows 3 calls in one hour" in denials[0]["reasons"][0]
    world.ledger(world.two)
    world.executor.execute(world.two, world.request("look"))


def test_the_cap_of_an_allow_rule_holds_beside_an_approval_rule(world: World) -> None:
    world.ledger()
    caps = {"id": "few", "effect": "allow", "effects": ["write"], "reason": "few", "obligations": {"calls_per_hour": 1}}
    put_rules(world.one, ASK_FOR_WRITES, caps)
    tenant = TenantFixture(world.one)
    tenant.person("eve", "operator", approver=True)
    first, second = [tenant.decide("eve", ask(world, expect_approval_needed(world))).id for _ in range(2)]
    world.executor.execute(world.one, world.request(input=PAYLOAD, approval_id=first))
    error = expect_refusal(world, world.request(input=PAYLOAD, approval_id=second), BudgetExceeded)
    assert error.extra["rules"] == ["gate/few"]


def test_a_required_preview_must_come_from_the_same_caller(world: World) -> None:
    world.ledger()
    put_rules(world.one, {"id": "look-first", "effect": "allow", "reason": "look", "obligations": {"dry_run_first": True}})
    assert expect_refusal(world, world.request(input=PAYLOAD)).extra["reason"] == "dry_run_first"
    world.executor.execute(world.one, world.request(input=PAYLOAD, mode="preview"))
    other = Subject("key:other", "rest")
    assert expect_refusal(world, world.request(input=PAYLOAD, subject=other)).extra["reason"] == "dry_run_first"
    assert expect_refusal(world, world.request(input={"amount": 8})).extra["reason"] == "dry_run_first"
    world.executor.execute(world.one, world.request(input=PAYLOAD))
    assert [each[2] for each in Ledger.booked] == [PAYLOAD]


def test_a_call_of_an_execution_names_the_execution(world: World) -> None:
    world.ledger()
    put_rules(world.one, {**ASK_FOR_WRITES, "subject": {"via": ["process"]}})
    running = world.one.with_actor("execution:exe_1")
    with pytest.raises(ActionNeedsApproval) as caught:
        world.executor.execute(running, world.request(origin=Origin("exe_1", "push")))
    assert (caught.value.permit.subject.via, caught.value.permit.subject.kind) == ("process", "execution")
    assert world.executor.execute(world.one, world.request()).status == "executed"


def test_changes_by_agents_and_clients_are_audited_also_when_allowed(world: World) -> None:
    world.ledger()
    put_rules(world.one, {"id": "all", "effect": "allow", "reason": "trusted"})
    agent = Subject("key:test", "agent", agent="triage", run_id="run_1")
    world.executor.execute(world.one, world.request("look", subject=agent))
    assert audit_fields(world, "policy.allow") == []
    world.executor.execute(world.one, world.request(subject=agent))
    [entry] = audit_fields(world, "policy.allow")
    assert (entry["agent"], entry["run"], entry["rules"], entry["verdict"]) == ("triage", "run_1", ["gate/all"], "allow")


def test_agents_do_nothing_by_default(world: World) -> None:
    world.ledger()
    agent = Subject("key:test", "agent", agent="triage", run_id="run_1")
    for action in ("look", "book"):
        expect_refusal(world, world.request(action, subject=agent))
    assert (Ledger.booked, len(audit_fields(world, "policy.deny"))) == ([], 2)


