"""Executions from beginning to end: what each kind of step gives, how failures and waits go on."""

from typing import Any

import pytest

from tests.processes.world import Bell, World, code, rule, wait_until

RING = {"use": "bell", "action": "ring"}


def test_the_last_step_is_the_output_and_a_skipped_one_is_null(world: World) -> None:
    done = world.run([rule("a", "= input.n + 1"), rule("b", "= steps.a", when="= steps.a > 5")], {"n": 1})
    assert (done.status, done.output) == ("succeeded", None)
    assert {name: run.status for name, run in world.steps(done).items()} == {"a": "succeeded", "b": "skipped"}


def test_later_steps_see_null_for_skipped_steps_and_for_steps_of_a_branch_not_taken(world: World) -> None:
    branch = {
        "id": "choose",
        "branch": [{"when": "= input.n > 1", "steps": [rule("big", "= 'big'")]}, {"steps": [rule("small", "= 's'")]}],
    }
    steps = [rule("a", "= 1", when="= false"), branch, rule("seen", "= [steps.a, steps.big, steps.small, steps.choose]")]
    assert world.run(steps, {"n": 1}).output == [None, None, "s", "s"]
    assert world.run(steps, {"n": 2}).output == [None, "big", None, "big"]


def test_a_branch_without_a_match_is_null_and_a_skipped_branch_hides_its_steps(world: World) -> None:
    branch = {"id": "choose", "branch": [{"when": "= input.n > 1", "steps": [rule("big", "= 'big'")]}]}
    assert world.run([branch, rule("seen", "= [steps.choose, steps.big]")], {"n": 1}).output == [None, None]
    assert world.run([{**branch, "when": "= false"}, rule("seen", "= [steps.choose, steps.big]")], {"n": 5}).output == [None, None]


def test_nested_for_each_sees_inner_and_outer_items_and_the_inner_index(world: World) -> None:
    inner = {
        "id": "cells",
        "for_each": {"items": "= row", "as": "cell", "steps": [rule("cell_text", "= `${index}:${cell}:${row.length}`")]},
    }
    outer = {
        "id": "rows",
        "for_each": {"items": "= input.rows", "as": "row", "steps": [inner], "collect": "= [index, steps.cells]"},
    }
    assert world.run([outer], {"rows": [["a", "b"], ["c"], []]}).output == [[0, ["0:a:2", "1:b:2"]], [1, ["0:c:1"]], [2, []]]


def test_an_inner_item_hides_an_outer_one_of_the_same_name(world: World) -> None:
    inner = {"id": "in", "for_each": {"items": "= item", "steps": [rule("x", "= item * 10")]}}
    outer = {"id": "out", "for_each": {"items": "= input.rows", "steps": [inner, rule("y", "= item.length + steps.in[0]")]}}
    assert world.run([outer], {"rows": [[1, 2], [3]]}).output == [12, 31]


def test_a_skipped_for_each_and_an_empty_one(world: World) -> None:
    each = {"id": "each", "for_each": {"items": "= input.items", "steps": [rule("x", "= item")]}}
    assert world.run([each], {"items": []}).output == []
    assert world.run([{**each, "when": "= false"}, rule("y", "= steps.each")], {"items": [1]}).output is None


def test_items_that_are_no_list_and_too_many_items(world: World) -> None:
    each = {"id": "each", "for_each": {"items": "= input.items", "steps": [rule("x", "= 1")]}}
    assert world.run([each], {"items": 5}).error["code"] == "items_invalid"
    assert world.run([each], {"items": list(range(10_000))}).error["code"] == "too_many_items"


def test_templates_fill_texts_and_keep_literals(world: World) -> None:
    values = {"what": "{{ input.a }} and {{ input.b.length }}", "note": "\\= not an expression"}
    world.run([{"id": "w", "datapool": {"collection": "marks", "create": {"values": values}}}], {"a": 1.0, "b": [1]})
    assert world.marks() == [("1 and 1", "= not an expression")]


