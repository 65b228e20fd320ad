"""Executions as timelines."""

from typing import Any

from appliance.console.pages.operate.timeline import RunHistory, build_timeline
from appliance.console.pages.processes.outline import build_outline
from appliance.processes import Execution, StepRunRow
from appliance.processes.executions import Attempt, StepCount

START = 1_000_000


def execution(**more: Any) -> Execution:
    return Execution(**{"started_at": START, "created_at": START, "finished_at": START + 1000, **more})


def run(path: str, iteration: str = "", status: str = "succeeded", begin: int = 0, end: int | None = 10) -> StepRunRow:
    return StepRunRow(
        path=path, step=path.rpartition("/")[2], iteration=iteration, status=status, kind="code", attempt=1,
        started_at=START + begin, finished_at=None if end is None else START + end,
    )  # fmt: skip


def count(path: str, begin: int = 0, end: int | None = 10, **states: int) -> StepCount:
    ended = None if end is None else START + end
    return StepCount(path, path.rpartition("/")[2], "code", START + begin, ended, states or {"succeeded": 1}, "/" in path)


def run_history(*counts: StepCount, **more: Any) -> RunHistory:
    return RunHistory(counts, more.get("runs", {}), more.get("in_loops", {}), more.get("tries", {}))


STEPS = build_outline({"steps": [
    {"id": "a", "code": {}}, {"id": "loop", "for_each": {"steps": [{"id": "inner", "code": {}}]}}, {"id": "z", "code": {}},
]})  # fmt: skip


def test_steps_follow_the_definition_with_pending_ones_last() -> None:
    entries = build_timeline(execution(), run_history(count("loop/inner"), count("loop"), count("a")), STEPS)
    assert [(entry.path, entry.status, entry.depth) for entry in entries] == [
        ("a", "succeeded", 0), ("loop", "succeeded", 0), ("loop/inner", "succeeded", 1), ("z", "pending", 0),
    ]  # fmt: skip


def test_a_bar_shows_when_a_step_ran_and_how_long() -> None:
    (entry, *_) = build_timeline(execution(), run_history(count("a", begin=250, end=750)), STEPS)
    assert entry.bar is not None
    assert (entry.bar.start, entry.bar.width, entry.duration_ms) == (25, 50, 500)


def test_a_bar_shows_where_attempts_ended() -> None:
    tries = {
        ("a", ""): [Attempt(1, "retrying", START + 300), Attempt(2, "retrying", START + 500), Attempt(3, "succeeded", START + 750)]
    }
    (entry, *_) = build_timeline(execution(), run_history(count("a", begin=250, end=750), runs={"a": run("a")}, tries=tries), STEPS)
    assert entry.bar is not None
    assert entry.bar.ticks == (30, 50)


def test_runs_of_a_loop_are_one_entry_that_lists_failures() -> None:
    runs = [run("loop/inner", "9", "failed"), run("loop/inner", "70", "failed")]
    counted = count("loop/inner", succeeded=88, failed=2)
    entry = next(e for e in build_timeline(execution(), run_history(counted, in_loops={"loop/inner": runs}), STEPS) if e.is_loop)
    assert (entry.total, entry.status, entry.run) == (90, "failed", None)
    assert [each.iteration for each in entry.runs] == ["9", "70"]
    assert entry.counts == [("succeeded", 88), ("failed", 2)]


def test_a_step_that_runs_has_no_duration_yet() -> None:
    (entry, *_) = build_timeline(execution(finished_at=None), run_history(count("a", end=None, running=1)), STEPS)
    assert (entry.status, entry.duration_ms) == ("running", None)
