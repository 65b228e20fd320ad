"""Type checks of one tenant leave the checker, and the threads that wait for it, to everybody else."""

import threading
from contextlib import ExitStack

import pytest

from appliance.core.errors import ConcurrencyLimited
from appliance.sandbox import Pool, TypeCheck
from appliance.sandbox.pool.slot_queue import SlotQueue, Waiter
from appliance.sandbox.typecheck.share import PER_TENANT, Share


def test_one_tenant_has_few_type_checks_under_way() -> None:
    share = Share()
    with ExitStack() as stack:
        for _ in range(PER_TENANT):
            stack.enter_context(share.slot("acme"))
        with pytest.raises(ConcurrencyLimited, match="type checks of this tenant") as refused:
            stack.enter_context(share.slot("acme"))
        assert refused.value.headers["Retry-After"] == "5"
        stack.enter_context(share.slot("globex"))
    with share.slot("acme"):
        pass


def test_bombs_of_one_tenant_hold_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, free, started = Pool(), threading.Event(), threading.Semaphore(0)
    outcomes: list[str] = []

    def never_ending(*_: object, **__: object) -> object:
        started.release()
        free.wait()
        return {}, [b"[]"], None

    def check(number: int, tenant: str) -> None:
        try:
            pool.check_types(TypeCheck({f"steps/bomb{number}.ts": "x"}, "", [], namespace=tenant))
            outcomes.append("checked")
        except ConcurrencyLimited:
            outcomes.append("refused")

    monkeypatch.setattr(pool, "_ask_types", never_ending)
    bombs = [threading.Thread(target=check, args=(number, "acme")) for number in range(8)]
    try:
        for each in bombs:
            each.start()
        for _ in range(PER_TENANT):
            assert started.acquire(timeout=60)
        for each in bombs:
            each.join(0 if len(outcomes) >= 8 - PER_TENANT else 30 / 8)
        assert outcomes == ["refused"] * (8 - PER_TENANT)
        other = threading.Thread(target=check, args=(99, "globex"))
        other.start()
        assert started.acquire(timeout=60)
    finally:
        free.set()
        for each in bombs:
            each.join()
    other.join()
    assert sorted(outcomes) == ["checked"] * (PER_TENANT + 1) + ["refused"] * (8 - PER_TENANT)


def test_one_tenant_fills_half_of_the_queue_before_the_sandbox() -> None:
    waiting = SlotQueue(10)
    assert [isinstance(waiting.add("acme"), Waiter) for _ in range(8)] == [True] * 5 + [False] * 3
    assert isinstance(waiting.add("globex"), Waiter)
    order = [waiter.namespace for _ in range(3) if (waiter := waiting.pop()) is not None]
    assert order == ["acme", "globex", "acme"]