def test_a_failing_expression_names_step_member_and_column(world: World) -> None:
    failed = world.run([rule("a", "= 1"), rule("b", "= input.list.map(x => x.y.z)")], {"list": [{}]})
    assert (failed.status, failed.failure_class) == ("failed", "validation")
    assert failed.error["step"] == "b"
    assert failed.error["code"] == "expression_failed"
    assert "/steps/1/rule/expression" in failed.error["message"]
    assert "column" in failed.error["message"]
    assert failed.error["next"]


@pytest.mark.parametrize("expression", ["= input.missing", "= 0 / 0", "= steps.later", "= undefined", "= () => 1"])
def test_a_value_that_is_not_json_is_a_validation_failure(world: World, expression: str) -> None:
    assert world.run([rule("a", expression), rule("later", "= 1")]).failure_class == "validation"


def test_an_output_that_is_too_large_fails_the_step(world: World) -> None:
    big = [rule("x", "= 'x'.repeat(900000)")]
    steps = [{"id": "each", "for_each": {"items": [1, 2], "steps": big}}]
    failed = world.run(steps)
    assert (failed.error["code"], failed.error["step"]) == ("output_too_large", "each")


def test_a_step_that_fails_lets_its_siblings_finish_and_ends_what_holds_it(world: World) -> None:
    body = "if (input.n === 2) throw new Error('two'); return await api.datapool.create('marks', {what: String(input.n)});"
    inner = code("work", body, input={"n": "= item"})
    failed = world.run(
        [{"id": "each", "for_each": {"items": [1, 2, 3, 4], "concurrency": 4, "steps": [inner]}}, rule("after", "= 1")]
    )
    assert failed.status == "failed"
    assert failed.error["step"] == "work"
    assert failed.error["iteration"] == "1"
    statuses = {name: run.status for name, run in world.steps(failed).items()}
    assert statuses["work@1"] == "failed"
    assert statuses["each"] == "failed"
    assert "after" not in statuses
    assert {s for n, s in statuses.items() if n in ("work@0", "work@2", "work@3")} == {"succeeded"}


def test_a_failing_step_is_tried_again_inside_a_for_each_while_others_go_on(world: World) -> None:
    inner = {
        "id": "ring", "integration": {**RING, "input": {"n": "= item", "fail": "= item === 1 ? 1 : 0"}},
        "retry": {"max_attempts": 3, "initial": "10ms", "jitter": False},
    }  # fmt: skip
    done = world.run([{"id": "each", "for_each": {"items": [1, 2, 3], "concurrency": 3, "steps": [inner]}}])
    assert done.status == "succeeded", done.error
    assert [world.steps(done)[f"ring@{i}"].attempt for i in range(3)] == [2, 1, 1]
    assert len(Bell.rung) == 4
    assert len({key for key, _ in Bell.rung}) == 3, "the key of a step run is the same for every attempt"


def test_a_due_retry_does_not_wait_for_a_slow_sibling(world: World) -> None:
    choose = "= item === 1 ? 1 : 0"
    retry = {"max_attempts": 3, "initial": "10ms", "jitter": False}
    branch = [
        {"when": "= item === 1", "steps": [{"id": "quick", "integration": {**RING, "input": {"fail": choose}}, "retry": retry}]},
        {"steps": [{"id": "slow", "integration": {"use": "bell", "action": "hold"}}]},
    ]
    process = world.publish(
        [{"id": "each", "for_each": {"items": [1, 2], "concurrency": 2, "steps": [{"id": "b", "branch": branch}]}}]
    )
    execution = world.start(process)
    wait_until(lambda: len(Bell.rung) == 3)
    assert world.get(execution).status == "running", "the slow one is still held"
    Bell.go_on.set()
    assert world.finish(execution).status == "succeeded"


def test_a_retry_waits_at_least_as_long_as_the_foreign_system_asks(world: World) -> None:
    ring = {
        "id": "ring",
        "integration": {**RING, "input": {"fail": 1, "retry_after": 3600}},
        "retry": {"max_attempts": 2, "initial": "1ms"},
    }
    by_code = code(
        "ring", "return await api.integrations.execute('bell', 'ring', {fail: 1, retry_after: 3600})", retry=ring["retry"]
    )
    for step in (ring, by_code):
        execution = world.start(world.publish([step]))
        row = world.wait_for_status(execution, "waiting")
        assert row.wait_reason == "retry"
        assert row.next_run_at > row.created_at + 3_500_000
        world.flow.cancel_execution(world.scope, execution)


