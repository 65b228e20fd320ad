"""Replay with other code: the first divergence of each step, and as much of the rest as can be compared."""

from typing import Any

import pytest

from appliance.core.errors import DefinitionInvalid, ValidationFailed
from appliance.datapool import service as datapool
from tests.processes.world import World, code, rule

from .replaying import change, first, replay, results

RING = {"id": "ring", "integration": {"use": "bell", "action": "ring", "input": {"n": 1}}}
MARK = {"id": "mark", "datapool": {"collection": "marks", "create": {"values": {"what": "1"}}}}
PAUSE = {"id": "pause", "wait": {"for": "5ms"}}


def recorded_pair(world: World) -> tuple[str, Any]:
    body = "const a = await api.datapool.create('marks', {what: 'a'}); await api.datapool.create('marks', {what: 'b'}); return 1"
    process = world.publish([code("a", body), rule("b", "= steps.a + 1")])
    return process, world.finish(world.start(process))


def test_other_code_with_the_same_result_is_identical(world: World) -> None:
    process, row = recorded_pair(world)
    body = "for (const what of ['a', 'b']) await api.datapool.create('marks', {what}); return 2 - 1"
    change(world, process, [code("a", body), rule("b", "= 1 + steps.a")])
    report = replay(world, row, version=2)
    assert (report.is_identical, report.version, report.replayed_version) == (True, 1, 2)


@pytest.mark.parametrize(
    ("body", "call", "recorded", "replayed"),
    [
        ("await api.datapool.create('marks', {what: 'a'}); await api.datapool.create('marks', {what: 'c'}); return 1", 2,
         ["marks", {"what": "b"}], ["marks", {"what": "c"}]),
        ("await api.datapool.query('marks', {}); return 1", 1, ["marks", {"what": "a"}], ["marks", {}]),
        ("await api.datapool.create('marks', {what: 'a'}); return 1", 2, ["marks", {"what": "b"}], None),
        ("for (const what of ['a', 'b', 'c']) await api.datapool.create('marks', {what}); return 1", 3,
         None, ["marks", {"what": "c"}]),
        ("await api.datapool.create('marks', {what: 'a'}); await api.datapool.create('marks', {what: 1}); return 1", 2,
         ["marks", {"what": "b"}], ["marks", {"what": 1}]),
    ],
)  # fmt: skip
def test_the_first_call_that_differs_is_named(world: World, body: str, call: int, recorded: Any, replayed: Any) -> None:
    process, row = recorded_pair(world)
    change(world, process, [code("a", body), rule("b", "= steps.a + 1")], publish=False)
    report = replay(world, row, draft=True)
    assert (report.is_identical, report.replayed_version) == (False, "draft")
    assert results(report) == {"a": "diverged", "b": "identical"}, "the walk goes on with what was recorded"
    result = first(report).divergence
    assert result is not None
    assert result.call == call
    assert [side and side["args"] for side in (result.recorded, result.replayed)] == [recorded, replayed]


def test_another_output_is_shown_with_its_changes_and_what_follows_from_it(world: World) -> None:
    process = world.publish([code("a", "return {n: 1, list: [1, 2, 3], gone: true}"), rule("b", "= steps.a.n * 10")])
    row = world.finish(world.start(process))
    change(world, process, [code("a", "return {n: 2, list: [1, 5], 'new/~': null}"), rule("b", "= steps.a.n * 10")])
    report = replay(world, row, version=2)
    assert results(report) == {"a": "output_differs", "b": "output_differs"}
    assert [(c.op, c.path, c.from_, c.to) for c in first(report).changes] == [
        ("replace", "/n", 1, 2), ("replace", "/list/1", 2, 5), ("remove", "/list/2", 3, None), ("remove", "/gone", True, None),
        ("add", "/new~1~0", None, None),
    ]  # fmt: skip
    assert [(c.op, c.path, c.from_, c.to) for c in report.changes] == [("replace", "", 10, 20)]
    assert (report.recorded_output, report.replayed_output) == (10, 20)


