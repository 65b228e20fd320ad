"""Foreign systems that are dead, slow, lying or asking for patience: calls are held back, and let go again by themselves."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from appliance.connectors.contract import TransientError
from appliance.connectors.testing import Answer, LoopbackServer, Received
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.governance.executor import executor as executing
from appliance.governance.executor.polling import PollRequest
from appliance.governance.executor.requests import ActionFailed, ActionRequest
from appliance.integrations import FAILURES, FIRST_OPEN_MS, Gate, Health, IntegrationSpec, Withheld, call_slots, gate, history
from appliance.monitor import logs
from tests.integrations.world import Ledger, World
from tests.tenants.fencing import KINDS, fenced


class Time:
    """Wall time that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = clock.now_ms()
        monkeypatch.setattr(clock, "now_ms", lambda: self.now)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    yield server
    server.close()


def expect_failure(
    world: World, do: str, action: str = "look", scope: TenantScope | None = None, **options: object
) -> ActionFailed:
    with pytest.raises(ActionFailed) as caught:
        world.executor.execute(scope or world.one, world.request(action, input={"do": do}, **options))
    return caught.value


def open_circuit(world: World, do: str = "TransientError") -> None:
    for _ in range(FAILURES):
        expect_failure(world, do)


def health(world: World, scope: TenantScope | None = None) -> Health:
    return world.integrations.health(scope or world.one, "books")


def test_a_circuit_opens_and_is_probed_again(world: World, time: Time) -> None:
    world.ledger()
    open_circuit(world)
    sent = len(Ledger.booked)
    error = expect_failure(world, "", "book")
    assert len(Ledger.booked) == sent
    assert (error.error_class, error.outcome, error.retryable, error.retry_after) == ("transient_error", "not_done", True, 10.0)
    assert error.extra["foreign"] == {"withheld": "circuit_open"}
    assert (health(world).state, health(world).failures, health(world).reason) == ("open", 5, "no, [redacted]")
    time.now += FIRST_OPEN_MS
    assert health(world).state == "half_open"
    world.executor.execute(world.one, world.request("look"))
    assert health(world) == Health()
    texts = [line.message for line in logs.list_lines(world.one, logs.LineFilter(source="integration"), PageRequest()).items]
    assert any("failed 5 times in a row; calls to it are paused for 10 s" in text for text in texts)
    assert any("is responding again; its circuit is closed" in text for text in texts)


def test_a_withheld_call_is_recorded_and_may_be_sent_again_with_its_key(world: World, time: Time) -> None:
    world.ledger()
    open_circuit(world)
    error = expect_failure(world, "", "book", idempotency_key="k")
    record = history.get_call(world.one, "books", error.call_id)
    assert (record.status, record.outcome, record.error and record.error["retry_after"]) == ("failed", "not_done", 10.0)
    time.now += FIRST_OPEN_MS
    done = world.executor.execute(world.one, world.request("book", input={"do": ""}, idempotency_key="k"))
    assert (done.status, done.call_id) == ("executed", error.call_id)


def test_one_probe_is_sent_while_the_circuit_is_half_open(world: World, time: Time) -> None:
    world.ledger()
    open_circuit(world)
    time.now += FIRST_OPEN_MS
    with ThreadPoolExecutor(1) as threads:
        trying = threads.submit(world.executor.execute, world.one, world.request("look", input={"do": "wait"}))
        assert Ledger.arrived.wait(10)
        assert expect_failure(world, "").retry_after == 2.0
        Ledger.go_on.set()
        trying.result(10)
    assert health(world).state == "closed"
    open_circuit(world)
    time.now += FIRST_OPEN_MS
    expect_failure(world, "TransientError")
    assert (health(world).state, health(world).open_until) == ("open", time.now + 2 * FIRST_OPEN_MS)


def test_of_two_processes_one_claims_the_probe(world: World, time: Time) -> None:
    world.ledger()
    open_circuit(world)
    time.now += FIRST_OPEN_MS
    refusals = [db.write(lambda: gate._claim_probe(world.one, "books", 30.0)) for _ in range(2)]
    assert [refusal and refusal.why for refusal in refusals] == [None, "circuit_open"]
    time.now += 30_000
    assert db.write(lambda: gate._claim_probe(world.one, "books", 30.0)) is None, "the process of the first is gone"


