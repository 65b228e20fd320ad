"""Outputs that are kept for later executions: under what, for how long, and what is never kept."""

from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.processes.definitions.versions import PublishRequest
from appliance.processes.engine import caching
from appliance.processes.rehearsal.replay import ReplayRequest
from tests.processes.world import Bell, World, code, rule

RING = {"integration": {"use": "bell", "action": "ring", "input": {"n": "= input.n"}}}
HOUR = {"ttl": "1h"}


def run(world: World, process: str, payload: Any = None) -> Any:
    """How the step `a` of another execution came to what."""
    step_run = world.steps(world.finish(world.start(process, payload)))["a"]
    return step_run.result_source, step_run.output


def test_a_second_execution_takes_the_output_of_the_first(world: World) -> None:
    process = world.publish([{"id": "a", "cache": HOUR, **RING}])
    assert run(world, process, {"n": 1}) == ("executed", {"rung": {"n": 1}})
    assert run(world, process, {"n": 1}) == ("cached", {"rung": {"n": 1}})
    assert run(world, process, {"n": 2})[0] == "executed", "another input is another result"
    assert run(world, process, {"n": 2, "beside": 1})[0] == "cached", "what the step is not given does not count"
    assert [input_data for _, input_data in Bell.rung] == [{"n": 1}, {"n": 2}]


def test_another_version_is_another_result_unless_the_key_says_otherwise(world: World) -> None:
    body = "return {n: input.n, twice: input.n * 2}"
    process = world.publish([code("a", body, cache=HOUR)])
    other = world.publish([code("a", body, cache={"ttl": "1h", "key": "= input.n % 10"})])
    for each in (process, other):
        assert run(world, each, {"n": 1})[0] == "executed"
        world.save(
            each, [code("a", "return {n: 0}", cache={"ttl": "1h"} if each == process else {"ttl": "1h", "key": "= input.n % 10"})]
        )
        world.flow.publish_process(world.scope, each, PublishRequest())
    assert run(world, process, {"n": 1}) == ("executed", {"n": 0})
    assert run(world, other, {"n": 11}) == ("cached", {"n": 1, "twice": 2})


def test_a_failure_is_not_cached(world: World) -> None:
    process = world.publish([code("a", "throw new Error('x')", cache=HOUR, continue_on_error=True)])
    assert [run(world, process)[0] for _ in range(2)] == ["executed", "executed"]


def test_expired_or_too_large_outputs_are_not_reused(world: World) -> None:
    process = world.publish([code("a", "return 'x'.repeat(input.n)", cache=HOUR)])
    large = {"n": caching.MAX_BYTES}
    assert [run(world, process, large)[0] for _ in range(2)] == ["executed", "executed"]
    assert [run(world, process, {"n": 3})[0] for _ in range(2)] == ["executed", "cached"]
    aged = clock.now_ms() - 1
    db.write(lambda: db.execute("UPDATE step_cache SET expires_at = ? WHERE process_id = ?", (aged, process)))
    assert run(world, process, {"n": 3})[0] == "executed"
    db.write(lambda: db.execute("UPDATE step_cache SET expires_at = ? WHERE process_id = ?", (aged, process)))
    assert caching.purge() == 1


def test_a_tenant_keeps_no_more_than_its_share_and_no_other_tenants(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    process = world.publish([code("a", "return 'x'.repeat(100) + input.n", cache=HOUR)])
    caching_before = db.rows("SELECT count(*) FROM step_cache WHERE process_id <> ?", (process,))[0][0]
    for n in range(3):
        run(world, process, {"n": n})
    monkeypatch.setattr(caching, "MAX_TENANT_BYTES", 250)
    assert caching.purge() == caching_before + 1
    assert [run(world, process, {"n": n})[0] for n in (2, 1, 0)] == ["cached", "cached", "executed"]
    assert db.rows("SELECT DISTINCT tenant_id FROM step_cache") == [("acme",)]
    world.flow.delete_process(world.scope, process)
    assert db.rows("SELECT count(*) FROM step_cache WHERE process_id = ?", (process,)) == [(0,)]


def test_a_cached_run_replays_as_it_was(world: World) -> None:
    process = world.publish([code("a", "return {dice: Math.random(), n: input.n}", cache=HOUR), rule("b", "= steps.a.n + 1")])
    world.finish(world.start(process, {"n": 1}))
    second = world.finish(world.start(process, {"n": 1}))
    assert world.steps(second)["a"].result_source == "cached"
    assert world.flow.replay_execution(world.scope, second.id, ReplayRequest()).is_identical
