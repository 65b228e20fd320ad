"""A failure behind which the process goes on: of a step, of steps that hold steps, and of the items of a for_each."""

from typing import Any

from appliance.core.database import db
from appliance.processes.engine.decide import StepRun
from appliance.processes.rehearsal.replay import Replay, ReplayRequest
from tests.processes.world import Bell, World, code, rule

from .test_engine import decide, define, ready, run_of

ERROR = {"code": "x", "failure_class": "connector", "message": "broken"}
PLAIN = {"rule": {"expression": "= 1"}}
RING: dict[str, Any] = {"integration": {"use": "bell", "action": "ring", "input": {"reject": True}}}
WHEN_BROKEN = "= errors.ring === null ? 'fine' : errors.ring.code"


def boom(step_id: str, when: str = "true") -> dict[str, Any]:
    return code(step_id, f"if ({when}) throw new Error('no ' + JSON.stringify(input)); return input;", input="= line")


def each(steps: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"id": "each", "for_each": {"items": "= input.lines", "as": "line", "steps": steps, **more}}


# -- decided


def test_the_engine_continues_only_after_a_listed_failure_class() -> None:
    both = define({"id": "a", "continue_on_error": ["connector"], **PLAIN}, {"id": "b", **PLAIN})
    assert ready(decide(both, run_of(both, "a", "failed", error=ERROR))) == [("b", "")]
    other = decide(both, run_of(both, "a", "failed", error={**ERROR, "failure_class": "policy"}))
    assert other.failed is not None
    assert not other.ready
    assert decide(both, run_of(both, "a", "cancelled")).failed is not None, "what is cancelled has not failed"


def test_a_step_that_holds_steps_is_closed_with_what_failed_in_it_and_the_rest_is_given_up() -> None:
    inner = {"left": [{"id": "l", **PLAIN}], "right": [{"id": "w", "wait": {"for": "1h"}}]}
    flow = define({"id": "both", "continue_on_error": True, "parallel": inner}, {"id": "b", **PLAIN})
    holder = run_of(flow, "both", "running", state={"branches": ["left", "right"]})
    left = run_of(flow, "both/l", "failed", error=ERROR)
    right = run_of(flow, "both/w", "waiting", next_run_at=99_999)
    decision = decide(flow, holder, left, right)
    assert [(run.path, run.status) for run in decision.give_up] == [("both/w", "cancelled")]
    assert [(close.step.path, close.error) for close in decision.close] == [("both", ERROR)]
    assert (decision.wake_at, decision.failed, decision.ready) == (None, None, [])


def test_an_item_that_fails_leaves_its_place_to_the_next_one() -> None:
    flow = define(each([{"id": "a", **PLAIN}, {"id": "b", **PLAIN}], on_error="continue"))
    open_run = run_of(flow, "each", "running", state={"items": [1, 2]})
    broken = run_of(flow, "each/a", "failed", "0", error=ERROR)
    assert ready(decide(flow, open_run, broken)) == [("each/a", "1")]
    over = [run_of(flow, f"each/{step}", "succeeded", "1", output=5) for step in "ab"]
    (close,) = decide(flow, open_run, broken, *over).close
    assert (close.output, close.errors) == ([None, 5], {0: ERROR})
    stopping = define(each([{"id": "a", **PLAIN}]))
    assert decide(stopping, open_run, run_of(stopping, "each/a", "failed", "0", error=ERROR)).failed is not None


def test_an_item_that_was_cancelled_is_not_passed_over() -> None:
    flow = define(each([{"id": "a", **PLAIN}], on_error="continue"))
    open_run = run_of(flow, "each", "running", state={"items": [1]})
    decision = decide(flow, open_run, run_of(flow, "each/a", "cancelled", "0"))
    assert decision.failed is not None
    assert not decision.close