def test_circuits_are_separate_by_integration_and_tenant(world: World, time: Time) -> None:
    world.ledger()
    world.ledger(world.two)
    world.integrations.create_integration(world.one, "other", IntegrationSpec("ledger", {"token": "tok"}))
    open_circuit(world)
    world.executor.execute(world.two, world.request("look"))
    world.executor.execute(world.one, ActionRequest("other", "look", {}))
    assert health(world, world.two) == Health()


def test_an_open_circuit_holds_in_other_processes_and_after_a_restart(world: World, time: Time) -> None:
    world.ledger()
    open_circuit(world)
    with pytest.raises(ActionFailed) as caught:
        world.restart_executor().execute(world.one, world.request("look"))
    assert caught.value.extra["foreign"] == {"withheld": "circuit_open"}


def test_a_retry_after_withholds_the_next_call(world: World, time: Time) -> None:
    world.ledger()
    expect_failure(world, "RateLimited")
    sent = len(Ledger.booked)
    time.now += 3_000
    error = expect_failure(world, "", "book")
    assert (error.error_class, error.retryable, error.retry_after, error.outcome) == ("rate_limited", True, 4.0, "not_done")
    assert len(Ledger.booked) == sent
    assert health(world).held_until == time.now + 4_000
    time.now += 4_000
    world.executor.execute(world.one, world.request("book"))
    assert health(world).held_until is None


def test_a_poll_respects_the_circuit_like_a_call(world: World, time: Time, server: LoopbackServer) -> None:
    server.answers["/"] = lambda request: Answer(429, {"Retry-After": "30"}, b"")
    settings = {"base_url": server.url, "retries": {"attempts": 1}}
    world.integrations.create_integration(world.one, "books", IntegrationSpec("http", settings))
    request = PollRequest("books", "new_items", {"url": "/", "cursor_field": "id"})
    errors = []
    for _ in range(2):
        with pytest.raises(ActionFailed) as caught:
            world.executor.poll(world.one, request)
        errors.append((caught.value.error_class, caught.value.retry_after))
    assert errors == [("rate_limited", 30.0)] * 2
    assert len(server.received) == 1


def test_new_settings_and_a_successful_test_reset_the_circuit(world: World, time: Time) -> None:
    world.ledger()
    open_circuit(world)
    assert world.integrations.test_integration(world.one, "books").ok
    assert health(world) == Health()
    open_circuit(world)
    world.integrations.replace_integration(world.one, "books", IntegrationSpec("ledger", {"token": "a-second-token"}))
    assert health(world) == Health()
    open_circuit(world)
    world.integrations.replace_integration(world.one, "books", IntegrationSpec("ledger", {"token": "wrong"}))
    open_circuit(world)
    assert not world.integrations.test_integration(world.one, "books").ok
    assert health(world).state == "open"


def test_a_queued_call_stays_queued_while_it_is_withheld(world: World, time: Time) -> None:
    world.ledger()
    call_id = world.executor.enqueue(world.one, world.request("book"))
    world.queued.clear()
    time.now += 11_000
    expect_failure(world, "RateLimited")
    world.executor.run_queued(world.one, call_id)
    assert history.get_call(world.one, "books", call_id).status == "queued"
    time.now += 6_999
    world.executor.sweep(queue_is_empty=True)
    assert world.queued == []
    time.now += 1
    world.executor.sweep(queue_is_empty=True)
    assert world.queued == [(executing.TASK, "one", call_id)]
    world.executor.run_queued(world.one, call_id)
    record = history.get_call(world.one, "books", call_id)
    assert (record.status, record.tries) == ("succeeded", 1)


@pytest.mark.parametrize("how", KINDS)
def test_no_call_of_a_tenant_that_is_reset_or_deleted_is_made(world: World, time: Time, how: str) -> None:
    """Neither one that waits in the queue, nor a new one, nor one that is repeated with its key."""
    world.ledger()
    again = {"input": {"do": "Rejected"}, "idempotency_key": "again"}
    with pytest.raises(ActionFailed):
        world.executor.execute(world.one, world.request("set", **again))
    call_id = world.executor.enqueue(world.one, world.request("book"))
    time.now += 11_000
    seen = len(Ledger.seen)
    with fenced(world.one, how, ends_work=False):
        world.queued.clear()
        world.executor.sweep(queue_is_empty=True)
        assert world.queued == []
        world.executor.run_queued(world.one, call_id)
        for request in (world.request("book"), world.request("set", **again)):
            with pytest.raises(ApplianceError, match=r"is being reset|there is no tenant"):
                world.executor.execute(world.one, request)
    assert (history.get_call(world.one, "books", call_id).status, len(Ledger.seen)) == ("queued", seen)
    if how == "reset":  # a deletion never ends like this, and who was allowed what may be remembered for a moment
        world.executor.run_queued(world.one, call_id)
        record = history.get_call(world.one, "books", call_id)
        assert (record.status, record.error) == ("succeeded", None)