def test_a_mended_step_goes_on_to_steps_that_were_not_recorded(world: World) -> None:
    process = world.publish([code("a", "throw new Error('broken')"), RING, rule("c", "= steps.a")])
    row = world.finish(world.start(process))
    assert row.status == "failed"
    change(
        world,
        process,
        [code("a", "return 5"), RING, rule("c", "= steps.a")],
    )
    report = replay(world, row, version=2)
    assert results(report) == {"a": "output_differs", "ring": "not_recorded", "c": "not_recorded"}
    assert first(report).divergence is not None
    assert first(report).replayed_output == 5
    assert (first(report).recorded_error or {})["message"] == "broken"
    assert (report.recorded_output, report.replayed_output) == (None, 5)


def test_a_step_that_fails_only_now_says_how_and_the_walk_goes_on(world: World) -> None:
    process = world.publish([code("a", "return 5"), rule("b", "= steps.a + 1")])
    row = world.finish(world.start(process))
    change(world, process, [code("a", "throw new TypeError('worse')"), rule("b", "= steps.a + 1")])
    report = replay(world, row, version=2)
    assert results(report) == {"a": "output_differs", "b": "identical"}
    assert (first(report).error or {})["message"] == "TypeError: worse"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (RING, {"id": "ring", "integration": {"use": "bell", "action": "ring", "input": {"n": 2}}}),
        (RING, {"id": "ring", "integration": {"use": "bell", "action": "look", "input": {"n": 1}}}),
        (MARK, {"id": "mark", "datapool": {"collection": "marks", "create": {"values": {"what": "2"}}}}),
        (MARK, {"id": "mark", "datapool": {"collection": "marks", "query": {"filter": {}}}}),
        (PAUSE, {"id": "pause", "wait": {"for": "10ms"}}),
        (PAUSE, {"id": "pause", "wait": {"until": "2001-01-01T00:00:00Z"}}),
        (rule("r", "= 1", when="= true"), rule("r", "= 1", when="= false")),
    ],
)
def test_an_effect_that_would_be_another_is_a_divergence(world: World, before: dict[str, Any], after: dict[str, Any]) -> None:
    process = world.publish([before, rule("end", "= 1")])
    row = world.finish(world.start(process))
    assert row.status == "succeeded", row.error
    assert replay(world, row).is_identical
    change(world, process, [after, rule("end", "= 1")])
    report = replay(world, row, version=2)
    assert list(results(report).values()) == ["diverged", "identical"]
    result = first(report).divergence
    assert result is not None
    assert result.call is None
    assert result.recorded != result.replayed


def test_another_branch_or_other_items_are_a_divergence_and_what_is_new_or_left_out_is_listed(world: World) -> None:
    def steps(limit: int, items: str) -> list[dict[str, Any]]:
        options = [{"when": f"= input.n > {limit}", "steps": [rule("big", "= 1")]}, {"steps": [rule("small", "= 2")]}]
        return [{"id": "choose", "branch": options}, {"id": "each", "for_each": {"items": items, "steps": [rule("r", "= item")]}}]

    process = world.publish(steps(5, "= [1, 2]"))
    row = world.finish(world.start(process, {"n": 7}))
    change(world, process, steps(9, "= [1, 3, 4]"))
    report = replay(world, row, version=2)
    assert results(report) == {
        "choose": "diverged", "choose/small": "not_recorded", "each": "diverged", "each/r@0": "identical",
        "each/r@1": "output_differs", "each/r@2": "not_recorded", "choose/big": "skipped",
    }  # fmt: skip
    result = first(report).divergence
    assert result is not None
    assert (result.recorded, result.replayed) == ({"taken": 0}, {"taken": 1})


