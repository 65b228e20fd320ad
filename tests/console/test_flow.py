"""The picture of a definition: positions of boxes, lines between them, and the progress of an execution."""

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


def step_count(path: str, **by_status: int) -> StepCount:
    return StepCount(path, path.rpartition("/")[2], "rule", by_status=by_status)


def box(picture: Picture, name: str) -> Box:
    return next(each for each in picture.boxes if each.line.id == name)


def end_points(picture: Picture) -> set[tuple[tuple[float, float], tuple[float, float]]]:
    return {(wire.points[0], wire.points[-1]) for wire in picture.wires}


def bottom_of(at: Box) -> tuple[float, float]:
    return at.at[0] + 114, at.at[1] + at.height


def top_of(at: Box) -> tuple[float, float]:
    return at.at[0] + 114, at.at[1]


def test_steps_are_stacked_and_connected() -> None:
    picture = build_picture({"steps": [rule("a"), rule("b"), rule("c")]})
    a, b, c = (box(picture, name) for name in "abc")
    assert a.at[0] == b.at[0] == c.at[0]
    assert {(bottom_of(a), top_of(b)), (bottom_of(b), top_of(c))} <= end_points(picture)
    assert [sign.text for sign in picture.signs] == ["Starts on call", "End"]


def test_boxes_do_not_overlap_and_stay_inside_the_picture() -> None:
    picture = build_picture(yaml.safe_load(EVERY_MEMBER.read_text("utf8")))
    assert len(picture.boxes) > 50
    places = [(*each.at, each.at[0] + 228, each.at[1] + each.height) for each in picture.boxes]
    for index, (left, top, right, bottom) in enumerate(places):
        assert left >= 0
        assert top >= 0
        assert right <= picture.width
        assert bottom <= picture.height
        for x0, y0, x1, y1 in places[:index]:
            assert right <= x0 or x1 <= left or bottom <= y0 or y1 <= top


def test_branches_are_drawn_side_by_side_with_a_bypass() -> None:
    ways = [{"when": "= input.big", "steps": [rule("ask")]}, {"when": "= input.odd", "steps": [rule("look")]}]
    picture = build_picture({"steps": [{"id": "choose", "branch": ways}, rule("after")]})
    assert box(picture, "ask").at[1] == box(picture, "look").at[1] > box(picture, "choose").at[1]
    assert box(picture, "ask").at[0] + 228 < box(picture, "look").at[0]
    assert [sign.text for sign in picture.signs if sign.kind == "condition"] == ["when input.big", "when input.odd", "otherwise"]
    choose, after = box(picture, "choose"), box(picture, "after")
    assert sum(wire.points[0] == bottom_of(choose) for wire in picture.wires) == 3
    assert top_of(after) in {wire.points[-1] for wire in picture.wires}


def test_a_stop_has_no_outgoing_line() -> None:
    picture = build_picture({"steps": [rule("a"), {"id": "end", "stop": {}}, rule("never")]})
    assert bottom_of(box(picture, "end")) not in {wire.points[0] for wire in picture.wires}
    picture = build_picture({"steps": [rule("a"), {"id": "end", "when": "= input.done", "stop": {}}, rule("maybe")]})
    assert (bottom_of(box(picture, "end")), top_of(box(picture, "maybe"))) in end_points(picture)


def test_a_loop_is_framed_and_leads_back() -> None:
    loop = {"items": "= input.lines", "steps": [rule("one"), rule("two")]}
    picture = build_picture({"steps": [{"id": "each", "for_each": loop}]})
    (frame,) = picture.frames
    each, two = box(picture, "each"), box(picture, "two")
    assert frame.at[1] < each.at[1]
    assert two.at[1] + two.height < frame.at[1] + frame.size[1]
    assert (bottom_of(two), (each.at[0], each.at[1] + 24)) in end_points(picture)


