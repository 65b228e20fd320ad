"""The picture of a definition: what stands where, what leads where, and how far an execution is."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from appliance.console.pages.processes.flow import MOST_STEPS, Box, Picture, StepState, build_picture, states_of
from appliance.console.pages.processes.outline import after_failure, build_outline, every_line
from appliance.processes.executions import StepCount

EVERY_MEMBER = Path(__file__).parents[1] / "processes" / "every_member.yaml"


def rule(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "rule": {"expression": "= 1"}, **more}


def ran(path: str, **by_status: int) -> StepCount:
    return StepCount(path, path.rpartition("/")[2], "rule", by_status=by_status)


def box(drawn: Picture, name: str) -> Box:
    return next(each for each in drawn.boxes if each.line.id == name)


def ends(drawn: Picture) -> set[tuple[tuple[float, float], tuple[float, float]]]:
    return {(wire.points[0], wire.points[-1]) for wire in drawn.wires}


def foot(at: Box) -> tuple[float, float]:
    return at.at[0] + 114, at.at[1] + at.height


def head(at: Box) -> tuple[float, float]:
    return at.at[0] + 114, at.at[1]


def test_steps_stand_below_one_another_with_a_line_between() -> None:
    drawn = build_picture({"steps": [rule("a"), rule("b"), rule("c")]})
    a, b, c = (box(drawn, name) for name in "abc")
    assert a.at[0] == b.at[0] == c.at[0]
    assert {(foot(a), head(b)), (foot(b), head(c))} <= ends(drawn)
    assert [sign.text for sign in drawn.signs] == ["Starts on call", "End"]


def test_nothing_lies_over_another_step_or_outside_the_picture() -> None:
    drawn = build_picture(yaml.safe_load(EVERY_MEMBER.read_text("utf8")))
    assert len(drawn.boxes) > 50
    places = [(*each.at, each.at[0] + 228, each.at[1] + each.height) for each in drawn.boxes]
    for index, (left, top, right, bottom) in enumerate(places):
        assert left >= 0
        assert top >= 0
        assert right <= drawn.width
        assert bottom <= drawn.height
        for x0, y0, x1, y1 in places[:index]:
            assert right <= x0 or x1 <= left or bottom <= y0 or y1 <= top


def test_ways_of_a_branch_stand_side_by_side_and_one_leads_past_it() -> None:
    ways = [{"when": "= input.big", "steps": [rule("ask")]}, {"when": "= input.odd", "steps": [rule("look")]}]
    drawn = build_picture({"steps": [{"id": "choose", "branch": ways}, rule("after")]})
    assert box(drawn, "ask").at[1] == box(drawn, "look").at[1] > box(drawn, "choose").at[1]
    assert box(drawn, "ask").at[0] + 228 < box(drawn, "look").at[0]
    assert [sign.text for sign in drawn.signs if sign.kind == "condition"] == ["when input.big", "when input.odd", "otherwise"]
    choose, after = box(drawn, "choose"), box(drawn, "after")
    assert sum(wire.points[0] == foot(choose) for wire in drawn.wires) == 3
    assert head(after) in {wire.points[-1] for wire in drawn.wires}


def test_what_ends_in_a_stop_does_not_lead_on() -> None:
    drawn = build_picture({"steps": [rule("a"), {"id": "end", "stop": {}}, rule("never")]})
    assert foot(box(drawn, "end")) not in {wire.points[0] for wire in drawn.wires}
    drawn = build_picture({"steps": [rule("a"), {"id": "end", "when": "= input.done", "stop": {}}, rule("maybe")]})
    assert (foot(box(drawn, "end")), head(box(drawn, "maybe"))) in ends(drawn)


def test_a_loop_is_framed_and_leads_back() -> None:
    drawn = build_picture({"steps": [{"id": "each", "for_each": {"items": "= input.lines", "steps": [rule("one"), rule("two")]}}]})
    (frame,) = drawn.frames
    each, two = box(drawn, "each"), box(drawn, "two")
    assert frame.at[1] < each.at[1]
    assert two.at[1] + two.height < frame.at[1] + frame.size[1]
    assert (foot(two), (each.at[0], each.at[1] + 24)) in ends(drawn)


def test_what_undoes_a_step_stands_beside_it_and_what_follows_a_failure_in_a_frame() -> None:
    drawn = build_picture({"steps": [rule("pay", undo=rule("refund"))], "on_failure": {"process": "tell", "steps": [rule("note")]}})
    assert box(drawn, "refund").at[1] == box(drawn, "pay").at[1]
    assert box(drawn, "refund").is_aside
    assert box(drawn, "note").is_aside
    assert box(drawn, "tell").is_process
    assert [frame.is_aside for frame in drawn.frames] == [True]
    assert [wire.is_aside for wire in drawn.wires if wire.points[0][1] == wire.points[-1][1]] == [True]


def test_the_picture_shows_how_far_an_execution_is() -> None:
    definition = {"steps": [rule("a"), {"id": "b", "for_each": {"items": "= 1", "steps": [rule("c")]}}, rule("d", undo=rule("e"))]}
    inner = ran("b/c", succeeded=30, failed=2, queued=8)
    drawn = build_picture(definition, states_of([ran("a", succeeded=1), ran("b", running=1), inner]))
    assert box(drawn, "a").state == StepState("succeeded", 1, 1)
    assert box(drawn, "c").state == StepState("failed", 40, 32)
    assert (box(drawn, "c").count, box(drawn, "a").count) == ("32/40", "")
    assert box(drawn, "d").state == StepState("pending", 0)
    assert box(drawn, "e").state is None, "what would undo a step that did not run has no state"
    assert [wire.is_off for wire in drawn.wires if wire.points[-1] == head(box(drawn, "d"))] == [True]
    assert [wire.is_off for wire in drawn.wires if wire.points[-1] == head(box(drawn, "a"))] == [False]


@pytest.mark.parametrize("ended_well", [True, False])
def test_the_way_to_the_end_is_gone_only_by_what_ended_well(ended_well: bool) -> None:
    state = states_of([ran("a", **{"succeeded" if ended_well else "failed": 1})])
    assert build_picture({"steps": [rule("a")]}, state, has_ended_well=ended_well).wires[-1].is_off is not ended_well
    assert not build_picture({"steps": [rule("a")]}).wires[-1].is_off, "a definition has been gone by nobody"


def test_the_way_that_was_not_taken_is_told_apart() -> None:
    definition = {"steps": [{"id": "x", "branch": [{"when": "= 1", "steps": [rule("a")]}, {"steps": [rule("b")]}]}]}
    drawn = build_picture(definition, states_of([ran("x", succeeded=1), ran("x/b", succeeded=1)]))
    taken = {wire.points[-1]: wire.is_off for wire in drawn.wires}
    assert (taken[head(box(drawn, "a"))], taken[head(box(drawn, "b"))]) == (True, False)


def test_a_very_long_process_is_cut_and_says_so() -> None:
    drawn = build_picture({"steps": [rule(f"s{index}") for index in range(MOST_STEPS + 5)]})
    assert (len(drawn.boxes), drawn.left_out) == (MOST_STEPS, 5)
    assert build_picture({"steps": "nothing of the kind"}).boxes == []


def test_long_names_are_cut_where_the_box_ends() -> None:
    drawn = build_picture({"steps": [rule("a" * 63), rule("日本語の長い名前がここにあります")]})
    assert [(len(each.title), each.title[-1]) for each in drawn.boxes] == [(25, "…"), (12, "…")]


def test_the_outline_has_what_the_picture_has() -> None:
    definition = yaml.safe_load(EVERY_MEMBER.read_text("utf8"))
    lines = list(every_line(build_outline(definition)))
    process, after = after_failure(definition)
    drawn = build_picture(definition)
    assert (process, [line.path for line in after]) == ("tell-somebody", ["on_failure/note"])
    assert {line.path for line in lines} >= {"push/undo/undo_push", "create/undo/uncreate", "lines/one", "either/yes_", "both/l"}
    assert {each.line.path for each in drawn.boxes if not each.is_process} == {line.path for line in [*lines, *after]}
