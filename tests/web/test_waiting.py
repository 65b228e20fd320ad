"""Requests that run their executions themselves take turns, so that many at once do not slow each other down."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from appliance.processes import Execution, RunAtOnce, Waiter
from appliance.tenants import Turns
from appliance.testing.running import make_config, start
from appliance.web import Services, start_and_record, waiting


class HeldThreads(Executor):
    """Threads that begin nothing by themselves."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Future[Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((partial(fn, *args, **kwargs), future))
        return future

    def finish_one(self) -> None:
        work, future = self.jobs.pop(0)
        future.set_result(work())


async def execute_in_turn(services: Services, begin: Callable[[Waiter], Execution]) -> Execution:
    async with services.limits.starts.turn("acme"):
        return await start_and_record(services, begin, lambda: None)


async def test_no_more_than_most_occupy_threads_and_the_others_follow() -> None:
    threads = HeldThreads()
    services = make_services(2, threads, seconds=60.0)

    def start(name: str, waiter: Waiter) -> Execution:
        return Execution(id=name, status="succeeded")

    async def execute(name: str) -> str:
        return str((await execute_in_turn(services, partial(start, name))).id)

    async with asyncio.timeout(20):
        callers = [asyncio.create_task(execute(f"e{n}")) for n in range(5)]
        for n, caller in enumerate(callers):
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(threads.jobs) == min(2, 5 - n)
            threads.finish_one()
            assert await caller == f"e{n}"


def make_services(most: int, threads: Executor, seconds: float = 0.01) -> Services:
    """What `start_and_record` needs of the services: threads, and turns that last `seconds`."""
    return cast("Services", SimpleNamespace(limits=SimpleNamespace(starts=Turns(most, seconds)), threads=threads))


class SlowRun:
    """An execution that lasts until it is released, and is recorded meanwhile."""

    def __init__(self, name: str) -> None:
        self.row = Execution(id=name, status="succeeded")
        self.released = threading.Event()
        self.has_recorded = False

    def start(self, waiter: Waiter) -> Execution:
        assert waiter.on_run is not None
        waiter.on_run(cast("RunAtOnce", self))
        self.released.wait()
        return self.row

    def record(self, on_finished: Any) -> Execution:
        self.has_recorded = True
        return Execution(id=self.row.id, status="running")


async def test_slow_executions_give_their_turns_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "AT_ONCE_SECONDS", 0.01)
    services = make_services(2, ThreadPoolExecutor(8))
    slow = [SlowRun("slow-1"), SlowRun("slow-2")]
    async with asyncio.timeout(20):
        recorded = await asyncio.gather(*(execute_in_turn(services, each.start) for each in slow))
        quick = await execute_in_turn(services, lambda waiter: Execution(id="quick", status="succeeded"))
    for each in slow:
        each.released.set()
    assert [(row.id, row.status) for row in recorded] == [("slow-1", "running"), ("slow-2", "running")]
    assert all(each.has_recorded for each in slow)
    assert quick.id == "quick"


async def test_the_error_of_a_start_is_the_callers_and_ends_its_turn() -> None:
    services = make_services(1, ThreadPoolExecutor(1))
    for _ in range(3):

        def fail(waiter: Waiter) -> Execution:
            raise LookupError("there is no such process")

        async with asyncio.timeout(20):
            with pytest.raises(LookupError, match="no such process"):
                await execute_in_turn(services, fail)


async def test_tenants_take_turns() -> None:
    turns, served = Turns(1, seconds=60.0), list[str]()

    async def serve(tenant: str) -> None:
        async with turns.turn(tenant):
            served.append(tenant)

    async with turns.turn("acme"):
        waiting_requests = [asyncio.create_task(serve(tenant)) for tenant in ("acme", "acme", "acme", "globex", "globex")]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting_requests)
    assert served == ["acme", "globex", "acme", "globex", "acme"]


async def test_a_caller_that_leaves_does_not_keep_its_turn() -> None:
    turns = Turns(1, seconds=60.0)
    async with turns.turn("acme"):
        leaving = asyncio.create_task(turns.acquire("acme"))
        await asyncio.sleep(0)
        leaving.cancel()
    async with asyncio.timeout(20), turns.turn("globex"):
        with pytest.raises(asyncio.CancelledError):
            await leaving


@pytest.mark.parametrize("key", [{}, {"Idempotency-Key": "once"}])
def test_an_execution_that_waits_or_is_queued_keeps_nobody_waiting(tmp_path: Path, key: dict[str, str]) -> None:
    running = start(make_config(tmp_path, queue__workers=1))
    limits = running.services.limits
    object.__setattr__(limits, "starts", Turns(1, seconds=3_600.0))
    try:
        with running.api("acme") as api, ThreadPoolExecutor(2) as callers:
            for name, step in (("quick", {"rule": {"expression": "= input.n * 2"}}), ("slow", {"wait": {"for": "1h"}})):
                api.post("/api/v1/processes", json={"id": name, "steps": [{"id": "a", **step}]}).raise_for_status()
                api.post(f"/api/v1/processes/{name}/publish", json={}).raise_for_status()

            def execute(name: str, headers: dict[str, str]) -> httpx.Response:
                return api.post(f"/api/v1/processes/{name}/execute?wait=60", json={"n": 2}, headers=headers)

            assert running.services.processes._fast.take()  # the only place: what comes now is queued
            slow = callers.submit(execute, "slow", key)
            while not (listed := api.get("/api/v1/executions?status=waiting").json()["data"]):
                pass
            running.services.processes._fast.release()
            quick = callers.submit(execute, "quick", {}).result(timeout=30)
            assert (quick.status_code, quick.json()["data"]["output"]) == (200, 4)
            assert not slow.done()
            api.post(f"/api/v1/processes/slow/executions/{listed[0]['execution_id']}/cancel", json={}).raise_for_status()
            assert slow.result(timeout=30).json()["data"]["status"] == "cancelled"
    finally:
        running.stop()
