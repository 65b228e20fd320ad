"""Once and only once: keys, crashes, verdicts, the queue."""

import threading
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import (
    ApplianceError,
    ConcurrencyLimited,
    Conflict,
    IdempotencyInFlight,
    IdempotencyMismatch,
    NotFound,
    ValidationFailed,
)
from appliance.core.pages import PageRequest
from appliance.governance.executor.executor import TASK, GovernedExecutor, Instance
from appliance.governance.executor.requests import ActionRequest
from appliance.integrations import CallFilter, CallRecord, Origin, OutcomeUnknown, history
from appliance.integrations.models import CallRow
from tests.governance.ruling import make_governor
from tests.integrations.world import Ledger, World

ORIGIN = Origin("exe_1", "push", "0", 1, 3)


def calls(world: World, **filters: Any) -> list[CallRecord]:
    return list(history.list_calls(world.one, "books", CallFilter(**filters), PageRequest()).items)


def class_of(record: CallRecord) -> str:
    assert record.error is not None
    return str(record.error["class"])


def failure(world: World, **options: Any) -> ApplianceError:
    with pytest.raises(ApplianceError) as caught:
        world.executor.execute(world.one, world.request(**options))
    return caught.value


def test_a_finished_call_is_answered_from_its_record(world: World) -> None:
    world.ledger()
    request = world.request(input={"amount": 5}, idempotency_key="k", origin=ORIGIN)
    first = world.executor.execute(world.one, request)
    for executor in (world.executor, world.restart_executor()):
        repeated = executor.execute(world.one, request)
        assert (repeated.status, repeated.output, repeated.call_id) == ("recorded", first.output, first.call_id)
    assert len(Ledger.booked) == 1


def test_idempotency_keys_are_scoped_to_a_tenant(world: World) -> None:
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
    request: dict[str, Any] = {"input": {"do": "TransientError not_done"}, "idempotency_key": "k", "origin": ORIGIN}
    for _ in range(3):
        failure(world, **request)
    assert [key for _, key, _ in Ledger.booked] == ["k"] * 3
    assert [row.tries for row in calls(world)] == [3]


def test_a_key_used_for_another_request_is_a_mismatch(world: World) -> None:
    world.ledger()
    world.executor.execute(world.one, world.request(input={"amount": 1}, idempotency_key="k"))
    assert isinstance(failure(world, input={"amount": 2}, idempotency_key="k"), IdempotencyMismatch)
    assert isinstance(failure(world, action="set", input={"amount": 1}, idempotency_key="k"), IdempotencyMismatch)


def test_a_repeated_attempt_with_another_request_is_another_call(world: World) -> None:
    world.ledger()
    world.executor.execute(world.one, world.request(input={"amount": 1}, idempotency_key="k", origin=ORIGIN))
    other = world.executor.execute(world.one, world.request(input={"amount": 2}, idempotency_key="k", origin=ORIGIN))
    assert other.status == "executed"
    keys = [key for _, key, _ in Ledger.booked]
    assert keys[0] == "k"
    assert keys[1].startswith("k.")


@pytest.mark.parametrize("amount", [1, 2])
def test_a_write_of_unknown_outcome_is_never_sent_again_by_itself(world: World, amount: int) -> None:
    world.ledger()
    failed = failure(world, input={"do": "TransientError unknown", "amount": 1}, idempotency_key="k", origin=ORIGIN)
    for executor in (world.executor, world.restart_executor()):
        with pytest.raises(OutcomeUnknown, match="settle") as caught:
            executor.execute(
                world.one,
                world.request(input={"do": "TransientError unknown", "amount": amount}, idempotency_key="k", origin=ORIGIN),
            )
        assert caught.value.extra == {"call_id": failed.extra["call_id"], "outcome": "unknown", "retryable": False}
        assert (caught.value.code, caught.value.status) == ("connector_failed", 502)
    assert len(Ledger.booked) == 1


def crash_while_sending(world: World, action: str) -> ActionRequest:
    """Leave the record as a process does that is killed after sending: running, by an instance that is gone."""
    request = world.request(action, input={"amount": 1}, idempotency_key="k", origin=ORIGIN)
    world.executor.execute(world.one, request)
    db.write(lambda: world.one.update(CallRow, status="running", outcome=None, finished_at=None, output=None).execute())
    return request


def test_after_a_crash_a_write_is_unknown_and_waits_for_a_person(world: World) -> None:
    world.ledger()
    request = crash_while_sending(world, "book")
    with pytest.raises(OutcomeUnknown):
        world.restart_executor().execute(world.one, request)
    [row] = calls(world, status="waiting")
    assert (row.outcome, len(Ledger.booked)) == ("unknown", 1)


def test_after_a_crash_an_idempotent_call_is_taken_over_with_its_key(world: World) -> None:
    world.ledger()
    request = crash_while_sending(world, "set")
    assert world.restart_executor().execute(world.one, request).status == "executed"
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


def test_slow_calls_of_one_tenant_leave_room_for_others(world: World) -> None:
    go_on = threading.Event()
    waiting = [world.executor.submit(world.one, lambda: go_on.wait(10)) for _ in range(16)]
    with pytest.raises(ConcurrencyLimited) as caught:
        world.executor.submit(world.one, lambda: True)
    assert caught.value.headers == {"Retry-After": "1"}
    assert world.executor.submit(world.two, lambda: "done").result(5) == "done"
    go_on.set()
    assert all(future.result(5) for future in waiting)
    assert world.executor.submit(world.one, lambda: "done").result(5) == "done"


def test_an_answer_too_large_to_store_is_returned_once(world: World) -> None:
    world.ledger()
    request = world.request(input={"do": "huge"}, idempotency_key="k")
    assert len(world.executor.execute(world.one, request).output["x"]) == 2_000_000
    assert isinstance(failure(world, input={"do": "huge"}, idempotency_key="k"), Conflict)
    assert len(Ledger.booked) == 1


# A person's verdict


def test_a_person_settles_an_unknown_outcome(world: World) -> None:
    world.ledger()
    options: dict[str, Any] = {"input": {"do": "TransientError unknown"}, "idempotency_key": "k", "origin": ORIGIN}
    call_id = failure(world, **options).extra["call_id"]
    settled = history.settle_call(world.one, "books", call_id, done=True, output={"n": 9})
    assert (settled.status, settled.outcome) == ("succeeded", "done")
    result = world.executor.execute(world.one, world.request(**options))
    assert (result.status, result.output) == ("recorded", {"n": 9})
    with pytest.raises(Conflict, match="succeeded"):
        history.settle_call(world.one, "books", call_id, done=False, output=None)
    with pytest.raises(NotFound):
        history.settle_call(world.two, "books", call_id, done=True, output=None)


def test_a_call_settled_as_not_done_may_be_sent_again(world: World) -> None:
    world.ledger()
    options: dict[str, Any] = {"input": {"do": "TransientError unknown"}, "idempotency_key": "k", "origin": ORIGIN}
    call_id = failure(world, **options).extra["call_id"]
    history.settle_call(world.one, "books", call_id, done=False, output=None)
    failure(world, **options)
    assert [key for _, key, _ in Ledger.booked] == ["k", "k"]


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
    assert world.restart_executor().sweep(queue_is_empty=True) == 1
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
    beside = GovernedExecutor(
        world.integrations, make_governor(world.sealer), Instance("instance-2", None, lambda name: name == "instance-1")
    )
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
