"""Executions as timelines."""

from typing import Any

from appliance.console.outline import outline
from appliance.console.timeline import SHOWN_RUNS, make_timeline
from appliance.processes.models import Execution, StepRunRow

START = 1_000_000


def execution(**more: Any) -> Execution:
    return Execution(**{"started_at": START, "created_at": START, "finished_at": START + 1000, **more})


def run(path: str, iteration: str = "", status: str = "succeeded", begin: int = 0, end: int | None = 10) -> StepRunRow:
    return StepRunRow(
        path=path, step=path.rpartition("/")[2], iteration=iteration, status=status, kind="code", attempt=1,
        started_at=START + begin, finished_at=None if end is None else START + end,
    )  # fmt: skip


STEPS = outline({"steps": [
    {"id": "a", "code": {}}, {"id": "loop", "for_each": {"steps": [{"id": "inner", "code": {}}]}}, {"id": "z", "code": {}},
]})  # fmt: skip


def test_steps_stand_in_the_order_of_the_definition_and_those_to_come_last() -> None:
    entries = make_timeline(execution(), [run("loop/inner", "0"), run("loop"), run("a")], STEPS)
    assert [(entry.path, entry.status, entry.depth) for entry in entries] == [
        ("a", "succeeded", 0), ("loop", "succeeded", 0), ("loop/inner", "succeeded", 1), ("z", "pending", 0),
    ]  # fmt: skip


def test_a_bar_shows_when_a_step_ran_and_how_long() -> None:
    (entry, *_) = make_timeline(execution(), [run("a", begin=250, end=750)], STEPS)
    assert entry.bar is not None
    assert (entry.bar.start, entry.bar.width, entry.duration_ms) == (25, 50, 500)


def test_runs_of_a_loop_are_one_entry_with_the_troubled_first() -> None:
    runs = [run("loop/inner", str(index), "failed" if index in (70, 9) else "succeeded") for index in range(90)]
    entry = next(e for e in make_timeline(execution(), runs, STEPS) if e.path == "loop/inner")
    assert (entry.total, len(entry.runs), entry.status) == (90, SHOWN_RUNS, "failed")
    assert [shown.iteration for shown in entry.runs[:4]] == ["9", "70", "0", "1"]
    assert entry.counts == [("succeeded", 88), ("failed", 2)]


def test_a_step_that_runs_has_no_duration_yet() -> None:
    (entry, *_) = make_timeline(execution(finished_at=None), [run("a", status="running", end=None)], STEPS)
    assert (entry.status, entry.duration_ms) == ("running", None)
