"""Branches side by side, and steps that end the execution before its last one."""

from typing import Any

from appliance.core.database import db
from tests.processes.rehearsal.replaying import replay, results
from tests.processes.world import Bell, World, code, rule, wait_until

from .test_suspend import send_event, waiting

LONG = {"id": "long", "wait": {"for": "1h"}}


def mark(step_id: str, **more: Any) -> dict[str, Any]:
    return {"id": step_id, "datapool": {"collection": "marks", "create": {"values": {"what": step_id}}}, **more}


def ring(step_id: str, action: str = "ring", **payload: Any) -> dict[str, Any]:
    return {"id": step_id, "integration": {"use": "bell", "action": action, "input": payload}}


def test_branches_run_at_the_same_time_and_answer_by_name(world: World) -> None:
    both = {"id": "both", "parallel": {"left": [ring("l", "hold", n=1)], "right": [ring("r", "hold", n=2), rule("after", "= 3")]}}
    execution = world.start(world.publish([both, rule("seen", "= [steps.both, steps.l.rung.n, steps.after]")]))
    for _ in range(2):  # neither ends before the other has begun
        assert Bell.arrived.acquire(timeout=15)
    Bell.go_on.set()
    done = world.finish(execution)
    assert done.output == [{"left": {"rung": {"n": 1}}, "right": 3}, 1, 3]
    assert world.steps(done)["both"].status == "succeeded"


def test_a_failing_branch_fails_the_execution_and_the_others_end_with_the_step_they_are_at(world: World) -> None:
    left, right = [ring("l", "hold"), mark("never")], [ring("r", reject=True)]
    execution = world.start(world.publish([{"id": "both", "parallel": {"left": left, "right": right}}]))
    wait_until(lambda: "r" in world.steps(execution) and world.steps(execution)["r"].status == "failed")
    Bell.go_on.set()
    done = world.finish(execution)
    assert (done.status, done.error["step"], done.failure_class) == ("failed", "r", "connector")
    assert {name: run.status for name, run in world.steps(done).items()} == {"both": "failed", "l": "succeeded", "r": "failed"}
    assert world.marks() == []

    again = world.finish(world.flow.retry_execution(world.scope, done.id).id)
    assert {name: run.result_source for name, run in world.steps(again).items() if run.status == "succeeded"}["l"] == "reused"
    assert sum(key.endswith(".both/l") for key, _ in Bell.rung) == 1


def test_a_parallel_can_be_nested_in_a_for_each_and_in_a_parallel(world: World) -> None:
    inner = {"id": "in", "parallel": {"x": [rule("ix", "= item * 10")], "y": [rule("iy", "= index")]}}
    each = {"id": "each", "for_each": {"items": [1, 2], "concurrency": 2, "steps": [{"id": "out", "parallel": {"only": [inner]}}]}}
    assert world.run([each]).output == [{"only": {"x": 10, "y": 0}}, {"only": {"x": 20, "y": 1}}]


def test_branches_that_wait_are_answered_each_by_itself(world: World) -> None:
    ways = {name: [code(name, f"return (await api.events.wait('{name}')).n;")] for name in ("a", "b")}
    execution = world.start(world.publish([{"id": "both", "parallel": {**ways, "c": [{"id": "c", "wait": {"for": "5ms"}}]}}]))
    tokens = {wait["name"]: wait["token"] for wait in waiting(world, execution, 2)}
    for number, name in enumerate("ba"):
        send_event(world, execution, tokens[name], {"n": number})
    assert world.finish(execution).output == {"a": 1, "b": 0, "c": None}


# -- stop


def test_a_stop_ends_the_execution_with_its_output(world: World) -> None:
    stop = {"id": "enough", "when": "= input.go", "stop": {"output": {"n": "= steps.a"}}}
    process = world.publish([rule("a", "= 2"), stop, mark("m"), rule("z", "= 9")], output="= [steps.z]")
    done = world.finish(world.start(process, {"go": True}))
    assert (done.status, done.output) == ("succeeded", {"n": 2})
    assert {name: run.status for name, run in world.steps(done).items()} == {"a": "succeeded", "enough": "succeeded"}
    assert world.finish(world.start(process, {"go": False})).output == [9]
    assert world.marks() == [("m", None)]


def test_a_stop_without_an_output_gives_null_and_one_that_cannot_be_evaluated_fails(world: World) -> None:
    assert world.run([rule("a", "= 2"), {"id": "s", "stop": {}}, rule("z", "= 9")]).output is None
    assert world.run([{"id": "s", "stop": {"output": "= input.none"}}]).error["code"] == "expression_failed"


def everything_at_once() -> list[dict[str, Any]]:
    """A stop in the second item of a for_each, while an integration, an event, a time and another item are waited for."""
    each = {"items": [1, 2], "concurrency": 2, "steps": [
        {"id": "which", "branch": [{"when": "= item === 2", "steps": [
            {"id": "turn", "wait": {"for": "5ms"}}, {"id": "enough", "stop": {"output": "= item"}},
        ]}, {"steps": [LONG]}]},
    ]}  # fmt: skip
    event = code("event", "await api.events.wait('never'); await api.datapool.create('marks', {what: 'woken'});")
    waiting_branch = [ring("held", "hold"), mark("after")]
    return [{
        "id": "all", "parallel": {"each": [{"id": "each", "for_each": each}], "event": [event], "held": waiting_branch}
    }, mark("last")]


def test_a_stop_cancels_whatever_else_is_under_way(world: World) -> None:
    done = world.run(everything_at_once(), output="= steps.last")
    assert (done.status, done.output) == ("succeeded", 2)
    assert {name: run.status for name, run in world.steps(done).items()} == {
        "all": "succeeded", "each": "succeeded", "which@1": "succeeded", "turn@1": "succeeded", "enough@1": "succeeded",
        "which@0": "cancelled", "long@0": "cancelled", "event": "cancelled", "held": "cancelled",
    }  # fmt: skip
    assert world.marks() == []
    assert db.rows("SELECT (SELECT count(*) FROM pending_call) + (SELECT count(*) FROM suspended_step)") == [(0,)]
    Bell.go_on.set()


def test_a_stopped_execution_is_replayed_and_retried_from_a_later_step(world: World) -> None:
    Bell.go_on.set()
    row = world.run(everything_at_once())
    result = replay(world, row)
    assert (result.is_identical, set(results(result).values())) == (True, {"identical"}), result.first
    again = world.finish(world.flow.retry_execution(world.scope, row.id, start_from="last").id)
    assert world.marks()[-1] == ("last", None)
    assert again.output["what"] == "last"
    assert replay(world, again).is_identical
