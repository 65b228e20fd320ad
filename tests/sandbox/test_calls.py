"""Calls of api: their order, their numbers, their answers, and a host that fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from appliance.sandbox import HostCall, Limits, Outcome, Pool, Settled

Run = Callable[..., Outcome]


def test_calls_are_numbered_in_the_order_they_are_made(run: Run, recording_host: Any) -> None:
    host = recording_host()
    body = """const a = await api.datapool.create('orders', {n: 1});
    const b = await Promise.all([1, 2].map((k) => api.integrations.execute('erp', 'get', {k})));
    return [a, b]"""
    assert run(body, host=host).output == [{"id": 1}, [{"id": 2}, {"id": 3}]]
    assert [(call.id, call.method, call.args) for call in host.calls] == [
        (1, "datapool.create", ["orders", {"n": 1}]),
        (2, "integrations.execute", ["erp", "get", {"k": 1}]),
        (3, "integrations.execute", ["erp", "get", {"k": 2}]),
    ]
    assert host.calls[0].raw == b'["orders",{"n":1}]'


def test_every_method_of_the_api_reaches_the_host_under_its_name(run: Run, recording_host: Any) -> None:
    host = recording_host()
    run(
        """for (const [space, methods] of Object.entries(api) as any)
      if (space !== 'log' && space !== 'execution' && typeof methods === 'object')
        for (const method of Object.keys(methods)) await api[space][method](1)""",
        host=host,
    )
    assert [call.method for call in host.calls] == [
        "integrations.execute",
        *(f"datapool.{each}" for each in ("find", "query", "create", "update", "upsert", "delete", "batch")),
        *("documents.get", "documents.read", "documents.create", "processes.execute", "human.request"),
        *("wait.for", "wait.until", "events.wait", "llm.generate", "secrets.get"),
    ]


def test_answers_may_come_in_any_order(run: Run, recording_host: Any) -> None:
    body = """const seen = [];
    await Promise.all([1, 2, 3].map(async (k) => { await api.datapool.find('o', k); seen.push(k) }));
    return seen"""
    assert run(body, host=recording_host(newest_first=True)).output == [3, 2, 1]


def test_calls_beyond_those_in_flight_wait_for_their_turn(run: Run, recording_host: Any) -> None:
    host = recording_host()
    body = "return (await Promise.all(Array.from({length: 50}, (_, k) => api.datapool.find('o', k)))).map((r) => r.id)"
    assert run(body, host=host, limits=Limits(in_flight=8)).output == list(range(1, 51))
    assert host.most_in_flight == 8


def test_a_refusal_is_thrown_with_code_message_and_position(run: Run, recording_host: Any) -> None:
    fault = {"code": "connector_failed", "message": "erp is down", "retryable": True, "failure_class": "connector"}
    host = recording_host(lambda call: Settled(call.id, False, fault))
    body = """try { await api.integrations.execute('erp', 'get') }
    catch (e) { return [e instanceof Error, e.code, e.message, e.retryable] }"""
    assert run(body, host=host).output == [True, "connector_failed", "erp is down", True]
    failure = run("\nawait api.integrations.execute('erp', 'get')", host=host).failure
    assert failure is not None
    assert (failure.failure_class, failure.code, failure.message, failure.retryable) == (
        "connector",
        "connector_failed",
        "erp is down",
        True,
    )
    assert failure.position is not None
    assert failure.position.line == 3


def test_without_a_host_every_call_is_refused(run: Run) -> None:
    failure = run("await api.datapool.find('orders', 1)").failure
    assert failure is not None
    assert failure.code == "policy_denied"


def test_a_call_nobody_awaits_is_still_answered(run: Run, recording_host: Any) -> None:
    host = recording_host()
    outcome = run("api.datapool.create('orders', {}); return 1", host=host)
    assert (outcome.output, outcome.host_calls, len(host.calls)) == (1, 1, 1)


def test_a_call_nobody_awaits_that_fails_fails_the_step(run: Run, recording_host: Any) -> None:
    host = recording_host(lambda call: Settled(call.id, False, {"code": "conflict", "message": "no", "retryable": False}))
    failure = run("api.datapool.create('orders', {}); return 1", host=host).failure
    assert failure is not None
    assert failure.code == "conflict"


def test_answers_are_data_of_any_size(run: Run, recording_host: Any) -> None:
    text = "ä" * 700_000
    host = recording_host(lambda call: Settled(call.id, True, {"text": text}))
    assert run("return (await api.documents.read('d')).text.length", host=host).output == 700_000


def test_an_answer_may_be_json_already(run: Run, recording_host: Any) -> None:
    host = recording_host(lambda call: Settled(call.id, True, b'{"n": [1, 2]}'))
    assert run("return await api.datapool.find('o', 1)", host=host).output == {"n": [1, 2]}


def test_an_answer_that_is_not_json_is_an_error_of_the_host(run: Run, pool: Pool, recording_host: Any) -> None:
    host = recording_host(lambda call: Settled(call.id, True, {1, 2}))
    with pytest.raises(TypeError):
        run("await api.datapool.find('o', 1)", host=host)
    assert pool.health()["busy"] == 0
    assert run("return 1").output == 1


class FenceLost(Exception):
    """The engine no longer owns the execution."""


class Watching:
    """A host that loses its patience with the second look at a step that computes."""

    def __init__(self) -> None:
        self.looks = 0

    def submit(self, call: HostCall, clock: list[int]) -> None: ...

    def wait(self, timeout: float) -> Settled | None:
        return Settled(1, True, None)

    def poll(self) -> None:
        self.looks += 1
        if self.looks == 2:
            raise FenceLost


@pytest.mark.parametrize("body", ["while (true) {}", "await api.datapool.find('o', 1); while (true) await null"])
def test_a_host_can_end_a_step_that_computes(run: Run, pool: Pool, body: str) -> None:
    processes = pool.process_ids()
    started = time.monotonic()
    with pytest.raises(FenceLost):
        run(body, host=Watching())
    assert time.monotonic() - started < 10, "it would have computed for half a minute"
    assert pool.process_ids() == processes
    assert [run("return 1").output for _ in range(10)] == [1] * 10


@pytest.mark.parametrize("where", ["submit", "wait"])
def test_an_error_of_the_host_ends_the_step_and_is_raised(run: Run, pool: Pool, where: str) -> None:
    class Failing:
        def submit(self, call: HostCall, clock: list[int]) -> None:
            if where == "submit":
                raise FenceLost

        def wait(self, timeout: float) -> Settled | None:
            raise FenceLost

    restarts = pool.health()["restarts"]
    with pytest.raises(FenceLost):
        run("await api.datapool.find('o', 1)", host=Failing())
    assert pool.health()["busy"] == 0
    assert pool.health()["restarts"] == restarts
    assert run("return 1").output == 1
