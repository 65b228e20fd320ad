"""Nothing passes the gate that the tenant's rules do not let through, and what is approved is done once, exactly as approved."""

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
from tests.governance.asking import Town
from tests.governance.ruling import ASK_FOR_WRITES, DENY_WRITES, make_governor, put_rules
from tests.integrations.world import Ledger, World

GIVEN = {"amount": 7, "note": "for the roof"}


def needed(world: World, **more: Any) -> ActionNeedsApproval:
    """The refusal of a call that nobody has approved."""
    with pytest.raises(ActionNeedsApproval) as caught:
        world.executor.execute(world.one, world.request(input=GIVEN, **more))
    return caught.value


def ask(world: World, refusal: ActionNeedsApproval) -> Approval:
    permit = refusal.permit
    return ActionApprovals(world.sealer).request_action(permit.scope, permit.subject, permit.action, permit.decision)


def approved(world: World, refusal: ActionNeedsApproval) -> str:
    """The id of an approval that a person of the tenant has given."""
    town, asked = Town(world.one), ask(world, refusal)
    town.person("eve", "operator", approver=True)
    return town.decide("eve", asked).id


def audited(world: World, action: str) -> list[Mapping[str, Any]]:
    rows = db.rows("SELECT fields FROM audit_entry WHERE tenant_id = 'one' AND action = ? ORDER BY seq", (action,))
    return [db.JsonField().python_value(row[0]) for row in rows]


def refused(world: World, request: ActionRequest, kind: type[ApplianceError] = PolicyDenied) -> ApplianceError:
    with pytest.raises(kind) as caught:
        world.executor.execute(world.one, request)
    return caught.value


def rows(world: World) -> list[CallRow]:
    return list(world.one.select(CallRow).order_by(CallRow.created_at))


# Approvals


def test_what_needs_an_approval_is_not_sent_and_says_what_to_ask_for(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    refusal = needed(world)
    told = refusal.extra
    assert (refusal.code, told["rules"], told["verdict"]) == ("approval_required", ["gate/ask"], "require_approval")
    assert len(refusal.extra["action_digest"]) == 64
    assert "approval_id" in refusal.extra["next"]
    assert Ledger.booked == []
    [entry] = audited(world, "policy.require_approval")
    assert (entry["action_digest"], entry["actor"], entry["via"]) == (refusal.extra["action_digest"], "key:test", "rest")
    assert (entry["rules"], entry["verdict"]) == (["gate/ask"], "require_approval")
    assert "somebody must look" in entry["reasons"][0]
    world.executor.execute(world.one, world.request("look"))
    world.ledger(world.two)
    world.executor.execute(world.two, world.request(input=GIVEN))
    assert [each[0] for each in Ledger.booked] == ["look", "book"]


def test_an_approved_action_is_done_once(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    approval_id = approved(world, needed(world))
    request = world.request(input=GIVEN, approval_id=approval_id)
    assert world.executor.execute(world.one, request).status == "executed"
    assert refused(world, request).extra["reason"] == "used"
    assert [each[2] for each in Ledger.booked] == [GIVEN]
    [row] = rows(world)
    assert (row.approval_id, row.decision["rules"], row.decision["verdict"]) == (approval_id, ["gate/ask"], "require_approval")
    assert [each["by"] for each in audited(world, "approval.use")] == [f"call:{row.id}"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"input": {**GIVEN, "amount": 8}}, "digest_differs"), ({"subject": Subject("key:other", "rest")}, "digest_differs")],
)
def test_another_action_than_the_approved_one_is_refused(world: World, change: dict[str, Any], reason: str) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    approval_id = approved(world, needed(world))
    request = world.request(**{"input": GIVEN, "approval_id": approval_id, **change})
    assert refused(world, request).extra["reason"] == reason
    assert audited(world, "approval.refuse")[-1]["reason"] == reason
    assert (Ledger.booked, rows(world)) == ([], [])


