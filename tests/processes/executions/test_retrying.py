"""Retry from any step: what stands before it stays, in blocks too; it and what follows run again."""

from typing import Any

import pytest

from appliance.core.errors import Conflict, ValidationFailed
from appliance.processes.definitions.versions import PublishRequest
from appliance.processes.executions.service import Execution
from tests.processes.engine.test_life import failing_once
from tests.processes.rehearsal.replaying import replay
from tests.processes.world import World, rule


def mark(step_id: str, what: str = "") -> dict[str, Any]:
    """A step that writes its name, so that it is seen when it runs again."""
    return {"id": step_id, "datapool": {"collection": "marks", "create": {"values": {"what": what or step_id}}}}


def nested() -> list[dict[str, Any]]:
    """first; each of two: one, two (a branch with the mark in its second option), three; both: left, right; last."""
    options = [{"when": "= item === 1", "steps": [mark("odd")]}, {"steps": [mark("even0"), mark("even")]}]
    each = {"items": [1, 2], "steps": [mark("one"), {"id": "two", "branch": options}, mark("three")]}
    both = {"left": [mark("l1"), mark("l2")], "right": [mark("r1"), mark("r2")]}
    return [mark("first"), {"id": "each", "for_each": each}, {"id": "both", "parallel": both}, mark("last")]


def retry(world: World, row: Execution, start_from: str, **more: Any) -> tuple[Execution, set[str]]:
    """The finished retry, and which of its steps ran (again)."""
    again = world.finish(world.flow.retry_execution(world.scope, row.id, start_from=start_from, **more).id)
    ran = {name for name, run in world.steps(again).items() if run.result_source == "executed" and run.kind == "datapool"}
    return again, ran


@pytest.mark.parametrize(
    ("start_from", "expected"),
    [
        ("first", "first one@0 one@1 odd@0 even0@1 even@1 three@0 three@1 l1 l2 r1 r2 last"),
        ("each", "one@0 one@1 odd@0 even0@1 even@1 three@0 three@1 l1 l2 r1 r2 last"),
        ("three", "three@0 three@1 l1 l2 r1 r2 last"),
        ("two", "odd@0 even0@1 even@1 three@0 three@1 l1 l2 r1 r2 last"),
        ("even", "even@1 three@0 three@1 l1 l2 r1 r2 last"),
        ("each/two/odd", "odd@0 three@0 three@1 l1 l2 r1 r2 last"),
        ("l2", "l2 last"),
        ("r1", "r1 r2 last"),
        ("last", "last"),
    ],
)
def test_a_retry_from_any_step(world: World, start_from: str, expected: str) -> None:
    row = world.run(nested(), output="= [steps.each.length, steps.both.left.what]")
    world.wipe()
    again, ran = retry(world, row, start_from)
    assert (again.status, again.output) == ("succeeded", row.output), again.error
    assert ran == set(expected.split())
    assert sorted(what for what, _ in world.marks()) == sorted(name.split("@")[0] for name in expected.split())
    assert set(world.steps(again)) == set(world.steps(row))
    assert replay(world, again).is_identical


def test_a_step_that_was_not_reached_is_refused_with_an_alternative(world: World) -> None:
    options = [{"when": "= false", "steps": [mark("never")]}, {"steps": [mark("always")]}]
    left = {"id": "left", "when": "= false", "parallel": {"a": [mark("inner")]}}
    row = world.run([{"id": "choose", "branch": options}, left])
    for step, reason in (("never", "choose took another option; retry from choose"), ("inner", "did not reach the steps in left")):
        with pytest.raises(ValidationFailed, match=reason) as caught:
            world.flow.retry_execution(world.scope, row.id, start_from=step)
        assert caught.value.details[0].pointer == "/from"
    with pytest.raises(ValidationFailed, match="no step 'none'"):
        world.flow.retry_execution(world.scope, row.id, start_from="none")
    waits = world.start(world.publish([{"id": "pause", "wait": {"for": "1h"}}]))
    with pytest.raises(Conflict):
        world.flow.retry_execution(world.scope, waits, start_from="pause")


def test_a_retry_inside_a_for_each_that_failed(world: World) -> None:
    _, failed = failing_once(world)
    again = world.finish(world.flow.retry_execution(world.scope, failed, start_from="ring").id)
    sources = {name: run.result_source for name, run in world.steps(again).items()}
    assert (again.status, sources["mark"], sources["ring@0"]) == ("failed", "reused", "executed")


def test_a_stop_beside_the_step_is_skipped(world: World) -> None:
    halt = {"id": "halt", "when": "= input.stops", "stop": {"output": "= 'halted'"}}
    branches = {"left": [mark("l1"), halt, mark("l2")], "right": [{"id": "pause", "wait": {"for": "1s"}}, mark("r2")]}
    row = world.finish(world.start(world.publish([{"id": "both", "parallel": branches}, mark("last")]), {"stops": True}))
    assert (row.status, row.output) == ("succeeded", "halted")
    world.wipe()
    again, ran = retry(world, row, "l2")
    assert world.steps(again)["halt"].status == "skipped"
    assert (again.status, ran) == ("succeeded", {"l2", "r2", "last"})


def test_a_stop_inside_of_an_item_is_passed_over_in_that_item(world: World) -> None:
    halt = {"id": "halt", "stop": {"output": "= item"}}
    maybe = {"id": "maybe", "branch": [{"when": "= item === 2", "steps": [mark("before"), halt]}]}
    row = world.run([{"id": "each", "for_each": {"items": [1, 2, 3], "steps": [mark("one"), maybe, mark("two")]}}, mark("last")])
    assert row.output == 2
    world.wipe()
    again, ran = retry(world, row, "two")
    assert (again.status, ran) == ("succeeded", {"two@0", "two@1", "one@2", "two@2", "last"})
    assert world.steps(again)["maybe@1"].status == "skipped"


def test_a_retry_with_another_version_needs_the_steps_around_it(world: World) -> None:
    process = world.publish([{"id": "around", "parallel": {"a": [mark("x"), mark("y")]}}])
    row = world.finish(world.start(process))
    world.save(process, [{"id": "around", "parallel": {"a": [mark("x"), mark("y", "new")], "b": [mark("z")]}}])
    world.flow.publish_process(world.scope, process, PublishRequest())
    world.wipe()
    _, ran = retry(world, row, "y", published=True)
    assert (ran, {what for what, _ in world.marks()}) == ({"y", "z"}, {"new", "z"})
    world.save(process, [{"id": "around", "for_each": {"items": [1], "steps": [mark("x"), mark("y")]}}])
    world.flow.publish_process(world.scope, process, PublishRequest())
    with pytest.raises(ValidationFailed, match="around is a for_each in this version and was a parallel; retry from around"):
        retry(world, row, "y", published=True)


def test_a_failed_step_before_it_runs_again_too(world: World) -> None:
    row = world.run([rule("a", "= input.no.thing", continue_on_error=True), rule("b", "= 1"), rule("c", "= input.no.thing")])
    assert row.status == "failed"
    again = world.finish(world.flow.retry_execution(world.scope, row.id, start_from="c").id)
    assert {name: run.result_source for name, run in world.steps(again).items()} == {"a": "reused", "b": "reused", "c": "executed"}