def test_undo_steps_are_drawn_beside_their_step_and_failure_handling_in_a_frame() -> None:
    on_failure = {"process": "tell", "steps": [rule("note")]}
    picture = build_picture({"steps": [rule("pay", undo=rule("refund"))], "on_failure": on_failure})
    assert box(picture, "refund").at[1] == box(picture, "pay").at[1]
    assert box(picture, "refund").is_aside
    assert box(picture, "note").is_aside
    assert box(picture, "tell").is_process
    assert [frame.is_aside for frame in picture.frames] == [True]
    assert [wire.is_aside for wire in picture.wires if wire.points[0][1] == wire.points[-1][1]] == [True]


def test_the_picture_shows_the_progress_of_an_execution() -> None:
    definition = {"steps": [rule("a"), {"id": "b", "for_each": {"items": "= 1", "steps": [rule("c")]}}, rule("d", undo=rule("e"))]}
    inner = step_count("b/c", succeeded=30, failed=2, queued=8)
    picture = build_picture(definition, states_of([step_count("a", succeeded=1), step_count("b", running=1), inner]))
    assert box(picture, "a").state == StepState("succeeded", 1, 1)
    assert box(picture, "c").state == StepState("failed", 40, 32)
    assert (box(picture, "c").count, box(picture, "a").count) == ("32/40", "")
    assert box(picture, "d").state == StepState("pending", 0)
    assert box(picture, "e").state is None, "the undo of a step that did not run has no state"
    assert [wire.is_off for wire in picture.wires if wire.points[-1] == top_of(box(picture, "d"))] == [True]
    assert [wire.is_off for wire in picture.wires if wire.points[-1] == top_of(box(picture, "a"))] == [False]


@pytest.mark.parametrize("ended_well", [True, False])
def test_only_a_successful_execution_reaches_the_end(ended_well: bool) -> None:
    state = states_of([step_count("a", **{"succeeded" if ended_well else "failed": 1})])
    assert build_picture({"steps": [rule("a")]}, state, has_ended_well=ended_well).wires[-1].is_off is not ended_well
    assert not build_picture({"steps": [rule("a")]}).wires[-1].is_off, "without an execution nothing is dimmed"


def test_branches_that_were_not_taken_are_marked() -> None:
    definition = {"steps": [{"id": "x", "branch": [{"when": "= 1", "steps": [rule("a")]}, {"steps": [rule("b")]}]}]}
    picture = build_picture(definition, states_of([step_count("x", succeeded=1), step_count("x/b", succeeded=1)]))
    is_off = {wire.points[-1]: wire.is_off for wire in picture.wires}
    assert (is_off[top_of(box(picture, "a"))], is_off[top_of(box(picture, "b"))]) == (True, False)


def test_a_very_long_process_is_truncated_with_a_note() -> None:
    picture = build_picture({"steps": [rule(f"s{index}") for index in range(MOST_STEPS + 5)]})
    assert (len(picture.boxes), picture.left_out) == (MOST_STEPS, 5)
    assert build_picture({"steps": "nothing of the kind"}).boxes == []


def test_long_names_are_truncated_to_the_box() -> None:
    picture = build_picture({"steps": [rule("a" * 63), rule("日本語の長い名前がここにあります")]})
    assert [(len(each.title), each.title[-1]) for each in picture.boxes] == [(25, "…"), (12, "…")]


def test_the_outline_has_what_the_picture_has() -> None:
    definition = yaml.safe_load(EVERY_MEMBER.read_text("utf8"))
    lines = list(every_line(build_outline(definition)))
    process, after = after_failure(definition)
    picture = build_picture(definition)
    assert (process, [line.path for line in after]) == ("tell-somebody", ["on_failure/note"])
    assert {line.path for line in lines} >= {"push/undo/undo_push", "create/undo/uncreate", "lines/one", "either/yes_", "both/l"}
    assert {each.line.path for each in picture.boxes if not each.is_process} == {line.path for line in [*lines, *after]}
