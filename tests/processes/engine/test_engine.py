"""What happens next, decided without a database: every state, and random processes driven by a random world."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.processes.definitions.definition import parse_definition
from appliance.processes.definitions.nodes import Definition, Step
from appliance.processes.engine.decide import Decision, History, StepRun

NOW = 1_000
RULE = {"rule": {"expression": "= 1"}}


def define(*steps: dict[str, Any], **more: Any) -> Definition:
    return parse_definition({"id": "p", "steps": list(steps), **more}, {})


def run_of(definition: Definition, path: str, status: str, iteration: str = "", **more: Any) -> StepRun:
    step = next(step for step in definition.all_steps() if step.path == path)
    return StepRun(path, iteration, step.id, step.kind, status, **more)


def decide(definition: Definition, *runs: StepRun, now: int = NOW, after: str | None = None) -> Decision:
    history = History(definition, after)
    for run in runs:
        history.put(run)
    return history.decide(now)


def ready(decision: Decision) -> list[tuple[str, str]]:
    return [(each.step.path, each.iteration) for each in decision.ready]


TWO = define({"id": "a", **RULE}, {"id": "b", **RULE})


def test_the_first_step_is_ready_and_the_second_after_it() -> None:
    assert ready(decide(TWO)) == [("a", "")]
    assert ready(decide(TWO, run_of(TWO, "a", "pending"))) == [("a", "")]
    assert ready(decide(TWO, run_of(TWO, "a", "running"))) == [("a", "")], "a crashed attempt runs again"
    for over in ("succeeded", "skipped"):
        assert ready(decide(TWO, run_of(TWO, "a", over))) == [("b", "")]


def test_a_failed_or_cancelled_step_ends_it() -> None:
    for status in ("failed", "cancelled"):
        decision = decide(TWO, run_of(TWO, "a", status, error={"code": "x"}))
        assert decision.failed is not None
        assert not decision.ready
        assert not decision.done


def test_the_last_output_is_the_output() -> None:
    decision = decide(TWO, run_of(TWO, "a", "succeeded", output=1), run_of(TWO, "b", "succeeded", output=2))
    assert (decision.done, decision.output) == (True, 2)
    decision = decide(TWO, run_of(TWO, "a", "succeeded", output=1), run_of(TWO, "b", "skipped"))
    assert (decision.done, decision.output) == (True, None)


def test_a_retry_waits_for_its_time() -> None:
    early = decide(TWO, run_of(TWO, "a", "retrying", attempt=2, next_run_at=NOW + 5))
    assert (early.ready, early.wake_at, early.wake_reason, early.done) == ([], NOW + 5, "retry", False)
    assert ready(decide(TWO, run_of(TWO, "a", "retrying", attempt=2, next_run_at=NOW))) == [("a", "")]


def test_a_wait_is_closed_when_it_is_due() -> None:
    waiting = define({"id": "w", "wait": {"for": "1s"}})
    early = decide(waiting, run_of(waiting, "w", "waiting", next_run_at=NOW + 1))
    assert (early.close, early.wake_at, early.wake_reason) == ([], NOW + 1, "timer")
    due = decide(waiting, run_of(waiting, "w", "waiting", next_run_at=NOW))
    assert [each.step.id for each in due.close] == ["w"]


def test_a_step_that_has_asked_is_performed_again_when_it_is_answered_or_due() -> None:
    for body in ({"wait": {"event": "paid"}}, {"process": {"use": "other"}}, {"human": {"kind": "approval", "title": "?"}}):
        asking = define({"id": "w", **body})
        early = decide(asking, run_of(asking, "w", "waiting", next_run_at=NOW + 1, state={"suspended": True}))
        assert (early.ready, early.close, early.wake_at, early.wake_reason) == ([], [], NOW + 1, "timer")
        due = decide(asking, run_of(asking, "w", "waiting", next_run_at=NOW, state={"suspended": True}))
        assert (ready(due), due.close) == ([("w", "")], [])


BRANCH = define(
    {"id": "c", "branch": [{"when": "= true", "steps": [{"id": "x", **RULE}]}, {"steps": [{"id": "y", **RULE}]}]},
    {"id": "z", **RULE},
)


def test_a_branch_goes_the_way_it_took_and_closes_with_its_output() -> None:
    option = run_of(BRANCH, "c", "running", state={"taken": 1})
    assert ready(decide(BRANCH, option)) == [("c/y", "")]
    decision = decide(BRANCH, option, run_of(BRANCH, "c/y", "succeeded", output=7))
    assert [(each.step.id, each.output) for each in decision.close] == [("c", 7)]
    assert ready(decide(BRANCH, run_of(BRANCH, "c", "succeeded", output=7))) == [("z", "")]


EACH = define(
    {"id": "e", "for_each": {"items": [1, 2, 3, 4], "concurrency": 2, "steps": [{"id": "i", **RULE}, {"id": "j", **RULE}]}}
)


def test_a_for_each_starts_up_to_its_concurrency_and_advances_each_item_independently() -> None:
    open_run = run_of(EACH, "e", "running", state={"items": [1, 2, 3, 4]})
    assert ready(decide(EACH, open_run)) == [("e/i", "0"), ("e/i", "1")]
    one_on = decide(EACH, open_run, run_of(EACH, "e/i", "succeeded", "1"))
    assert ready(one_on) == [("e/i", "0"), ("e/j", "1")]
    next_one = decide(EACH, open_run, run_of(EACH, "e/i", "succeeded", "0"), run_of(EACH, "e/j", "succeeded", "0", output="o"))
    assert ready(next_one) == [("e/i", "1"), ("e/i", "2")]


def test_a_for_each_closes_with_the_outputs_in_order_whatever_the_order_of_ends() -> None:
    history = History(EACH)
    history.put(run_of(EACH, "e", "running", state={"items": [1, 2, 3, 4]}))
    for index in (3, 1, 0, 2):
        history.put(run_of(EACH, "e/i", "succeeded", str(index)))
        history.put(run_of(EACH, "e/j", "succeeded", str(index), output=index * 10))
    decision = history.decide(NOW)
    assert [each.output for each in decision.close] == [[0, 10, 20, 30]]


def test_a_failure_in_one_iteration_begins_no_other() -> None:
    open_run = run_of(EACH, "e", "running", state={"items": [1, 2, 3, 4]})
    decision = decide(EACH, open_run, run_of(EACH, "e/i", "failed", "0"))
    assert decision.failed is not None
    assert decision.ready == []


def test_waiting_iterations_take_a_place_and_the_earliest_timer_counts() -> None:
    each = define({"id": "e", "for_each": {"items": [1, 2, 3], "concurrency": 2, "steps": [{"id": "w", "wait": {"for": "1s"}}]}})
    open_run = run_of(each, "e", "running", state={"items": [1, 2, 3]})
    decision = decide(
        each,
        open_run,
        run_of(each, "e/w", "waiting", "0", next_run_at=NOW + 9),
        run_of(each, "e/w", "waiting", "1", next_run_at=NOW + 3),
    )
    assert (decision.ready, decision.close, decision.wake_at) == ([], [], NOW + 3)


def test_ten_thousand_iterations_are_decided_in_linear_time() -> None:
    each = define({"id": "e", "for_each": {"items": [1], "concurrency": 2, "steps": [{"id": "i", **RULE}]}})
    history = History(each)
    history.put(run_of(each, "e", "running", state={"items": list(range(10_000))}))
    looked = 0
    for index in range(1, 10_000):  # the first stays open all the time
        looked += len(history.decide(NOW).ready)
        history.put(run_of(each, "e/i", "succeeded", str(index), output=index))
    assert looked == 2 * 9_999
    history.put(run_of(each, "e/i", "succeeded", "0", output=0))
    assert history.decide(NOW).close[0].output == list(range(10_000))


def test_names_of_an_iteration_are_its_own_and_those_around_it() -> None:
    inner = {"id": "in", "for_each": {"items": [1], "steps": [{"id": "x", **RULE}]}}
    nested = define({"id": "a", **RULE}, {"id": "out", "for_each": {"items": [1, 2], "steps": [{"id": "b", **RULE}, inner]}})
    history = History(nested)
    for run in (
        run_of(nested, "a", "succeeded", output="A"), run_of(nested, "out/b", "succeeded", "0", output="B0"),
        run_of(nested, "out/b", "succeeded", "1", output="B1"), run_of(nested, "out/in/x", "succeeded", "1.0", output="X"),
    ):  # fmt: skip
        history.put(run)
    assert history.outputs_for("") == {"a": "A"}
    assert history.outputs_for("0") == {"a": "A", "b": "B0"}
    assert history.outputs_for("1.0") == {"a": "A", "b": "B1", "x": "X"}


BOTH = define(
    {"id": "p", "parallel": {"left": [{"id": "a", **RULE}, {"id": "b", **RULE}], "right": [{"id": "c", **RULE}]}},
    {"id": "z", **RULE},
)


def test_the_branches_of_a_parallel_go_on_by_themselves_and_close_by_name() -> None:
    open_run = run_of(BOTH, "p", "running", state={"branches": ["left", "right"]})
    assert ready(decide(BOTH, open_run)) == [("p/a", ""), ("p/c", "")]
    assert ready(decide(BOTH, open_run, run_of(BOTH, "p/a", "succeeded"))) == [("p/b", ""), ("p/c", "")]
    one_over = decide(BOTH, open_run, run_of(BOTH, "p/c", "succeeded", output=3))
    assert (ready(one_over), one_over.close) == ([("p/a", "")], [])
    over = [run_of(BOTH, f"p/{name}", "succeeded", output=name) for name in "abc"]
    assert [each.output for each in decide(BOTH, open_run, *over).close] == [{"left": "b", "right": "c"}]


def test_a_failing_branch_fails_the_parallel_and_a_skipped_one_hides_its_steps() -> None:
    open_run = run_of(BOTH, "p", "running", state={"branches": ["left", "right"]})
    assert decide(BOTH, open_run, run_of(BOTH, "p/c", "failed", error={"code": "x"})).failed is not None
    history = History(BOTH)
    history.put(run_of(BOTH, "p", "skipped"))
    assert history.outputs_for("") == {"p": None, "a": None, "b": None, "c": None}


def test_a_stop_ends_everything_with_its_output_wherever_it_stands() -> None:
    stop = {"id": "s", "stop": {"output": 1}}
    each = {"id": "e", "for_each": {"items": [1, 2], "concurrency": 2, "steps": [{"id": "i", **RULE}, stop]}}
    definition = define(
        {"id": "p", "parallel": {"left": [each], "right": [{"id": "w", "wait": {"for": "1s"}}]}}, {"id": "z", **RULE}
    )
    open_runs = [
        run_of(definition, "p", "running", state={"branches": ["left", "right"]}),
        run_of(definition, "p/e", "running", state={"items": [1, 2]}),
        run_of(definition, "p/e/i", "failed", "1", error={"code": "x"}),
        run_of(definition, "p/w", "waiting", next_run_at=NOW + 5),
    ]
    assert decide(definition, *open_runs).failed is not None
    stopped = run_of(definition, "p/e/s", "succeeded", "0", output=7)
    decision = decide(definition, *open_runs, stopped)
    assert (decision.done, decision.stopped, decision.output) == (True, stopped, 7)
    assert (decision.ready, decision.close, decision.failed, decision.wake_at) == ([], [], None, None)
    without_stop = decide(definition, *open_runs[:2], run_of(definition, "p/e/s", "skipped", "0"))
    assert not without_stop.done


# -- random processes


@st.composite
def steps_of(draw: st.DrawFn, depth: int = 0, stops: bool = False) -> list[dict[str, Any]]:
    kinds = ["rule", "rule", "wait", "ask", *(["stop"] if stops else [])]
    kinds += ["branch", "for_each", "parallel"] if depth < 3 else []
    results: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(kinds))
        if kind == "rule":
            results.append(dict(RULE))
        elif kind == "wait":
            results.append({"wait": {"for": "1s"}})
        elif kind == "ask":
            results.append({"wait": {"event": "paid"}})
        elif kind == "stop":
            results.append({"stop": {}})
        elif kind == "branch":
            options = [{"when": "= true", "steps": draw(steps_of(depth + 1, stops))} for _ in range(draw(st.integers(1, 2)))]
            results.append({"branch": options})
        elif kind == "parallel":
            results.append({"parallel": {f"way{n}": draw(steps_of(depth + 1, stops)) for n in range(draw(st.integers(1, 3)))}})
        else:
            items = list(range(draw(st.integers(0, 4))))
            inner = draw(steps_of(depth + 1, stops))
            results.append({"for_each": {"items": items, "concurrency": draw(st.integers(1, 3)), "steps": inner}})
    return results


def with_ids(steps: list[dict[str, Any]], count: list[int]) -> list[dict[str, Any]]:
    """The same steps with ids."""
    results = []
    for step in steps:
        count[0] += 1
        copy = {"id": f"s{count[0]}", **step}
        if "branch" in step:
            copy["branch"] = [{**option, "steps": with_ids(option["steps"], count)} for option in step["branch"]]
        if "parallel" in step:
            copy["parallel"] = {name: with_ids(inner, count) for name, inner in step["parallel"].items()}
        if "for_each" in step:
            copy["for_each"] = {**step["for_each"], "steps": with_ids(step["for_each"]["steps"], count)}
        results.append(copy)
    return results


class Simulation:
    """Performs ready steps in a random order; attempts skip, wait, retry or succeed; sometimes the history is reloaded."""

    def __init__(self, definition: Definition, data: st.DataObject) -> None:
        self.definition, self.data = definition, data
        self.history = History(definition)
        self.now = NOW
        self.order: list[tuple[str, str]] = []

    def run(self) -> Decision:
        for _ in range(3_000):
            decision = self.history.decide(self.now)
            assert decision.failed is None
            if decision.done:
                return decision
            if decision.close:
                for each in decision.close:
                    self._store(each.step, each.iteration, "succeeded", output=each.output)
            elif decision.ready:
                self._perform(decision)
            else:
                assert decision.wake_at is not None, "neither anything to do nor to wait for"
                assert decision.wake_at > self.now
                self.now = decision.wake_at
        raise AssertionError("it does not end")

    def _perform(self, decision: Decision) -> None:
        each = self.data.draw(st.sampled_from(decision.ready))
        step, attempt = each.step, each.run.attempt if each.run else 1
        outcome = self.data.draw(st.sampled_from(["go", "go", "skip", "retry", "reload"]))
        if outcome == "retry" and attempt < 3 and step.kind == "rule":
            self._store(
                step, each.iteration, "retrying", attempt=attempt + 1, next_run_at=self.now + self.data.draw(st.integers(0, 5))
            )
        elif outcome == "reload":
            runs = list(self.history.runs.values())
            self.history = History(self.definition)
            for run in runs:
                self.history.put(run)
        elif each.run is not None and each.run.is_suspended:
            assert (each.run.next_run_at or 0) <= self.now, "it is asked once, and goes on when it is due"
            self._store(step, each.iteration, "succeeded", output=step.id)
        elif outcome == "skip":
            self._store(step, each.iteration, "skipped")
        elif step.kind == "wait" and "arguments" in step.templates:
            due = self.now + self.data.draw(st.integers(0, 9))
            self._store(step, each.iteration, "waiting", next_run_at=due, state={"suspended": True})
        elif step.kind == "wait":
            self._store(step, each.iteration, "waiting", next_run_at=self.now + self.data.draw(st.integers(1, 9)))
        elif step.kind == "branch":
            option = self.data.draw(st.integers(0, len(step.blocks) - 1))
            self._store(step, each.iteration, "running", state={"taken": option})
        elif step.kind == "parallel":
            self._store(step, each.iteration, "running", state={"branches": [block.name for block in step.blocks]})
        elif step.kind == "for_each" and step.templates["items"].value:
            self._store(step, each.iteration, "running", state={"items": step.templates["items"].value})
        else:
            self._store(step, each.iteration, "succeeded", output=step.id)

    def _store(self, step: Step, iteration: str, status: str, **more: Any) -> None:
        before = self.history.runs.get((step.path, iteration))
        assert before is None or before.status not in ("succeeded", "skipped"), "what is finished is never touched again"
        more.setdefault("state", before.state if before else None)
        self.history.put(StepRun(step.path, iteration, step.id, step.kind, status, **more))
        if status in ("succeeded", "skipped"):
            self.order.append((step.path, iteration))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), steps=steps_of())
def test_random_processes_end_with_every_step_done_once_and_in_order(data: st.DataObject, steps: list[dict[str, Any]]) -> None:
    definition = define(*with_ids(steps, [0]))
    simulation = Simulation(definition, data)
    simulation.run()
    assert len(simulation.order) == len(set(simulation.order)), "each (path, iteration) succeeds exactly once"
    finished = {key: position for position, key in enumerate(simulation.order)}
    for path, iteration in simulation.order:
        siblings = siblings_before(definition, path)
        assert all((sibling, iteration) in finished for sibling in siblings), "steps before it are finished"
        assert all(finished[sibling, iteration] < finished[path, iteration] for sibling in siblings)
    open_runs = [run for run in simulation.history.runs.values() if run.status not in ("succeeded", "skipped")]
    assert open_runs == []


@settings(max_examples=100, deadline=None)
@given(data=st.data(), steps=steps_of(stops=True))
def test_random_processes_end_with_the_first_stop_they_reach(data: st.DataObject, steps: list[dict[str, Any]]) -> None:
    definition = define(*with_ids(steps, [0]))
    simulation = Simulation(definition, data)
    decision = simulation.run()
    stops = [run for run in simulation.history.runs.values() if run.kind == "stop" and run.status == "succeeded"]
    assert stops == ([decision.stopped] if decision.stopped else [])
    if decision.stopped is None:
        return
    assert simulation.order[-1] == (decision.stopped.path, decision.stopped.iteration), "nothing is done behind it"
    assert (decision.output, decision.ready, decision.close) == (decision.stopped.output, [], [])
    again = decide(definition, *simulation.history.runs.values(), now=simulation.now + 100)
    assert (again.done, again.stopped, again.ready) == (True, decision.stopped, [])


def siblings_before(definition: Definition, path: str) -> list[str]:
    """The steps that stand before this one in the same list."""
    lists = [definition.steps, *(block.steps for step in definition.all_steps() for block in step.blocks)]
    for steps in lists:
        paths = [step.path for step in steps]
        if path in paths:
            return paths[: paths.index(path)]
    raise AssertionError(path)
