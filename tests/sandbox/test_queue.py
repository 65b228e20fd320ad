"""Waiting for a sandbox process: tenants take turns, the queue is bounded, and steps of a dead process fail at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest

from appliance.sandbox import HostCall, Limits, Outcome, Pool, Program, Settings, Settled
from appliance.sandbox.pool.lane import Bounds, Busy, Lane
from appliance.sandbox.pool.slot_queue import SlotQueue
from tests.sandbox.paused_steps import CALLING, RunningStep, StoppingHost, until

Make = Callable[..., Program]


@contextmanager
def started_pool(**settings: Any) -> Any:
    created_pool = Pool(Settings(processes=1, **settings))
    created_pool.start()
    try:
        yield created_pool
    finally:
        created_pool.stop()


def test_tenants_take_turns_however_many_steps_one_of_them_has() -> None:
    waiting = SlotQueue(100)
    for namespace in ["a"] * 5 + ["b"] * 2 + ["c"]:
        assert waiting.add(namespace) is not None
    order = []
    while (waiter := waiting.pop()) is not None:
        order.append(waiter.namespace)
    assert order == ["a", "b", "c", "a", "b", "a", "a", "a"]
    assert len(waiting) == 0
    assert waiting.oldest_seconds() == 0


def test_a_removed_waiter_is_skipped() -> None:
    waiting = SlotQueue(3)
    first, second, third = (waiting.add(name) for name in "aba")
    assert waiting.add("c") is None
    assert first is not None
    waiting.remove(first)
    assert waiting.oldest_seconds() > 0
    assert [waiting.pop(), waiting.pop(), waiting.pop()] == [third, second, None]


def test_a_step_of_another_tenant_overtakes_the_queue_of_the_first(prepared: None, make_program: Make) -> None:
    ended: list[str] = []
    with started_pool(slots=1) as pool:
        holding = RunningStep(pool, make_program(CALLING, namespace="ten_a"))
        holding.host.called.wait(10)

        def work(namespace: str) -> None:
            assert pool.run(make_program("export default () => 1", namespace=namespace), {}).output == 1
            ended.append(namespace)

        threads = []
        for number, namespace in enumerate(["ten_a"] * 6 + ["ten_b"]):
            threads.append(threading.Thread(target=work, args=(namespace,)))
            threads[-1].start()
            until(lambda number=number: pool.health()["queued"] == number + 1)  # type: ignore[misc]
        assert pool.health()["oldest_wait_ms"] > 0
        holding.finish()
        for each in threads:
            each.join(10)
    assert ended.index("ten_b") in (1, 2)  # second in turn; who says so first is up to the threads


def test_expressions_and_decisions_take_their_tenants_turn(prepared: None, make_program: Make) -> None:
    decision = {
        "nodes": [{"id": "1", "type": "inputNode", "name": "in"}, {"id": "2", "type": "outputNode", "name": "out"}],
        "edges": [{"id": "e", "sourceId": "1", "targetId": "2"}],
    }
    ended: list[str] = []
    with started_pool(slots=1) as pool:

        def evaluate(namespace: str) -> None:
            assert pool.evaluate({"a": "1 + 1"}, {}, namespace=namespace)["a"].value == 2
            ended.append(namespace)

        def decide(namespace: str) -> None:
            assert pool.decide(decision, {"n": 1}, namespace=namespace).value == {"n": 1}
            ended.append(namespace)

        decide("warm-up")
        for lane, work in ((pool._code, evaluate), (pool._decisions, decide)):
            ended.clear()
            threads = []
            with lane.slot(5, "ten_a"):
                for number, namespace in enumerate(["ten_a"] * 6 + ["ten_b"]):
                    threads.append(threading.Thread(target=work, args=(namespace,)))
                    threads[-1].start()
                    until(lambda number=number, lane=lane: lane.health()["queued"] == number + 1)  # type: ignore[misc]
            for each in threads:
                each.join(10)
            assert ended.index("ten_b") in (1, 2)


def test_a_full_queue_refuses_at_once_and_says_to_retry(prepared: None, make_program: Make) -> None:
    step = make_program(CALLING)
    with started_pool(slots=1, queue_places=1, queue_seconds=30) as pool:
        running = RunningStep(pool, step)
        running.host.called.wait(10)
        waiting = RunningStep(pool, step)
        until(lambda: pool.health()["queued"] == 1)
        began = time.monotonic()
        failure = pool.run(step, {}).failure
        assert time.monotonic() - began < 10, "it would have waited for half a minute"
        assert failure is not None
        assert (failure.code, failure.failure_class, failure.retryable) == ("sandbox_busy", "system", True)
        assert failure.message == "the queue of the sandbox is full (1 waiting); try again later"
        assert [each.finish().output for each in (running, waiting)] == ["done", "done"]


def test_waiting_steps_fail_at_once_when_their_process_dies(
    prepared: None, make_program: Make
) -> None:
    with started_pool(slots=2) as pool:
        steps = [RunningStep(pool, make_program(CALLING, namespace=namespace)) for namespace in ("ten_a", "ten_b")]
        for each in steps:
            each.host.called.wait(10)
        (victim,) = pool.process_ids()
        killed = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        assert all(each.host.timeouts[0] > 25 for each in steps), "a call may take all the time the step has left"
        # Their calls are never answered: nothing but the death of the process can end them before the limit of 30 s.
        failures = [each.wait_ended(10).failure for each in steps]
        assert time.monotonic() - killed < 10
        assert [(each.code, each.retryable) for each in failures if each is not None] == [("sandbox_lost", True)] * 2
        until(lambda: pool.health()["processes"] == 1)
        assert pool.restarts() == {"lost": 1}
        assert pool.run(make_program("export default () => 1", namespace="ten_a"), {}).output == 1


class RecordingObserver:
    def __init__(self) -> None:
        self.waits: list[tuple[str, float]] = []
        self.replacements: list[tuple[str, str]] = []
        self.steps: list[tuple[str, str | None]] = []

    def waited(self, lane: str, seconds: float) -> None:
        self.waits.append((lane, seconds))

    def replaced(self, lane: str, reason: str) -> None:
        self.replacements.append((lane, reason))

    def stepped(self, language: str, outcome: Outcome) -> None:
        self.steps.append((language, outcome.failure.code if outcome.failure else None))


def test_an_observer_is_notified_of_waits_and_replacements(prepared: None, make_program: Make) -> None:
    seen = RecordingObserver()
    with started_pool(slots=1) as pool:
        pool.observe(seen)
        step = make_program(CALLING)
        assert pool.compile(step) == []
        (victim,) = pool.process_ids()
        assert pool.run(step, {}, StoppingHost(victim), limits=Limits(wall_ms=300)).failure is not None
        until(lambda: pool.health()["processes"] == 1)
        assert pool.restarts() == {"overdue": 1}
    assert [lane for lane, _ in seen.waits] == ["code", "code"]
    assert all(0 <= seconds < 10 for _, seconds in seen.waits)
    assert seen.replacements == [("code", "overdue")]
    assert seen.steps == [("typescript", "time_limit")]


def make_lane(pool: Pool, **bounds: Any) -> Lane:
    """A lane of one process whose memory is looked at all the time."""
    lane = Lane("code", pool._lanes._code_lane()._settings, 1, 2, Bounds(watch_seconds=0.05, **bounds))
    lane.start()
    return lane


def test_an_idle_process_that_holds_too_much_memory_is_replaced(pool: Pool) -> None:
    lane = make_lane(pool, idle_bytes=1)
    try:
        until(lambda: lane.restarts().get("memory", 0) >= 1)
        with lane.slot(5) as slot:
            assert slot.process.own_bytes() > 1 << 20
    finally:
        lane.stop()


def test_a_process_that_holds_too_much_finishes_its_steps_and_gets_no_more(pool: Pool) -> None:
    lane = make_lane(pool, idle_bytes=1, busy_bytes=0)
    try:
        with lane.slot(5) as slot:
            old = slot.process
            until(lambda: old not in lane._processes)
            assert old.child.poll() is None
            assert not slot.channel.is_gone()
        until(lambda: old.condemned)
        until(lambda: not lane._drained)
    finally:
        lane.stop()
    assert old.child.returncode == -signal.SIGKILL


def test_a_process_of_ordinary_size_is_kept(pool: Pool) -> None:
    lane = make_lane(pool)
    try:
        (number,) = lane.process_ids()
        for _ in range(10):
            with lane.slot(5):
                threading.Event().wait(0.02)
        assert lane.process_ids() == [number]
        assert lane.restarts() == {}
    finally:
        lane.stop()


class LateHost:
    """Answers when the process is dead already."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._call: HostCall | None = None

    def submit(self, call: HostCall, clock: list[int]) -> None:
        self._call = call

    def wait(self, timeout: float) -> Settled | None:
        assert self._call is not None
        for number in self._pool.process_ids():
            os.kill(number, signal.SIGKILL)
        return Settled(self._call.id, True, None)