def test_the_steps_around_a_failed_step_fail_with_it() -> None:
    inner = {"left": [{"id": "l", **PLAIN}], "right": [{"id": "r", **PLAIN}]}
    flow = define(each([{"id": "both", "parallel": inner}], on_error="continue"))
    runs = [
        run_of(flow, "each", "running", state={"items": [1]}),
        run_of(flow, "each/both", "running", "0", state={"branches": ["left", "right"]}),
        run_of(flow, "each/both/l", "failed", "0", error=ERROR),
    ]
    first = decide(flow, *runs)
    assert [(run.path, run.status, run.error) for run in first.give_up] == [("each/both", "failed", ERROR)]
    assert not first.close, "the item is over only once nothing of it is open"
    second = decide(flow, *runs, *first.give_up)
    assert [close.errors for close in second.close] == [{0: ERROR}]


def test_a_failed_run_without_an_error_is_not_tolerated() -> None:
    run = StepRun("a", "", "a", "rule", "failed")
    flow = define({"id": "a", "continue_on_error": True, **PLAIN})
    assert decide(flow, run).failed is not None, "a run that was closed with the execution has no error"


# -- run


def test_a_failed_step_has_no_output_and_its_error_is_available(world: World) -> None:
    steps = [{"id": "ring", "continue_on_error": True, **RING}, rule("seen", WHEN_BROKEN), rule("none", "= steps.ring")]
    execution = world.run(steps)
    assert (execution.status, execution.output) == ("succeeded", None)
    runs = world.steps(execution)
    assert (runs["ring"].status, runs["ring"].output, runs["ring"].error["failure_class"]) == ("failed", None, "connector")
    assert runs["seen"].output == runs["ring"].error["code"] == "connector_failed"
    fine = world.run([{"id": "ring", "continue_on_error": True, **RING, "when": "= false"}, rule("seen", WHEN_BROKEN)])
    assert fine.output == "fine"


def test_an_unlisted_failure_class_ends_the_execution(world: World) -> None:
    execution = world.run([{"id": "ring", "continue_on_error": ["policy"], **RING}, rule("seen", WHEN_BROKEN)])
    assert (execution.status, execution.failure_class) == ("failed", "connector")


def test_each_failure_class_has_its_own_policy(world: World) -> None:
    policies = [
        {"max_attempts": 2, "classes": ["user_code"], "initial": "1ms", "backoff": "constant", "jitter": False},
        {"max_attempts": 4, "classes": ["connector"], "initial": "1ms"},
    ]
    fails = {"integration": {"use": "bell", "action": "ring", "input": {"fail": 9}}}
    execution = world.run([{"id": "ring", "retry": policies, **fails}])
    assert (world.steps(execution)["ring"].attempt, len(Bell.rung)) == (4, 4)
    assert world.steps(world.run([code("a", "throw new Error('x')", retry=policies)]))["a"].attempt == 2


def test_requests_beside_a_tolerated_failure_are_withdrawn(world: World) -> None:
    inner = {"left": [{"id": "ring", **RING}], "right": [{"id": "event", "wait": {"event": "never"}}]}
    execution = world.run([{"id": "both", "continue_on_error": True, "parallel": inner}, rule("last", "= errors.both.step")])
    assert (execution.status, execution.output) == ("succeeded", "ring")
    assert {name: run.status for name, run in world.steps(execution).items()} == {
        "both": "failed", "ring": "failed", "event": "cancelled", "last": "succeeded",
    }  # fmt: skip
    assert db.rows("SELECT count(*) FROM pending_call WHERE execution_id = ?", (execution.id,)) == [(0,)]