def test_a_queued_call_is_not_withheld_forever(world: World, time: Time) -> None:
    world.ledger()
    call_id = world.executor.enqueue(world.one, world.request("book"))
    time.now += 3_600_000
    expect_failure(world, "RateLimited")
    world.executor.run_queued(world.one, call_id)
    record = history.get_call(world.one, "books", call_id)
    assert (record.status, record.error and record.error["class"]) == ("failed", "rate_limited")


def test_calls_of_one_integration_wait_for_a_slot_with_a_limit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_slots, "MAX_WAIT", 0.05)
    world.ledger()
    world.ledger(world.two)
    gate_of_one, go_on, inside = Gate(), threading.Event(), threading.Semaphore(0)

    def slow(seconds: float) -> float:
        inside.release()
        assert go_on.wait(10)
        return seconds

    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(gate_of_one.run, world.one, "books", 30.0, slow, 2) for _ in range(2)]
        assert all(inside.acquire(timeout=10) for _ in range(2))
        with pytest.raises(Withheld) as caught:
            gate_of_one.run(world.one, "books", 30.0, slow, 2)
        assert (caught.value.why, caught.value.outcome) == ("busy", "not_done")
        assert gate_of_one.run(world.two, "books", 30.0, lambda seconds: seconds, 2) > 29
        assert gate_of_one.run(world.one, "other", 30.0, lambda seconds: seconds, 2) > 29
        monkeypatch.setattr(call_slots, "MAX_WAIT", 10.0)
        waiting = threads.submit(gate_of_one.run, world.one, "books", 30.0, slow, 2)
        go_on.set()
        wait([*running, waiting], 10)
        assert 25 < waiting.result() <= 30, "it goes as soon as a place is free"


def test_an_integration_deleted_during_a_call_leaves_no_circuit(world: World) -> None:
    world.ledger()
    with ThreadPoolExecutor(1) as threads:
        pending = threads.submit(Gate().run, world.one, "books", 30.0, wait_and_fail)
        assert Ledger.arrived.wait(10)
        world.integrations.delete_integration(world.one, "books")
        Ledger.go_on.set()
        assert isinstance(pending.exception(10), TransientError)
    assert gate.open_circuits() == 0


def wait_and_fail(seconds: float) -> None:
    Ledger.arrived.set()
    assert Ledger.go_on.wait(seconds)
    raise TransientError("gone")


@pytest.mark.parametrize(
    ("answer", "error_class"),
    [
        (Answer(503, {}, b"down"), "transient_error"),
        (Answer(200, {"content-type": "application/json"}, b"<html>Sign in</html>"), "system_error"),
        (Answer(200, {"content-encoding": "gzip"}, b"no gzip"), "system_error"),
    ],
)
def test_dead_and_misbehaving_servers_open_the_circuit(
    world: World, time: Time, server: LoopbackServer, answer: Answer, error_class: str
) -> None:
    server.answers["/"] = lambda request: answer
    settings = {"base_url": server.url, "retries": {"attempts": 1}}
    world.integrations.create_integration(world.one, "books", IntegrationSpec("http", settings))
    seen = []
    for _ in range(FAILURES + 2):
        with pytest.raises(ApplianceError) as caught:
            world.executor.execute(world.one, ActionRequest("books", "list", {"url": "/"}))
        seen.append(caught.value.extra["error_class"])
    assert seen[:FAILURES] == [error_class] * FAILURES
    assert health(world).state == "open"
    assert len(server.received) == FAILURES


def test_a_slow_server_is_waited_for_until_the_deadline(
    world: World, time: Time, server: LoopbackServer
) -> None:
    go_on = threading.Event()

    def answer(request: Received) -> Answer:
        go_on.wait(20)
        return Answer(200, {}, b"late")

    server.answers["/"] = answer
    settings = {"base_url": server.url, "retries": {"attempts": 1}}
    world.integrations.create_integration(world.one, "books", IntegrationSpec("http", settings))
    try:
        for number in range(FAILURES):
            with pytest.raises(ActionFailed) as caught:
                world.executor.execute(world.one, ActionRequest("books", "get", {"url": "/"}, seconds=0.1))
            assert (caught.value.error_class, health(world).failures) == ("transient_error", number + 1)
    finally:
        go_on.set()
    assert health(world).state == "open"
