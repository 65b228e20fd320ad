"""The governed executor: judged, recorded, and never sent twice in doubt."""

import threading
from typing import Any

import pytest

from appliance.connectors.testing import Answer, LoopbackServer
from appliance.core import clock, db
from appliance.core.errors import (
    AddressNotAllowed,
    ApplianceError,
    Conflict,
    ConnectorFailed,
    IdempotencyInFlight,
    IdempotencyMismatch,
    NotFound,
    PolicyDenied,
    ValidationFailed,
    http_status,
)
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.governance.executor import TASK, ActionFailed, ActionRequest, GovernedExecutor, Proposal
from appliance.integrations import history
from appliance.integrations.history import CallFilter, CallRecord
from appliance.integrations.models import CallRow
from appliance.integrations.records import Origin, OutcomeUnknown
from appliance.integrations.service import Spec
from tests.integrations.world import Ledger, World

HERE = Origin("exe_1", "push", "0", 1, 3)


def calls(world: World, **wanted: Any) -> list[CallRecord]:
    return list(history.list_calls(world.one, "books", CallFilter(**wanted), PageRequest()).items)


def class_of(record: CallRecord) -> str:
    assert record.error is not None
    return str(record.error["class"])


def failure(world: World, **more: Any) -> ApplianceError:
    with pytest.raises(ApplianceError) as caught:
        world.executor.execute(world.one, world.request(**more))
    return caught.value


def test_an_action_is_performed_and_recorded(world: World) -> None:
    world.ledger()
    result = world.executor.execute(world.one, world.request(input={"amount": 5}, idempotency_key="k", origin=HERE))
    assert (result.status, result.effect, result.output) == ("executed", "write", {"n": 1})
    [row] = calls(world)
    assert (row.id, row.status, row.outcome, row.effect, row.connector) == (
        result.call_id, "succeeded", "done", "write", "ledger 1.0",
    )  # fmt: skip
    assert (row.input, row.output, row.key, row.sent_key) == ({"amount": 5}, {"n": 1}, "k", "k")
    assert row.origin == HERE
    assert (row.actor, row.tries) == ("key:test", 1)
    assert row.finished_at is not None
    assert row.finished_at >= row.created_at


def test_a_read_is_recorded_without_a_key(world: World) -> None:
    world.ledger()
    for _ in range(2):
        world.executor.execute(world.one, world.request("look", idempotency_key="k"))
    assert [(row.effect, row.key, row.status) for row in calls(world)] == [("read", None, "succeeded")] * 2
    assert failure(world, action="look", input={"do": "Rejected"}).status == 502
    assert class_of(calls(world)[0]) == "rejected"


def test_a_preview_judges_and_sends_nothing(world: World) -> None:
    world.ledger()
    result = world.executor.execute(world.one, world.request(mode="preview"))
    assert (result.status, result.effect, result.call_id) == ("previewed", "write", None)
    with pytest.raises(ValidationFailed):
        world.executor.execute(world.one, world.request(mode="preview", input={"amount": "x"}))
    assert Ledger.booked == []
    assert calls(world) == []