def test_an_answer_after_the_process_died_fails_the_step(prepared: None, make_program: Make) -> None:
    with started_pool(slots=1) as pool:
        failure = pool.run(make_program(CALLING), {}, LateHost(pool)).failure
        assert failure is not None
        assert failure.code == "sandbox_lost"


def test_waiting_too_long_for_a_lane_fails_as_busy(pool: Pool) -> None:
    lane = make_lane(pool)
    try:
        with lane.slot(5), lane.slot(5), pytest.raises(Busy, match=r"no sandbox became free within 0\.05 s"), lane.slot(0.05):
            pass
        assert lane.health()["queued"] == 0
    finally:
        lane.stop()


def test_waiters_are_refused_at_once_when_the_sandbox_stops(prepared: None, make_program: Make) -> None:
    pool = Pool(Settings(processes=1, slots=1, queue_seconds=60))
    pool.start()
    holding = RunningStep(pool, make_program(CALLING, namespace="ten_a"))
    holding.host.called.wait(10)
    waiting = RunningStep(pool, make_program(CALLING, namespace="ten_b"))
    until(lambda: pool.health()["queued"] == 1)
    began = time.monotonic()
    pool.stop()
    failure = waiting.wait_ended(10).failure
    assert failure is not None
    assert failure.code == "sandbox_busy"
    assert time.monotonic() - began < 10, "it would have waited for a minute"