def test_an_integration_step_gets_the_time_that_the_step_has(world: World) -> None:
    world.run([{"id": "a", "integration": RING}])
    world.run([{"id": "a", "integration": RING, "limits": {"time": "5s"}}])
    world.run([{"id": "a", "integration": RING, "timeout": "15m"}], timeout="10m")
    world.run([code("a", "await api.integrations.execute('bell', 'ring', {})", timeout="7s")])
    assert [round(seconds) for seconds in Bell.seconds] == [30, 5, 600, 7]


def test_only_what_may_succeed_is_tried_again(world: World) -> None:
    retry = {"max_attempts": 3, "initial": "1ms", "classes": ["connector"]}
    rejected = world.run([{"id": "a", "integration": {**RING, "input": {"reject": True}}, "retry": retry}])
    assert (rejected.failure_class, world.steps(rejected)["a"].attempt) == ("connector", 1)
    thrown = world.run([code("a", "throw new Error('no')", retry=retry)])
    assert (thrown.failure_class, world.steps(thrown)["a"].attempt) == ("user_code", 1)
    exhausted = world.run([{"id": "a", "integration": {**RING, "input": {"fail": 9}}, "retry": retry}])
    assert (exhausted.status, world.steps(exhausted)["a"].attempt) == ("failed", 3)


def test_a_wait_inside_a_for_each_and_a_branch(world: World) -> None:
    inner = [{"id": "choose", "branch": [{"steps": [{"id": "pause", "wait": {"for": "= `${item}ms`"}}]}]}, rule("x", "= item")]
    done = world.run([{"id": "each", "for_each": {"items": [30, 60, 1], "concurrency": 2, "steps": inner}}])
    assert done.output == [30, 60, 1]
    assert done.fence > 1, "it did not wait in a thread"


@pytest.mark.parametrize(
    ("wait", "code_"),
    [
        ({"until": "= 'soon'"}, "time_invalid"),
        ({"for": "= 5"}, "time_invalid"),
        ({"for": "91d"}, "wait_too_long"),
        ({"until": "9999-12-31T23:59:59Z"}, "wait_too_long"),
        ({"until": "0001-01-01T00:00:00+23:59"}, None),
    ],
)
def test_waits_that_cannot_be(world: World, wait: Any, code_: str | None) -> None:
    done = world.run([{"id": "pause", "wait": wait}])
    assert (done.error or {}).get("code") == code_


def test_a_datapool_step_whose_arguments_lack_a_member_fails_before_it_writes(world: World) -> None:
    failed = world.run([{"id": "w", "datapool": {"collection": "marks", "create": "= input.made"}}], {"made": {"valeus": {}}})
    assert (failed.error["code"], failed.failure_class) == ("arguments_invalid", "validation")
    failed = world.run([{"id": "w", "datapool": {"collection": "marks", "create": {"values": {"nope": 1}}}}])
    assert (failed.error["code"], failed.failure_class) == ("validation_failed", "validation")
    assert failed.error["details"][0]["pointer"]
    assert world.marks() == []


def test_texts_that_utf8_cannot_hold_do_not_break_the_commit(world: World) -> None:
    done = world.run([code("a", "await api.datapool.create('marks', {what: '\\ud800x'}); return '\\udfff'")])
    assert done.status in ("succeeded", "failed")
    assert (done.error or {}).get("code") != "internal"


def test_a_write_whose_answer_is_too_large_is_undone(world: World) -> None:
    values = {"what": "big", "note": "= 'x'.repeat(400000)"}
    operations = [{"op": "create", "collection": "marks", "values": values} for _ in range(3)]
    execution = world.run([{"id": "many", "datapool": {"batch": {"operations": operations}}}])
    assert (execution.status, execution.error["code"]) == ("failed", "output_too_large")
    assert [mark for mark in world.marks() if mark[0] == "big"] == []
