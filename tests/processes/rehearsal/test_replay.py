"""Replay: identical with its own code, the first divergence with other code, and never a side effect."""

from dataclasses import replace
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.errors import ConcurrencyLimited, Conflict, NotFound, TimedOut
from appliance.processes.rehearsal.difference import is_same_json
from appliance.processes.rehearsal.replay import ReplayRequest
from tests.processes.world import Bell, World, code, rule, wait_until

from .replaying import calls_are_over, change, replay, results

EVERYTHING = """
const first = Date.now();
const dice = Math.random();
const made = await api.datapool.create('marks', {what: 'a', note: `${dice}`});
const [rung, seen] = await Promise.all([
  api.integrations.execute('bell', 'ring', {first, dice}), api.datapool.query('marks', {filter: {what: {_eq: 'a'}}}),
]);
const missing = await api.datapool.find('none-such', 'x').catch((error: any) => [error.code, error.message]);
return {first, dice, then: Date.now(), again: Math.random(), rung, seen: seen.items.length, id: made.id, missing};
"""
MARK = {"id": "mark", "datapool": {"collection": "marks", "create": {"values": {"what": "= String(item)"}}}}
RING = {"id": "ring", "integration": {"use": "bell", "action": "ring", "input": {"n": "= item", "at": "= Date.now()"}}}
PAUSE = {"id": "pause", "wait": {"for": "5ms"}}


def all_kinds() -> list[dict[str, Any]]:
    pick = code("pick", "return [input, Math.random(), api.now(), api.execution.step]", input="= [item, index, Date.now()]")
    each = {"items": "= [1, 2, 3]", "concurrency": 2, "steps": [MARK, RING, pick], "collect": "= [steps.pick, Date.now()]"}
    options = [{"when": "= steps.all.seen > 99", "steps": [rule("many", "= 1")]}, {"steps": [rule("few", "= Date.now()"), PAUSE]}]
    table = {"contentType": "application/vnd.gorules.decision", "nodes": [
        {"id": "in", "type": "inputNode", "name": "in"},
        {"id": "x", "type": "expressionNode", "name": "x", "content": {"expressions": [{"id": "1", "key": "r", "value": "n + 1"}]}},
        {"id": "out", "type": "outputNode", "name": "out"},
    ], "edges": [{"id": "a", "type": "edge", "sourceId": "in", "targetId": "x"},
                 {"id": "b", "type": "edge", "sourceId": "x", "targetId": "out"}]}  # fmt: skip
    return [
        code("all", EVERYTHING),
        {"id": "each", "for_each": each},
        {"id": "none", "for_each": {"items": [], "steps": [rule("never", "= 1")]}},
        {"id": "choose", "branch": options},
        {"id": "left", "when": "= false", "integration": {"use": "bell", "action": "ring", "input": {}}},
        {"id": "decide", "rule": {"decision": table, "input": {"n": "= steps.all.seen"}}},
        rule("last", "= [steps.few, steps.decide, execution.started_at, execution.id]"),
    ]


def test_random_bytes_and_languages_are_what_they_were(world: World) -> None:
    body = """const bytes = [...crypto.getRandomValues(new Uint8Array(600))];
    const day = new Date().toLocaleString('de-DE', {timeZone: 'Europe/Berlin'});
    await api.datapool.create('marks', {what: crypto.randomUUID(), note: day});
    return {bytes, day, id: crypto.randomUUID(), dice: Math.random()};"""
    row = world.run([code("a", body)])
    assert row.status == "succeeded", row.error
    report = replay(world, row)
    assert report.is_identical
    assert report.replayed_output == row.output


def test_an_execution_of_every_kind_of_step_is_identical(world: World) -> None:
    row = world.run(all_kinds(), output="= [steps.last, Date.now()]")
    assert row.status == "succeeded", row.error
    report = replay(world, row)
    assert (report.is_identical, report.first, report.changes) == (True, None, [])
    assert len(report.steps) == len(world.steps(row)) == 18
    assert set(results(report).values()) == {"identical"}
    assert report.replayed_output == row.output
    assert (report.version, report.replayed_version) == (1, 1)


@pytest.mark.parametrize(
    "body",
    [
        "throw new RangeError('at ' + Date.now() + Math.random())",
        "await api.integrations.execute('bell', 'ring', {reject: true})",
        "api.integrations.execute('bell', 'hold', {}); await api.datapool.query('marks', {}); throw new Error('early')",
        "await api.datapool.create('marks', {what: 'x'}); while (true) {}",
        "await api.integrations.execute('bell', 'hold', {})",
        "return 'x'.repeat(2_000_000)",
        "const all: any[] = []; while (true) all.push(new Array(100_000).fill(1))",
        "await api.datapool.create('none-such', {})",
        "return await new Promise(() => {})",
    ],
)
def test_a_failed_step_fails_in_the_same_way(world: World, body: str) -> None:
    limits = {"time": "400ms"} if "true) {}" in body or body.startswith("await api.integrations.execute('bell', 'hold'") else {}
    execution = world.start(world.publish([code("a", body, limits={"memory_mb": 16, **limits}), rule("b", "= 1")]))
    row = world.finish(execution)
    Bell.go_on.set()
    assert row.status == "failed"
    wait_until(lambda: calls_are_over(world))
    report = replay(world, row)
    assert (results(report), report.is_identical) == ({"a": "identical"}, True), report.first


