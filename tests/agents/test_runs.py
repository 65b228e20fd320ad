"""A run from its start to its end: tools, people, refusals, budgets, cancelling and retention."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.agents import definition, runs
from appliance.agents.runs import RunRequest
from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.changes import read_state
from appliance.core.errors import ExecutionFinished, IdempotencyMismatch, NotFound, Overloaded
from appliance.core.json_schema import compile_schema
from appliance.core.pages import PageRequest
from appliance.core.scheduling import Scheduler
from appliance.core.scope import TenantScope
from appliance.governance import kill_switches
from appliance.governance.approvals import ApprovalFilter, approvals, human_requests
from appliance.governance.policies import PolicyService
from appliance.llm import NANO, Generated, UsageSum
from appliance.monitor import AuditFilter, audit
from appliance.tenants import service as tenants
from tests.agents.world import ALLOW, ASK, World, book, calls, mark, open_world, put_key, says, wait_until
from tests.governance.ruling import put_rules

ASK_INSIDE = {"id": "ask", "effect": "require_approval", "tools": ["write_entities"], "reason": "look first"}
RESULT = ("final_result", {"total": 3})
OUTPUT = {"type": "object", "required": ["total"], "properties": {"total": {"type": "integer"}}}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(tmp_path) as opened:
        yield opened


def kinds(world: World, run_id: str) -> list[str]:
    return [entry.kind for entry in world.journal(run_id)]


def test_a_run_calls_its_tools_and_answers(world: World) -> None:
    run = world.run(calls(mark("seen"), book(amount=3)), says("done"))
    assert (run.status, run.output, run.turns, run.tool_calls) == ("succeeded", "done", 2, 2)
    assert (run.input_tokens, run.output_tokens) == (20, 10)
    assert [(each[0], each[2]) for each in world.booked()] == [("set", {"amount": 3})]
    assert world.marks() == ["seen"]
    assert kinds(world, run.id) == [
        "asked", "answered", "called", "returned", "called", "returned", "asked", "answered", "ended",
    ]  # fmt: skip


def test_output_from_outside_is_labelled_and_taints_the_run(world: World) -> None:
    run = world.run(calls(book("look")), says("done"))
    assert run.tainted_by == ["integration:books"]
    assert "'source': 'integration:books'" in world.script.transcript()
    assert "never an instruction" in str(world.script.messages[0].instructions)  # type: ignore[union-attr]


def test_an_answer_has_to_fit_its_schema(world: World) -> None:
    turns = [calls(("final_result", {"total": "three"})), calls(("final_result", {"total": 3}))]
    run = world.run(*turns, output=OUTPUT)
    assert (run.status, run.output, run.turns) == ("succeeded", {"total": 3}, 2)
    never = world.run(*[calls(("final_result", {"total": "x"}))] * 9, output=OUTPUT)
    assert (never.status, (never.error or {})["code"]) == ("failed", "answer_invalid")


@pytest.mark.parametrize("turn", [[book(amount=1), RESULT], [RESULT, book(amount=1)]])
def test_a_turn_with_calls_and_an_output_makes_the_calls_first(world: World, turn: list[Any]) -> None:
    run = world.run(calls(*turn), calls(RESULT), output=OUTPUT)
    assert (run.status, run.output, run.turns, len(world.booked())) == ("succeeded", {"total": 3}, 2, 1)


def test_only_what_the_definition_lists_is_called(world: World) -> None:
    approval = [book("book", amount=1), mark("x"), ("request_human_input", {"kind": "approval", "title": "Let me"})]
    run = world.run(calls(approval[0], approval[2]), calls(approval[1]), says("done"), tools=["books:look", "request_human_input"])
    assert run.status == "succeeded"
    assert world.booked() == []
    assert world.marks() == []
    errors = [entry.data["error"] for entry in world.journal(run.id) if entry.kind == "returned"]
    assert [error.get("reason", error["code"]) for error in errors] == ["not_in_definition", "validation_failed"]
    assert "Unknown tool name" in world.script.transcript()


def test_without_a_rule_everything_is_denied_and_in_the_audit_trail(world: World) -> None:
    run = world.run(calls(book(amount=1), mark("x")), says("done"), rules=[{**ALLOW, "subject": {"agents": ["other"]}}])
    assert (world.booked(), world.marks(), run.status) == ([], [], "succeeded")
    denied = audit.list_entries(world.scope, AuditFilter(action="policy.deny"), PageRequest()).items
    assert {each.subject for each in denied} == {"set of books", "write_entities"}
    assert {each.actor for each in denied} == {f"run:{run.id}"}


def test_an_approved_call_is_made_once_with_what_was_approved(world: World) -> None:
    world.make(calls(mark("before"), book(amount=7)), says("done"), rules=[ASK, ALLOW])
    run_id = world.start()
    assert world.drive(run_id).status == "waiting"
    assert world.drive(run_id).status == "waiting"  # nobody decided: nothing happens, nobody is asked again
    assert (world.booked(), world.marks(), len(world.list_approvals())) == ([], ["before"], 1)
    world.restart()  # days later
    world.decide()
    run = world.drive(run_id)
    assert (run.status, run.output) == ("succeeded", "done")
    assert [each[2] for each in world.booked()] == [{"amount": 7}]
    assert world.marks() == ["before"]
    assert [each.status for each in world.list_approvals()] == ["used"]
    assert world.script.turn_numbers == [1, 2]


def test_whoever_started_the_run_does_not_approve_it(world: World) -> None:
    world.make(calls(book(amount=7)), says("done"), rules=[ASK, ALLOW])
    ann = world.town.people["ann"].scope
    assert ann is not None
    run = world.runs.start_run(ann, "clerk", RunRequest("Do it."))
    world.drive(run.id)
    assert world.list_approvals()[0].requested_by == ann.actor
    with pytest.raises(Exception, match="somebody else must decide"):
        world.decide()


@pytest.mark.parametrize("inside", [False, True])
def test_a_rejected_call_is_reported_and_not_requested_again(world: World, inside: bool) -> None:
    call, rule = (mark("x"), ASK_INSIDE) if inside else (book(amount=7), ASK)
    world.make(calls(call), calls(call), says("well then"), rules=[rule, ALLOW])
    run_id = world.start()
    world.drive(run_id)
    world.decide("reject")
    run = world.drive(run_id)
    assert (run.status, run.output) == ("succeeded", "well then")
    assert (world.booked(), world.marks(), len(world.list_approvals())) == ([], [], 1)
    errors = [entry.data["error"]["code"] for entry in world.journal(run_id) if entry.kind == "returned"]
    assert errors == ["approval_rejected", "approval_rejected"]


def test_a_call_not_approved_in_time_expires(world: World) -> None:
    world.make(calls(book(amount=7)), says("too late"), rules=[{**ASK, "obligations": {"ttl_seconds": 60}}, ALLOW])
    run_id = world.start()
    world.drive(run_id)
    db.write(lambda: db.execute("UPDATE approval SET expires_at = 1"))
    db.write(lambda: db.execute("UPDATE agent_run SET next_run_at = 1"))
    run = world.drive(run_id)
    assert (run.output, world.booked()) == ("too late", [])
    assert [each.status for each in world.list_approvals()] == ["expired"]


def test_an_internal_call_runs_once_approved(world: World) -> None:
    rule = ASK_INSIDE
    world.make(calls(mark("x")), says("done"), rules=[rule, ALLOW])
    run_id = world.start()
    world.drive(run_id)
    world.decide()
    assert (world.drive(run_id).status, world.marks()) == ("succeeded", ["x"])
    assert [each.status for each in world.list_approvals()] == ["used"]


def test_a_call_that_is_denied_since_it_was_approved_is_in_the_audit_trail(world: World) -> None:
    world.make(calls(mark("x")), says("done"), rules=[ASK_INSIDE, ALLOW])
    run_id = world.start()
    world.drive(run_id)
    world.decide()
    put_rules(world.scope, {**ASK_INSIDE, "effect": "deny"}, ALLOW)
    assert (world.drive(run_id).status, world.marks()) == ("succeeded", [])
    denied = audit.list_entries(world.scope, AuditFilter(action="policy.deny"), PageRequest()).items
    assert [each.subject for each in denied] == ["write_entities"]


def test_a_person_is_asked_and_answers(world: World) -> None:
    world.make(calls(("request_human_input", {"kind": "choice", "title": "Which?", "choices": ["red", "blue"]})), says("done"))
    run_id = world.start()
    run = world.drive(run_id)
    assert (run.status, (run.waiting_for or {})["reason"]) == ("waiting", "input")
    world.decide("answer", "blue")
    assert world.drive(run_id).status == "succeeded"
    assert "'answer': 'blue'" in world.script.transcript()


def test_no_schema_is_compiled_in_the_writer_thread(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, inside = db.write(threading.get_ident), list[bool]()

    def compile_noting(schema: dict[str, Any]) -> Any:
        inside.append(threading.get_ident() == writer)
        return compile_schema(schema)

    question = {"kind": "input", "title": "How many?", "schema": {"type": "string", "pattern": f"^{world.folder.name}$"}}
    world.make(calls(("request_human_input", question)), says("done"), output=OUTPUT)
    monkeypatch.setattr(human_requests, "compile_schema", compile_noting)
    monkeypatch.setattr(definition, "compile_schema", compile_noting)
    assert world.drive(world.start()).status == "waiting"
    assert inside
    assert not any(inside)


@pytest.mark.parametrize(
    ("budget", "turns"),
    [
        ({"turns": 1}, [calls(book()), says("x")]),
        ({"tool_calls": 1}, [calls(book(), book()), says("x")]),
        ({"tokens": 15}, [calls(book()), says("x")]),
    ],
)
def test_a_budget_ends_the_run(world: World, budget: dict[str, Any], turns: list[Any]) -> None:
    run = world.run(*turns, budget=budget)
    assert (run.status, (run.error or {})["code"], (run.error or {})["budget"]) == ("failed", "budget_exceeded", next(iter(budget)))
    assert len(world.booked()) == 1


def test_seconds_are_counted_over_all_segments(world: World) -> None:
    world.make(says("x"), budget={"seconds": 5})
    run_id = world.start()
    db.write(lambda: db.execute("UPDATE agent_run SET active_ms = 5000"))
    assert (world.drive(run_id).error or {})["budget"] == "seconds"
    assert world.script.turn_numbers == []


@pytest.mark.parametrize("kind", ["tenant", "agent"])
def test_a_kill_switch_ends_the_run_before_its_next_step(world: World, kind: kill_switches.Kind) -> None:
    world.make(calls(book()), says("x"))
    run_id = world.start()
    name = "clerk" if kind == "agent" else ""
    world.script.before = lambda number: kill_switches.switch_off(world.scope, kind, name, "enough")
    run = world.drive(run_id)
    assert (run.status, (run.error or {})["code"], world.booked()) == ("failed", "policy_denied", [])


def test_a_policy_that_the_agent_needs_has_to_be_active(world: World) -> None:
    run = world.run(says("x"), policy="desk")
    assert (run.status, (run.error or {})["reason"]) == ("failed", "policy_not_active")
    assert world.run(says("x"), policy="gate").status == "succeeded"


def test_a_model_that_fails_for_a_while_is_retried_later(world: World) -> None:
    world.make(Overloaded("busy", extra={"retryable": True, "retry_after": 60}), says("x"))
    run_id = world.start()
    run = world.drive(run_id)
    assert (run.status, (run.waiting_for or {})["reason"]) == ("waiting", "retry")
    assert world.drive(run_id).status == "waiting"
    world.script.turns = [says("here")]
    db.write(lambda: db.execute("UPDATE agent_run SET next_run_at = 1"))
    assert (world.drive(run_id).output, world.script.turn_numbers) == ("here", [1, 1])
    assert world.run(Overloaded("never", extra={"retryable": False})).status == "failed"


@pytest.mark.parametrize("retry_after", [1e400, 1e9])
def test_a_model_is_retried_within_a_day_whatever_its_retry_after(world: World, retry_after: float) -> None:
    run = world.run(Overloaded("busy", extra={"retryable": True, "retry_after": retry_after}))
    assert run.status == "waiting"
    (due_at,) = db.rows("SELECT next_run_at FROM agent_run")[0]
    assert due_at <= clock.now_ms() + 86_400_000


def test_a_turn_that_failed_counts_towards_the_budget(world: World) -> None:
    busy = Overloaded("busy", extra={"retryable": True})
    world.make(busy, budget={"tokens": 100})

    def pay(number: int) -> None:
        assert world.script.asker is not None
        assert world.script.asker.record is not None
        world.script.asker.record(Generated(error=busy, used=UsageSum(1, 90, 10, 7)), None)

    world.script.before = pay
    run_id = world.start()
    run = world.drive(run_id)
    assert (run.status, run.input_tokens, run.output_tokens, run.cost) == ("waiting", 90, 10, 7 / NANO)
    db.write(lambda: db.execute("UPDATE agent_run SET next_run_at = 1"))
    assert ((world.drive(run_id).error or {})["budget"], world.script.turn_numbers) == ("tokens", [1])


def test_a_cancel_that_comes_while_the_run_is_about_to_wait_ends_it(world: World) -> None:
    world.make(Overloaded("busy", extra={"retryable": True, "retry_after": 60}))
    run_id = world.start()
    world.script.before = lambda number: cancel_once(world, run_id)
    run = world.drive(run_id)
    assert (run.status, kinds(world, run_id)) == ("cancelled", ["asked", "unanswered", "ended"])


def test_a_write_with_unknown_outcome_stops_the_run(world: World) -> None:
    run = world.run(calls(book("book", do="TransientError unknown")), says("x"))
    assert (run.status, (run.error or {})["code"]) == ("failed", "outcome_unknown")
    assert len(world.booked()) == 1


def cancel_once(world: World, run_id: str) -> None:
    assert runs.cancel_run(world.scope, "clerk", run_id).is_cancelling


def test_a_cancelled_run_ends_before_its_next_step(world: World) -> None:
    world.make(calls(book()), says("x"))
    run_id = world.start()
    world.script.before = lambda number: cancel_once(world, run_id)
    run = world.drive(run_id)
    assert (run.status, world.booked(), kinds(world, run_id)[-1]) == ("cancelled", [], "ended")
    with pytest.raises(ExecutionFinished):
        runs.cancel_run(world.scope, "clerk", run_id)


def test_a_waiting_run_is_cancelled_with_its_requests(world: World) -> None:
    world.make(calls(book()), says("x"), rules=[ASK, ALLOW])
    run_id = world.start()
    world.drive(run_id)
    assert runs.cancel_run(world.scope, "clerk", run_id).status == "cancelled"
    assert [each.status for each in world.list_approvals()] == ["cancelled"]
    assert world.drive(run_id).status == "cancelled"


def test_the_same_request_is_the_same_run(world: World) -> None:
    world.make(says("x"))
    assert world.start(token="a") == world.start(token="a")
    with pytest.raises(IdempotencyMismatch):
        world.start("else", token="a")


def test_a_run_has_no_more_scopes_than_its_starter(world: World) -> None:
    world.make(calls(book()), calls(mark("x")), says("done"))
    few = TenantScope("one", put_key("few"), frozenset({"agents.run", "entities.write"}))
    run = world.runs.start_run(few, "clerk", RunRequest("Do it."))
    assert world.drive(run.id).status == "succeeded"
    assert (world.booked(), world.marks()) == ([], ["x"])


def test_another_tenant_sees_nothing_of_it(world: World) -> None:
    run = world.run(says("x"))
    for look in (
        lambda: runs.get_run(world.company.two, "clerk", run.id),
        lambda: runs.list_entries(world.company.two, "clerk", run.id, PageRequest()),
        lambda: runs.cancel_run(world.company.two, "clerk", run.id),
        lambda: world.runs.start_run(world.company.two, "clerk", RunRequest("x")),
    ):
        with pytest.raises(NotFound):
            look()
    assert runs.list_entries_after(world.company.two, run.id, 0) == []


def test_finished_runs_are_purged(world: World) -> None:
    run, waiting = world.run(says("x")), world.start()
    assert runs.purge((run.finished_at or 0) + 1) == 1
    assert db.rows("SELECT run_id FROM agent_journal") == []
    assert world.get(waiting).status == "queued"


def test_started_runs_are_driven_by_the_workers(world: World) -> None:
    world.make(calls(book(amount=1)), says("done"), rules=[ASK, ALLOW])
    world.runs.start(Scheduler(read_state))
    world.queue.start(2, Scheduler(read_state))
    try:
        run_id = world.start()
        wait_until(lambda: world.get(run_id).status == "waiting")
        world.decide()
        wait_until(lambda: world.get(run_id).status == "succeeded")
        assert len(world.booked()) == 1
        assert not approvals.list_approvals(world.scope, ApprovalFilter("pending"), PageRequest(100)).items
    finally:
        world.queue.stop(20)
        world.runs.stop(20)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("after", ["ask", "allow", "deny"])
def test_policies_changed_during_an_approval_are_evaluated_again(world: World, inside: bool, after: str) -> None:
    call, rule = (mark("x"), ASK_INSIDE) if inside else (book(amount=7), ASK)
    world.make(calls(call), says("done"), rules=[rule, ALLOW])
    run_id = world.start()
    world.drive(run_id)
    world.decide()
    changed = {"ask": (rule, ALLOW, {**ALLOW, "id": "more"}), "allow": (ALLOW,), "deny": ({**ALLOW, "effect": "deny"},)}
    put_rules(world.scope, *changed[after])
    run = world.drive(run_id)
    if after == "ask":
        assert run.status == "waiting"
        world.decide()
        run = world.drive(run_id)
    assert run.status == "succeeded"
    expected = {True: (0, ["x"]), False: (1, [])}[inside] if after != "deny" else (0, [])
    assert (len(world.booked()), world.marks()) == expected
    request = {"ask": ["cancelled", "used"], "allow": ["cancelled"], "deny": ["approved"]}
    assert [each.status for each in world.list_approvals()] == request[after]


@pytest.mark.parametrize("inside", [False, True])
def test_reactivated_policies_need_a_new_approval(world: World, inside: bool) -> None:
    call, rule = (mark("x"), ASK_INSIDE) if inside else (book(amount=7), ASK)
    world.make(calls(call), says("done"), rules=[rule, ALLOW])
    service, system = PolicyService(), tenants.system_scope(world.scope.tenant_id)
    before, run_id = service.get_policy(system, "gate").active_version, world.start()
    world.drive(run_id)
    world.decide()
    put_rules(world.scope, rule, ALLOW, {**ALLOW, "id": "more"})
    world.drive(run_id)
    world.decide()
    service.activate(system, "gate", version=before)
    assert world.drive(run_id).status == "waiting"
    assert [each.status for each in world.list_approvals()] == ["cancelled", "cancelled", "pending"]
    world.decide()
    assert world.drive(run_id).status == "succeeded"
    assert (len(world.booked()), world.marks()) == ((0, ["x"]) if inside else (1, []))
