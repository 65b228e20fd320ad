"""Shared threads: one tenant's wide work leaves room for others and is itself done in order."""

import threading
from functools import partial

import pytest

from appliance.core.pools import PoolSize
from appliance.processes.scheduling.fair_threads import FairThreadPool


def test_a_tenant_with_much_to_do_leaves_places_for_another() -> None:
    threads, go_on = FairThreadPool(PoolSize("test", 4)), threading.Event()
    many = [threads.submit("a", lambda: go_on.wait(20)) for _ in range(100)]
    assert threads.submit("b", lambda: "done").result(10) == "done"
    go_on.set()
    assert all(each.result(10) for each in many)
    threads.shutdown()


def test_a_tenant_is_served_in_order_and_gets_every_answer_and_error() -> None:
    threads = FairThreadPool(PoolSize("test", 1))
    seen: list[int] = []
    done = [threads.submit("a", partial(seen.append, number)) for number in range(50)]
    broken = threads.submit("a", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        broken.result(10)
    assert all(each.done() for each in done)
    assert seen == list(range(50))
    threads.shutdown()


def test_waiting_calls_are_cancelled_on_shutdown() -> None:
    threads, go_on, started = FairThreadPool(PoolSize("test", 1)), threading.Event(), threading.Event()

    def block() -> bool:
        started.set()
        return go_on.wait(20)

    first, second = threads.submit("a", block), threads.submit("a", lambda: True)
    assert started.wait(10)
    threads.shutdown()
    go_on.set()
    assert first.result(10)
    assert second.cancelled()
    with pytest.raises(RuntimeError):
        threads.submit("a", lambda: None)