@pytest.mark.parametrize(
    ("more", "error", "pointer"),
    [
        ({"action": "steal"}, ValidationFailed, "/action"),
        ({"input": {"amount": "x"}}, ValidationFailed, "/input/amount"),
        ({"input": {"y": 1}}, ValidationFailed, "/input/y"),
        ({"seconds": 0}, ValidationFailed, "/seconds"),
        ({"seconds": 901}, ValidationFailed, "/seconds"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_sent(
    world: World, more: dict[str, Any], error: type[ApplianceError], pointer: str
) -> None:
    world.ledger()
    refused = failure(world, **more)
    assert isinstance(refused, error)
    assert refused.details[0].pointer == pointer
    assert (Ledger.booked, calls(world)) == ([], [])


def test_an_unknown_integration_is_not_found(world: World) -> None:
    assert isinstance(failure(world), NotFound)


# Failures of the foreign system


@pytest.mark.parametrize(
    ("do", "error_class", "retryable", "status", "row_status"),
    [
        ("AuthError", "auth_error", False, 502, "failed"),
        ("Rejected", "rejected", False, 422, "failed"),
        ("RateLimited", "rate_limited", True, 502, "failed"),
        ("TransientError not_done", "transient_error", True, 502, "failed"),
        ("TransientError unknown", "transient_error", False, 502, "waiting"),
        ("SystemFailure unknown", "system_error", False, 502, "waiting"),
        ("crash", "system_error", False, 502, "waiting"),
        ("nan", "system_error", False, 502, "waiting"),
        ("none", "system_error", False, 502, "waiting"),
    ],
)
def test_a_failure_is_coded_classed_and_recorded(
    world: World, do: str, error_class: str, retryable: bool, status: int, row_status: str
) -> None:
    world.ledger()
    error = failure(world, input={"do": do})
    assert isinstance(error, ActionFailed)
    assert isinstance(error, ConnectorFailed)
    assert (error.error_class, error.retryable, http_status(error)) == (error_class, retryable, status)
    assert error.extra["retryable"] is retryable
    assert "tok-4711" not in error.message
    [row] = calls(world)
    assert (row.status, row.id, class_of(row)) == (row_status, error.call_id, error_class)
    if do == "RateLimited":
        assert row.error is not None
        assert error.extra["retry_after"] == row.error["retry_after"] == 7.0


def test_an_idempotent_call_of_unknown_outcome_may_be_sent_again(world: World) -> None:
    world.ledger()
    error = failure(world, action="set", input={"do": "TransientError unknown"}, idempotency_key="k")
    assert isinstance(error, ActionFailed)
    assert error.retryable
    assert failure(world, action="set", input={"do": "TransientError unknown"}, idempotency_key="k").extra["retryable"]
    [row] = calls(world)
    assert (row.tries, row.status) == (2, "failed")


def test_a_forbidden_address_is_its_own_code(world: World) -> None:
    world.ledger()
    error = failure(world, input={"do": "AddressNotAllowed"})
    assert isinstance(error, AddressNotAllowed)
    assert error.status == 403


# Once and only once


def test_a_finished_call_is_answered_from_its_record(world: World) -> None:
    world.ledger()
    request = world.request(input={"amount": 5}, idempotency_key="k", origin=HERE)
    first = world.executor.execute(world.one, request)
    for executor in (world.executor, world.restarted()):
        again = executor.execute(world.one, request)
        assert (again.status, again.output, again.call_id) == ("recorded", first.output, first.call_id)
    assert len(Ledger.booked) == 1


def test_keys_are_a_tenants_own(world: World) -> None:
    world.ledger()
    world.ledger(world.two)
    for scope in (world.one, world.two):
        assert world.executor.execute(scope, world.request(idempotency_key="k")).status == "executed"


def test_without_a_key_every_request_is_its_own(world: World) -> None:
    world.ledger()
    sent = [world.executor.execute(world.one, world.request()).call_id for _ in range(2)]
    assert [key for _, key, _ in Ledger.booked] == sent


def test_a_failed_call_is_sent_again_with_the_same_key(world: World) -> None:
    world.ledger()
    request: dict[str, Any] = {"input": {"do": "TransientError not_done"}, "idempotency_key": "k", "origin": HERE}
    for _ in range(3):
        failure(world, **request)
    assert [key for _, key, _ in Ledger.booked] == ["k"] * 3
    assert [row.tries for row in calls(world)] == [3]


def test_a_key_used_for_another_request_is_a_mismatch(world: World) -> None:
    world.ledger()
    world.executor.execute(world.one, world.request(input={"amount": 1}, idempotency_key="k"))
    assert isinstance(failure(world, input={"amount": 2}, idempotency_key="k"), IdempotencyMismatch)
    assert isinstance(failure(world, action="set", input={"amount": 1}, idempotency_key="k"), IdempotencyMismatch)


def test_a_repeated_attempt_that_asks_something_else_is_another_call(world: World) -> None:
    world.ledger()
    world.executor.execute(world.one, world.request(input={"amount": 1}, idempotency_key="k", origin=HERE))
    other = world.executor.execute(world.one, world.request(input={"amount": 2}, idempotency_key="k", origin=HERE))
    assert other.status == "executed"
    keys = [key for _, key, _ in Ledger.booked]
    assert keys[0] == "k"
    assert keys[1].startswith("k.")


@pytest.mark.parametrize("amount", [1, 2])
def test_a_write_of_unknown_outcome_is_never_sent_again_by_itself(world: World, amount: int) -> None:
    world.ledger()
    failed = failure(world, input={"do": "TransientError unknown", "amount": 1}, idempotency_key="k", origin=HERE)
    for executor in (world.executor, world.restarted()):
        with pytest.raises(OutcomeUnknown, match="settle") as caught:
            executor.execute(
                world.one,
                world.request(input={"do": "TransientError unknown", "amount": amount}, idempotency_key="k", origin=HERE),
            )
        assert caught.value.extra == {"call_id": failed.extra["call_id"], "outcome": "unknown", "retryable": False}
        assert (caught.value.code, caught.value.status) == ("conflict", 409)
    assert len(Ledger.booked) == 1


def crash_while_sending(world: World, action: str) -> ActionRequest:
    """Leave the record as a process does that is killed after sending: running, by an instance that is gone."""
    request = world.request(action, input={"amount": 1}, idempotency_key="k", origin=HERE)
    world.executor.execute(world.one, request)
    db.write(lambda: world.one.update(CallRow, status="running", outcome=None, finished_at=None, output=None).execute())
    return request


def test_after_a_crash_a_write_is_unknown_and_waits_for_a_person(world: World) -> None:
    world.ledger()
    request = crash_while_sending(world, "book")
    with pytest.raises(OutcomeUnknown):
        world.restarted().execute(world.one, request)
    [row] = calls(world, status="waiting")
    assert (row.outcome, len(Ledger.booked)) == ("unknown", 1)


def test_after_a_crash_an_idempotent_call_is_taken_over_with_its_key(world: World) -> None:
    world.ledger()
    request = crash_while_sending(world, "set")
    assert world.restarted().execute(world.one, request).status == "executed"
    assert [key for _, key, _ in Ledger.booked] == ["k", "k"]
    [row] = calls(world)
    assert (row.status, row.tries) == ("succeeded", 2)


def test_a_call_in_flight_is_not_sent_beside_itself(world: World) -> None:
    world.ledger()
    request = world.request(input={"do": "wait"}, idempotency_key="k")
    results: list[Any] = []
    first = threading.Thread(target=lambda: results.append(world.executor.execute(world.one, request)))
    first.start()
    assert Ledger.arrived.wait(5)
    error = failure(world, input={"do": "wait"}, idempotency_key="k")
    assert isinstance(error, IdempotencyInFlight)
    assert error.extra["retryable"] is True
    assert [row.status for row in calls(world)] == ["running"]
    Ledger.go_on.set()
    first.join(5)
    assert results[0].status == "executed"
    assert len(Ledger.booked) == 1


def test_twenty_at_once_with_one_key_send_once(world: World) -> None:
    world.ledger()
    request = world.request(input={"amount": 1}, idempotency_key="k")
    outcomes: list[str] = []

    def run() -> None:
        try:
            outcomes.append(world.executor.execute(world.one, request).status)
        except IdempotencyInFlight:
            outcomes.append("in flight")

    threads = [threading.Thread(target=run) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert outcomes.count("executed") == 1
    assert len(outcomes) == 20
    assert len(Ledger.booked) == 1


def test_an_answer_too_large_to_keep_is_given_once(world: World) -> None:
    world.ledger()
    request = world.request(input={"do": "huge"}, idempotency_key="k")
    assert len(world.executor.execute(world.one, request).output["x"]) == 2_000_000
    assert isinstance(failure(world, input={"do": "huge"}, idempotency_key="k"), Conflict)
    assert len(Ledger.booked) == 1


# A person's verdict


def test_a_person_settles_an_unknown_outcome(world: World) -> None:
    world.ledger()
    given: dict[str, Any] = {"input": {"do": "TransientError unknown"}, "idempotency_key": "k", "origin": HERE}
    call_id = failure(world, **given).extra["call_id"]
    settled = history.settle_call(world.one, "books", call_id, done=True, output={"n": 9})
    assert (settled.status, settled.outcome) == ("succeeded", "done")
    result = world.executor.execute(world.one, world.request(**given))
    assert (result.status, result.output) == ("recorded", {"n": 9})
    with pytest.raises(Conflict, match="succeeded"):
        history.settle_call(world.one, "books", call_id, done=False, output=None)
    with pytest.raises(NotFound):
        history.settle_call(world.two, "books", call_id, done=True, output=None)


def test_a_call_settled_as_not_done_may_be_sent_again(world: World) -> None:
    world.ledger()
    given: dict[str, Any] = {"input": {"do": "TransientError unknown"}, "idempotency_key": "k", "origin": HERE}
    call_id = failure(world, **given).extra["call_id"]
    history.settle_call(world.one, "books", call_id, done=False, output=None)
    failure(world, **given)
    assert [key for _, key, _ in Ledger.booked] == ["k", "k"]


# Policies


def test_a_policy_sees_the_proposal_and_denies_before_anything_is_sent(world: World) -> None:
    world.ledger()
    judged: list[tuple[str, str, str]] = []

    def no_writes(scope: TenantScope, proposal: Proposal) -> None:
        judged.append((scope.tenant_id, proposal.action.name, proposal.effect))
        if proposal.effect == "write":
            raise PolicyDenied("writes are off")

    world.executor.add_check(no_writes)
    assert isinstance(failure(world), PolicyDenied)
    assert isinstance(failure(world, mode="preview"), PolicyDenied)
    world.executor.execute(world.one, world.request("look"))
    assert judged == [("one", "book", "write"), ("one", "book", "write"), ("one", "look", "read")]
    assert len(Ledger.booked) == 1


def test_a_policy_that_fails_denies(world: World) -> None:
    world.ledger()

    def broken(_scope: TenantScope, _proposal: Proposal) -> None:
        raise KeyError("oops")

    world.executor.add_check(broken)
    assert isinstance(failure(world), PolicyDenied)
    assert Ledger.booked == []


# Secrets


def test_secrets_are_blotted_out_of_output_and_log(world: World) -> None:
    world.ledger()
    result = world.executor.execute(world.one, world.request(input={"do": "echo", "note": "fine"}))
    assert result.output == {"said": "Bearer [redacted]", "[redacted]": ["fine"]}
    lines: list[Any] = []
    world.executor.execute(world.one, world.request("look", input={"do": "log"}, log=lambda *line: lines.append(line)))
    assert lines == [("info", "token [redacted]", {"token": "[redacted]"})]


# Later


def test_a_queued_call_is_performed_once(world: World) -> None:
    world.ledger()
    call_id = world.executor.enqueue(world.one, world.request(input={"amount": 5}, idempotency_key="k"))
    assert world.queued == [(TASK, "one", call_id)]
    assert Ledger.booked == []
    [row] = calls(world, status="queued")
    assert row.ahead == 0
    assert world.executor.enqueue(world.one, world.request(input={"amount": 5}, idempotency_key="k")) == call_id
    with pytest.raises(IdempotencyMismatch):
        world.executor.enqueue(world.one, world.request(input={"amount": 6}, idempotency_key="k"))
    for _ in range(2):
        world.executor.run_queued(world.one, call_id)
    assert Ledger.booked == [("book", "k", {"amount": 5})]
    row = history.get_call(world.one, "books", call_id)
    assert (row.status, row.output, row.ahead) == ("succeeded", {"n": 1}, None)
    assert db.rows("SELECT count(*) FROM integration_call WHERE pending IS NOT NULL") == [(0,)]
    assert len(world.queued) == 1


def test_a_queued_call_that_fails_says_so_in_its_record(world: World) -> None:
    world.ledger()
    call_id = world.executor.enqueue(world.one, world.request(input={"do": "Rejected"}))
    world.executor.run_queued(world.one, call_id)
    assert class_of(history.get_call(world.one, "books", call_id)) == "rejected"
    with pytest.raises(ValidationFailed):
        world.executor.enqueue(world.one, world.request("steal"))


def test_a_queued_input_is_sealed(world: World) -> None:
    world.ledger()
    world.executor.enqueue(world.one, world.request(input={"note": "personal data"}))
    assert b"personal" not in bytes(db.rows("SELECT pending FROM integration_call")[0][0])


def test_the_sweep_closes_what_a_dead_process_left(world: World) -> None:
    world.ledger()
    crash_while_sending(world, "book")
    assert world.executor.sweep(queue_is_empty=True) == 0
    assert world.restarted().sweep(queue_is_empty=True) == 1
    assert [(row.status, row.outcome) for row in calls(world)] == [("waiting", "unknown")]


def test_the_sweep_closes_what_ran_far_beyond_its_deadline(world: World) -> None:
    world.ledger()
    crash_while_sending(world, "set")
    db.write(lambda: world.one.update(CallRow, deadline_at=clock.now_ms() - 120_000).execute())
    assert world.executor.sweep(queue_is_empty=True) == 1
    assert [(row.status, row.outcome) for row in calls(world)] == [("failed", "unknown")]


def test_the_sweep_wakes_a_queued_call_whose_message_was_lost(world: World) -> None:
    world.ledger()
    call_id = world.executor.enqueue(world.one, world.request("set"))
    world.queued.clear()
    world.executor.sweep(queue_is_empty=True)
    assert world.queued == []
    db.write(lambda: world.one.update(CallRow, created_at=clock.now_ms() - 60_000).execute())
    world.executor.sweep(queue_is_empty=False)
    assert world.queued == []
    world.executor.sweep(queue_is_empty=True)
    assert world.queued == [(TASK, "one", call_id)]


def test_a_call_that_runs_in_another_living_process_is_in_flight(world: World) -> None:
    world.ledger()
    request = crash_while_sending(world, "book")
    beside = GovernedExecutor(world.integrations, "instance-2", None, lambda name: name == "instance-1")
    with pytest.raises(IdempotencyInFlight):
        beside.execute(world.one, request)
    beside.stop()


def test_old_records_are_purged_but_never_an_open_question(world: World) -> None:
    world.ledger()
    world.executor.execute(world.one, world.request())
    failure(world, input={"do": "TransientError unknown"})
    db.write(lambda: world.one.update(CallRow, finished_at=1).execute())
    assert history.purge_calls(1000) == 1
    assert [row.status for row in calls(world)] == ["waiting"]


# The real connector


def test_the_http_connector_works_through_the_executor(world: World) -> None:
    server = LoopbackServer()
    try:
        server.answers["/orders"] = lambda received: Answer(201, {"Content-Type": "application/json"}, received.body)
        settings = {"base_url": server.url, "auth": {"kind": "bearer", "token": "tok-123456"}}
        world.integrations.create_integration(world.one, "erp", Spec("http", settings))
        given = {"url": "/orders", "json": {"number": "1"}}
        request = ActionRequest("erp", "post", given, idempotency_key="exe_1.push", origin=HERE)
        assert world.executor.execute(world.one, request).output["body"] == {"number": "1"}
        assert world.executor.execute(world.one, request).status == "recorded"
        [received] = server.received
        assert received.headers["authorization"] == "Bearer tok-123456"
        assert received.headers["idempotency-key"] == "exe_1.push"
    finally:
        server.close()


def test_an_integration_that_is_down_is_a_coded_retryable_failure(world: World) -> None:
    settings = {"base_url": "http://127.0.0.1:1", "retries": {"attempts": 2, "wait_s": 0}}
    world.integrations.create_integration(world.one, "erp", Spec("http", settings))
    with pytest.raises(ActionFailed, match="accepts no connection") as caught:
        world.executor.execute(world.one, ActionRequest("erp", "post", {"url": "/x"}, idempotency_key="k"))
    assert (caught.value.outcome, caught.value.retryable) == ("not_done", True)