def test_a_for_each_continues_after_items_that_fail(world: World) -> None:
    steps = [boom("step", "input === 2"), rule("twice", "= steps.step * 2")]
    last = rule("last", "= ({each: steps.each, errors: errors.each})")
    execution = world.run([each(steps, on_error="continue", concurrency=2), last], {"lines": [1, 2, 3]})
    assert execution.output["each"] == [2, None, 6]
    (error,) = execution.output["errors"]
    assert (error["index"], error["step"], error["failure_class"]) == (1, "step", "user_code")
    collected = world.run([each(steps, on_error="collect", collect="= steps.twice + 1")], {"lines": [1, 2, 3]})
    assert collected.output == {"outputs": [3, None, 7], "errors": [error]}
    assert world.run([each(steps, on_error="collect")], {"lines": []}).output == {"outputs": [], "errors": []}
    assert world.run([each(steps)], {"lines": [1, 2, 3]}).status == "failed"


# -- retried and replayed


LINES: dict[str, Any] = {"lines": [1, 2, 3]}
THREE = [
    each([boom("step", "input === 2")], on_error="continue"),
    {"id": "ring", "continue_on_error": True, **RING},
    rule("gate", "= errors.ring.code + execution.label.length"),
]


def test_a_retry_keeps_what_was_passed_over_as_it_was(world: World) -> None:
    failed = world.run(THREE, LINES)
    assert (failed.status, len(Bell.rung)) == ("failed", 1), "an execution without a label fails at the gate"
    again = world.finish(world.flow.retry_execution(world.scope, failed.id).id)
    runs = world.steps(again)
    assert {name: (run.status, run.result_source) for name, run in runs.items()} == {
        "each": ("succeeded", "reused"), "step@0": ("succeeded", "reused"), "step@1": ("failed", "reused"),
        "step@2": ("succeeded", "reused"), "ring": ("failed", "reused"), "gate": ("failed", "executed"),
    }  # fmt: skip
    assert len(Bell.rung) == 1
    assert world.flow.replay_execution(world.scope, again.id, ReplayRequest()).is_identical


def test_an_item_that_failed_runs_again_when_its_for_each_did_not_end(world: World) -> None:
    lines = each([boom("step", "input === 1"), {"id": "rest", "wait": {"for": "1h"}}], on_error="continue")
    beside = [{"id": "soon", "wait": {"for": "30ms"}}, code("now", "throw new Error('now')")]
    failed = world.run([{"id": "both", "parallel": {"a": [lines], "b": beside}}], LINES)
    assert (failed.status, world.steps(failed)["rest@1"].status) == ("failed", "cancelled")
    again = world.steps(world.finish(world.flow.retry_execution(world.scope, failed.id).id))
    assert (again["step@0"].status, again["step@0"].result_source) == ("failed", "executed")
    assert (again["step@1"].status, again["step@1"].result_source) == ("succeeded", "reused")


def replayed(world: World, execution: str, **request: Any) -> Replay:
    return world.flow.replay_execution(world.scope, execution, ReplayRequest(**request))


def test_a_replay_continues_where_the_execution_did(world: World) -> None:
    inner = {"left": [{"id": "rung", **RING}], "right": [{"id": "event", "wait": {"event": "never"}}]}
    both = {"id": "both", "continue_on_error": True, "parallel": inner}
    process = world.publish([*THREE[:2], both, rule("last", "= [errors.ring.code, errors.both.step, errors.each.length]")])
    execution = world.finish(world.start(process, LINES))
    assert execution.output == ["connector_failed", "rung", 1]
    again = replayed(world, execution.id)
    assert again.is_identical, [(step.path, step.result, step.divergence) for step in again.steps]
    assert {step.path for step in again.steps} >= {"each", "ring", "both", "both/rung", "both/event", "last"}
    # The corrected step no longer fails: that is told, and what follows from it.
    world.save(process, [each([boom("step", "input === 1")], on_error="continue"), *THREE[1:2], both, rule("last", "= 1")])
    other = {(step.path, step.iteration): step.result for step in replayed(world, execution.id, draft=True).steps}
    assert other["each/step", "0"] == other["each/step", "1"] == "output_differs"
    assert other["each/step", "2"] == "identical"