def test_expressions_conditions_and_outputs_that_fail_are_identical(world: World) -> None:
    for steps, more in (
        ([rule("a", "= input.no.thing")], {}),
        ([rule("a", "= 1", when="= input.no.thing")], {}),
        ([{"id": "b", "branch": [{"when": "= input.no.thing", "steps": [rule("a", "= 1")]}]}], {}),
        ([{"id": "e", "for_each": {"items": "= 7", "steps": [rule("a", "= 1")]}}], {}),
        ([{"id": "e", "for_each": {"items": [1], "collect": "= item.no.thing", "steps": [rule("a", "= 1")]}}], {}),
        ([{"id": "w", "wait": {"until": "= 'soon'"}}], {}),
        ([{"id": "d", "datapool": {"collection": "marks", "create": "= 7"}}], {}),
        ([rule("a", "= 1")], {"output": "= input.no.thing"}),
    ):
        row = world.run(steps, **more)
        assert row.status == "failed", steps
        report = replay(world, row)
        assert report.is_identical, (steps, report.first)


def test_the_last_of_several_attempts_is_replayed(world: World) -> None:
    retry = {"max_attempts": 3, "initial": "5ms", "classes": ["user_code", "connector"]}
    body = """
      await api.datapool.create('marks', {what: String(api.execution.attempt)});
      if (api.execution.attempt < 3) throw new Error('again');
      return [input, Date.now(), Math.random()];
    """
    ring = {"id": "ring", "integration": {"use": "bell", "action": "ring", "input": {"fail": 2}}, "retry": {**retry}}
    row = world.run([code("a", body, input="= Date.now()", retry=retry), ring])
    assert row.status == "succeeded", row.error
    assert replay(world, row).is_identical


def test_a_cancelled_execution_replays_as_far_as_it_came(world: World) -> None:
    each = {"id": "each", "for_each": {"items": [1, 2], "steps": [code("a", "await api.integrations.execute('bell', 'hold', {})")]}}
    execution = world.start(world.publish([rule("r", "= 1"), each]))
    assert Bell.arrived.acquire(timeout=10)
    world.flow.cancel_execution(world.scope, execution)
    row = world.finish(execution)
    Bell.go_on.set()
    assert row.status == "cancelled"
    wait_until(lambda: calls_are_over(world))
    assert replay(world, row).is_identical


def test_only_a_finished_execution_is_replayed(world: World) -> None:
    execution = world.start(world.publish([{"id": "w", "wait": {"for": "1h"}}]))
    world.wait_for_status(execution, "waiting")
    with pytest.raises(Conflict, match="finished"):
        replay(world, execution)
    world.flow.cancel_execution(world.scope, execution)


def test_a_foreign_execution_and_an_unknown_version_are_not_found(world: World) -> None:
    row = world.run([rule("a", "= 1")])
    with pytest.raises(NotFound):
        world.flow.replay_execution(world.other, row.id, ReplayRequest())
    with pytest.raises(NotFound, match="no version 9"):
        replay(world, row, version=9)


def test_a_replay_has_its_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    process = world.publish([code("a", "return 1"), code("b", "return 2")])
    row = world.finish(world.start(process))
    endless = code("b", "while (true) {}", limits={"time": "20s"})
    change(world, process, [code("a", "return 1"), endless])
    limits = replace(world.flow.config.limits, replay_seconds=1)
    monkeypatch.setattr(world.flow, "config", replace(world.flow.config, limits=limits))
    began = clock.monotonic()
    with pytest.raises(TimedOut, match="replay a single step"):
        replay(world, row, version=2)
    assert clock.monotonic() - began < 15, "its step would have had twenty seconds"


def test_only_a_few_replays_run_at_once(world: World) -> None:
    row = world.run([rule("a", "= 1")])
    slots = [world.flow._replays.acquire(blocking=False) for _ in range(2)]
    assert slots == [True, True]
    try:
        with pytest.raises(ConcurrencyLimited):
            replay(world, row)
    finally:
        for _ in slots:
            world.flow._replays.release()
    assert replay(world, row).is_identical


def test_work_beside_a_failed_step_is_replayed_too(world: World) -> None:
    """The first item fails last, after the others have started."""
    body = "if (input === 1) { await api.integrations.execute('bell', 'hold', {}); throw new Error('late'); } return input;"
    each = {"items": "= [1, 2, 3, 4]", "concurrency": 2, "steps": [code("a", body, input="= item")]}
    execution = world.start(world.publish([{"id": "each", "for_each": each}]))
    wait_until(lambda: {"a@1", "a@2", "a@3"} <= {key for key, run in world.steps(execution).items() if run.status == "succeeded"})
    Bell.go_on.set()
    row = world.finish(execution)
    assert row.status == "failed"
    report = replay(world, row)
    assert (report.is_identical, len(report.steps)) == (True, 5), report.first


def test_a_retry_with_another_version_keeps_what_it_reused(world: World) -> None:
    process = world.publish([code("a", "return 1"), rule("b", "= input.no.thing")])
    failed = world.finish(world.start(process))
    change(world, process, [code("a", "return 2"), rule("b", "= steps.a")])
    row = world.finish(world.flow.retry_execution(world.scope, failed.id, published=True).id)
    assert (row.status, row.version, row.output) == ("succeeded", 2, 1)
    assert replay(world, row).is_identical


@pytest.mark.parametrize(("one", "other", "same"), [(1, 1.0, True), (1, True, False), ([0], [False], False), ({}, [], False)])
def test_values_are_compared_as_json(one: Any, other: Any, same: bool) -> None:
    assert is_same_json(one, other) is same