def test_steps_that_were_added_removed_or_became_another_kind(world: World) -> None:
    process = world.publish([rule("a", "= 1"), rule("b", "= 2"), rule("c", "= 3")])
    row = world.finish(world.start(process))
    calls = code("asks", "return await api.integrations.execute('bell', 'ring', {})")
    change(world, process, [rule("a", "= 1"), code("b", "return 2"), code("new", "return 9"), calls, rule("d", "= steps.new")])
    report = replay(world, row, version=2)
    assert results(report) == {
        "a": "identical", "b": "not_recorded", "new": "not_recorded", "asks": "not_recorded", "d": "not_recorded", "c": "skipped",
    }  # fmt: skip
    assert {step.path: step.replayed_output for step in report.steps}["new"] == 9
    assert (report.recorded_output, report.replayed_output) == (3, 9)


def test_a_single_step_is_replayed_with_its_recorded_input(world: World) -> None:
    inner = code("inner", "return item_of(input) * 2; function item_of(i: any) { return i.item }", input="= {item, a: steps.a}")
    steps = [
        code("a", "return Math.random()"),
        {"id": "each", "for_each": {"items": [1, 2], "steps": [inner]}},
        rule("b", "= steps.each"),
    ]
    process = world.publish(steps)
    row = world.finish(world.start(process))
    assert results(replay(world, row, step="inner")) == {"each/inner@0": "identical", "each/inner@1": "identical"}
    assert results(replay(world, row, step="each")) == {
        "each": "identical",
        "each/inner@0": "identical",
        "each/inner@1": "identical",
    }
    assert results(replay(world, row, step="b")) == {"b": "identical"}
    other = code("inner", "return input.item * 3", input="= {item, a: steps.a}")
    change(
        world, process, [code("a", "throw new Error('not asked')"), {"id": "each", "for_each": {"items": [1, 2], "steps": [other]}}]
    )
    report = replay(world, row, step="each/inner", version=2)
    assert results(report) == {"each/inner@0": "output_differs", "each/inner@1": "output_differs"}
    with pytest.raises(ValidationFailed, match="there is no step 'nowhere'"):
        replay(world, row, step="nowhere")


def test_a_step_that_was_not_reached_cannot_be_replayed(world: World) -> None:
    row = world.run([rule("a", "= input.no.thing"), rule("b", "= 1")])
    with pytest.raises(ValidationFailed, match="never reached that step"):
        replay(world, row, step="b")


def test_a_retry_replays_what_it_reused_and_what_it_did(world: World) -> None:
    once = """
      const rows = await api.datapool.query('marks', {});
      if (!rows.items.length) throw new Error('none');
      return rows.items.length;
    """
    each = {"id": "each", "for_each": {"items": [1, 2], "steps": [rule("i", "= [item, execution.id]"), code("once", once)]}}
    first_step = code("a", "return [api.execution.id, Math.random(), Date.now()]")
    process = world.publish([first_step, each])
    failed = world.finish(world.start(process))
    assert failed.status == "failed"
    datapool.create_entity(world.scope, "marks", {"what": "x"})
    row = world.finish(world.flow.retry_execution(world.scope, failed.id).id)
    assert row.status == "succeeded", row.error
    assert replay(world, failed).is_identical
    assert replay(world, row).is_identical
    changed = code("a", "return [api.execution.id, Math.random(), 0]")
    change(world, process, [changed, each])
    report = replay(world, row, version=2)
    assert results(report)["a"] == "output_differs"
    assert [change.path for change in first(report).changes] == ["/2"], "id and dice are those of the execution that made it"


def test_a_draft_that_cannot_be_read_and_an_input_that_no_longer_fits_are_said(world: World) -> None:
    process, row = recorded_pair(world)
    change(world, process, [{"id": "x"}], publish=False)
    with pytest.raises(DefinitionInvalid):
        replay(world, row, draft=True)
    change(world, process, [rule("a", "= 1")], publish=False, input={"type": "object", "required": ["n"]})
    with pytest.raises(ValidationFailed, match="does not match"):
        replay(world, row, draft=True)