def test_new_settings_and_new_policies_end_an_approval(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    first, second = approved(world, needed(world)), ask(world, needed(world))
    world.integrations.replace_integration(world.one, "books", IntegrationSpec("ledger", {"token": "tok-other-secret"}))
    changed = refused(world, world.request(input=GIVEN, approval_id=first))
    assert (changed.extra["reason"], changed.extra["changed"]) == ("digest_differs", ["credential"])
    put_rules(world.one, {**ASK_FOR_WRITES, "reason": "two must look"})
    assert "policy" in refused(world, world.request(input=GIVEN, approval_id=second.id)).extra["changed"]
    assert Ledger.booked == []


def test_who_asks_again_with_its_key_gets_the_recorded_answer(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    approval_id = approved(world, needed(world, idempotency_key="k"))
    request = world.request(input=GIVEN, approval_id=approval_id, idempotency_key="k")
    first = world.executor.execute(world.one, request)
    assert world.executor.execute(world.one, request).status == "recorded"
    again = world.executor.execute(world.one, world.request(input=GIVEN, idempotency_key="k"))
    assert (again.status, again.output, again.call_id) == ("recorded", first.output, first.call_id)
    assert len(Ledger.booked) == len(audited(world, "approval.use")) == 1


def test_a_call_that_was_not_done_is_sent_again_under_its_approval(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    given = {"do": "TransientError not_done"}
    with pytest.raises(ActionNeedsApproval) as caught:
        world.executor.execute(world.one, world.request(input=given, idempotency_key="k"))
    approval_id = approved(world, caught.value)
    request = world.request(input=given, idempotency_key="k", approval_id=approval_id)
    for each in (request, world.request(input=given, idempotency_key="k")):
        refused(world, each, ApplianceError)
    assert [(each[0], each[1]) for each in Ledger.booked] == [("book", "k")] * 2
    assert len(audited(world, "approval.use")) == 1
    put_rules(world.one, {**ASK_FOR_WRITES, "reason": "not like that"})
    refused(world, world.request(input=given, idempotency_key="k"), ApprovalRequired)
    assert len(Ledger.booked) == 2


@pytest.mark.parametrize("change", ["policies", "subject", "settings"])
def test_a_used_approval_is_not_honoured_again_for_anything_else(world: World, change: str) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    given = {"do": "TransientError not_done"}
    with pytest.raises(ActionNeedsApproval) as caught:
        world.executor.execute(world.one, world.request(input=given))
    asked: dict[str, Any] = {"input": given, "idempotency_key": "k", "approval_id": approved(world, caught.value)}
    refused(world, world.request(**asked), ApplianceError)
    if change == "policies":
        put_rules(world.one, {**ASK_FOR_WRITES, "reason": "not like that"})
    elif change == "subject":
        asked["subject"] = Subject("key:other", "rest")
    else:
        world.integrations.replace_integration(world.one, "books", IntegrationSpec("ledger", {"token": "tok-other-secret"}))
    assert refused(world, world.request(**asked)).extra["reason"] == "digest_differs"
    assert audited(world, "approval.refuse")[-1]["reason"] == "digest_differs"
    assert (len(Ledger.booked), [row.status for row in rows(world)]) == (1, ["failed"])


def test_what_needs_no_approval_any_more_is_sent_again_without_the_used_one(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    given = {"do": "TransientError not_done"}
    with pytest.raises(ActionNeedsApproval) as caught:
        world.executor.execute(world.one, world.request(input=given))
    approval_id = approved(world, caught.value)
    refused(world, world.request(input=given, idempotency_key="k", approval_id=approval_id), ApplianceError)
    put_rules(world.one, {"id": "all", "effect": "allow", "reason": "trusted"})
    refused(world, world.request(input=given, idempotency_key="k"), ActionFailed)
    assert (len(Ledger.booked), [row.approval_id for row in rows(world)]) == (2, [None])


def test_an_outcome_nobody_knows_stays_unknown_though_it_was_approved(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    given = {"do": "TransientError unknown"}
    with pytest.raises(ActionNeedsApproval) as caught:
        world.executor.execute(world.one, world.request(input=given))
    request = world.request(input=given, idempotency_key="k", approval_id=approved(world, caught.value))
    refused(world, request, ApplianceError)
    refused(world, request, OutcomeUnknown)
    assert (len(Ledger.booked), [row.status for row in rows(world)]) == (1, ["waiting"])


def test_of_twenty_calls_under_one_approval_one_is_sent(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    approval_id = approved(world, needed(world))
    together, came = threading.Barrier(20), []

    def call() -> None:
        together.wait(60)
        try:
            came.append(world.executor.execute(world.one, world.request(input=GIVEN, approval_id=approval_id)).status)
        except PolicyDenied as error:
            came.append(error.extra["reason"])

    threads = [threading.Thread(target=call) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(came) == ["executed", *["used"] * 19]
    assert len(Ledger.booked) == len(rows(world)) == 1


def test_a_queued_call_uses_its_approval_when_it_is_queued(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    approval_id = approved(world, needed(world))
    request = world.request(input=GIVEN, approval_id=approval_id)
    call_id = world.executor.enqueue(world.one, request)
    with pytest.raises(PolicyDenied):
        world.executor.enqueue(world.one, request)
    assert len(world.queued) == 1
    world.executor.run_queued(world.one, call_id)
    assert [row.status for row in rows(world)] == ["succeeded"]
    assert [each[2] for each in Ledger.booked] == [GIVEN]


def test_a_queued_call_is_judged_again_when_it_is_made(world: World) -> None:
    world.ledger()
    call_id = world.executor.enqueue(world.one, world.request(input=GIVEN))
    put_rules(world.one, DENY_WRITES)
    world.executor.run_queued(world.one, call_id)
    [row] = rows(world)
    assert (row.status, row.error["class"], Ledger.booked) == ("failed", "policy_denied", [])


def test_a_read_that_was_approved_is_made_once(world: World) -> None:
    world.ledger()
    put_rules(world.one, {**ASK_FOR_WRITES, "effects": ["read"]})
    with pytest.raises(ActionNeedsApproval) as caught:
        world.executor.execute(world.one, world.request("look"))
    request = world.request("look", approval_id=approved(world, caught.value))
    world.executor.execute(world.one, request)
    assert refused(world, request).extra["reason"] == "used"
    assert len(Ledger.booked) == 1


def test_a_poll_asks_nobody(world: World) -> None:
    world.ledger()
    put_rules(world.one, {**ASK_FOR_WRITES, "effects": ["read"]})
    with pytest.raises(PolicyDenied):
        world.executor.poll(world.one, PollRequest("books", "entries", {}))


# What comes with permission


def test_a_preview_says_what_would_be_decided_and_uses_nothing_up(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    result = world.executor.execute(world.one, world.request(input=GIVEN, mode="preview"))
    assert result.ruling is not None
    assert (result.status, result.ruling.decision.verdict) == ("previewed", "require_approval")
    assert result.ruling.action_digest == needed(world).extra["action_digest"]
    assert Ledger.booked == []


def test_what_rules_hide_nobody_sees_and_nothing_keeps(world: World) -> None:
    world.ledger()
    rule = {"id": "hide", "effect": "allow", "reason": "numbers are private", "obligations": {"redact": ["/n", "/said"]}}
    put_rules(world.one, rule)
    assert world.executor.execute(world.one, world.request()).output == {}
    assert world.executor.execute(world.one, world.request("look", input={"do": "echo"})).output is not None
    assert all("n" not in row.output and "said" not in row.output for row in rows(world))


@pytest.mark.parametrize("action", ["look", "book"])
def test_where_rules_hide_something_a_failure_quotes_nothing(world: World, action: str) -> None:
    world.ledger()
    request = world.request(action, input={"do": "quote"})
    assert refused(world, request, ActionFailed).extra["foreign"]["excerpt"] == "iban DE89 of Ann"
    put_rules(world.one, {"id": "hide", "effect": "allow", "reason": "private", "obligations": {"redact": ["/iban"]}})
    assert refused(world, request, ActionFailed).extra["foreign"] == {"status": 409}
    assert sorted(len(row.error["details"]) for row in rows(world)) == [1, 2]


def test_what_is_switched_off_meanwhile_is_not_begun(world: World) -> None:
    world.ledger()
    put_rules(world.one, ASK_FOR_WRITES)
    permit = needed(world).permit
    approval_id = approved(world, needed(world))
    leave = make_governor(world.sealer).permit(permit.scope, permit.subject, permit.action, approval_id)
    kill_switches.switch_off(world.one, "integration", "books", "an incident")
    with pytest.raises(PolicyDenied) as caught:
        db.write(lambda: leave.consume("call:1"))
    assert caught.value.extra["rules"] == ["kill-switches/integration"]
    assert "an incident" in audited(world, "policy.deny")[-1]["reasons"][0]
    assert (audited(world, "approval.use"), get_approval(world.one, approval_id).status) == ([], "approved")


def test_parallel_calls_do_not_overrun_a_cap(world: World) -> None:
    world.ledger()
    rule = {"id": "few", "effect": "allow", "reason": "few", "obligations": {"calls_per_hour": 3}}
    put_rules(world.one, rule)
    together, came = threading.Barrier(12), []

    def call() -> None:
        together.wait(60)
        try:
            came.append(world.executor.execute(world.one, world.request("look")).status)
        except BudgetExceeded as error:
            came.append(error.extra["reason"])

    threads = [threading.Thread(target=call) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(came) == [*["calls_per_hour"] * 9, *["executed"] * 3]
    assert len(Ledger.booked) == len(rows(world)) == 3
    denials = audited(world, "policy.deny")
    assert len(denials) == 9
    assert "few allows 3 calls in one hour" in denials[0]["reasons"][0]
    world.ledger(world.two)
    world.executor.execute(world.two, world.request("look"))


def test_the_cap_of_a_rule_that_allows_holds_beside_one_that_asks(world: World) -> None:
    world.ledger()
    caps = {"id": "few", "effect": "allow", "effects": ["write"], "reason": "few", "obligations": {"calls_per_hour": 1}}
    put_rules(world.one, ASK_FOR_WRITES, caps)
    town = Town(world.one)
    town.person("eve", "operator", approver=True)
    first, second = [town.decide("eve", ask(world, needed(world))).id for _ in range(2)]
    world.executor.execute(world.one, world.request(input=GIVEN, approval_id=first))
    told = refused(world, world.request(input=GIVEN, approval_id=second), BudgetExceeded)
    assert told.extra["rules"] == ["gate/few"]


def test_what_must_be_previewed_is_previewed_by_the_same_first(world: World) -> None:
    world.ledger()
    put_rules(world.one, {"id": "look-first", "effect": "allow", "reason": "look", "obligations": {"dry_run_first": True}})
    assert refused(world, world.request(input=GIVEN)).extra["reason"] == "dry_run_first"
    world.executor.execute(world.one, world.request(input=GIVEN, mode="preview"))
    other = Subject("key:other", "rest")
    assert refused(world, world.request(input=GIVEN, subject=other)).extra["reason"] == "dry_run_first"
    assert refused(world, world.request(input={"amount": 8})).extra["reason"] == "dry_run_first"
    world.executor.execute(world.one, world.request(input=GIVEN))
    assert [each[2] for each in Ledger.booked] == [GIVEN]


def test_what_an_execution_does_names_it(world: World) -> None:
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
    assert audited(world, "policy.allow") == []
    world.executor.execute(world.one, world.request(subject=agent))
    [entry] = audited(world, "policy.allow")
    assert (entry["agent"], entry["run"], entry["rules"], entry["verdict"]) == ("triage", "run_1", ["gate/all"], "allow")


def test_agents_do_nothing_by_default(world: World) -> None:
    world.ledger()
    agent = Subject("key:test", "agent", agent="triage", run_id="run_1")
    for action in ("look", "book"):
        refused(world, world.request(action, subject=agent))
    assert (Ledger.booked, len(audited(world, "policy.deny"))) == ([], 2)


