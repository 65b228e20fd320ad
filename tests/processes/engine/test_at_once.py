"""Executions that run in their caller's thread: one commit without effects, recorded before any effect, and never half written."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from appliance.core.database import db, writers
from appliance.core.errors import NotFound, StorageFull
from appliance.core.pages import PageRequest
from appliance.processes import RunAtOnce, Waiter
from appliance.processes.engine import completion, store
from appliance.processes.executions import service as executions
from appliance.processes.executions.service import Execution
from appliance.processes.executions.starting import StartRequest
from tests.processes.host.test_journal import MOST_WRITES, PowerCut, When, drive, power_cut
from tests.processes.world import Bell, World, code, rule, wait_until

PURE = [rule("twice", "= input.n * 2"), code("more", "return {n: input.n + 1, at: Date.now(), by: Math.random()};")]
EFFECTS = [
    code("first", "return Math.random();"),
    code("second", "const it = await api.datapool.create('marks', {what: 'code'}); return it.what;"),
    code("third", "return await api.integrations.execute('bell', 'ring', {by: input.n});"),
    {"id": "fourth", "datapool": {"collection": "marks", "create": {"values": {"what": "= 'step ' + steps.first"}}}},
]


def start(world: World, process: str, runs: list[RunAtOnce], payload: Any = None, **request: Any) -> Execution:
    start_request = StartRequest(payload or {"n": 1}, **request)
    return world.flow.start_execution(world.scope, process, start_request, waiter=Waiter(on_run=runs.append))


@contextmanager
def counted_commits() -> Iterator[list[int]]:
    """The number of the writer's transactions for callers outside of it."""
    count, write = [0], db.write

    def count_write(fn: Callable[[], Any], *, is_shared: bool = False) -> Any:
        count[0] += not writers.state.inside
        return write(fn, is_shared=is_shared)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db, "write", count_write)
        yield count


def stored_executions(process: str) -> int:
    ((count,),) = db.rows("SELECT count(*) FROM execution WHERE process_id = ?", (process,))
    return int(count)


def columns(row: Execution) -> dict[str, Any]:
    return {name: getattr(row, name) for name in Execution._meta.fields}


def event_types(world: World, execution: str) -> list[str]:
    return [each.type for each in executions.events_after(world.scope, execution, 0)]


def test_an_execution_without_effects_is_one_commit(idle_world: World) -> None:
    world = idle_world
    runs: list[RunAtOnce] = []
    process = world.publish(PURE)
    start(world, process, [])  # records what the version is granted
    with counted_commits() as count:
        row = start(world, process, runs, label="one")
    assert (row.status, row.output["n"], len(runs), count) == ("succeeded", 2, 1, [1])
    stored = world.get(row.id)
    assert columns(stored) == columns(row)
    assert (stored.owner, stored.claims, stored.label_text) == (None, 0, "one")
    assert event_types(world, row.id) == ["running", "step", "step", "succeeded"]
    steps = world.steps(row.id)
    assert [(steps[name].status, steps[name].output is not None) for name in ("twice", "more")] == [("succeeded", True)] * 2
    assert len(executions.list_journal(world.scope, row, PageRequest()).items) == 1
    search = executions.ExecutionFilter(search="n=1", id=row.id)
    assert [each.id for each in executions.list_executions(world.scope, search, PageRequest()).items] == [row.id]


def test_a_write_of_code_is_one_commit_with_the_steps_before_it(idle_world: World) -> None:
    world = idle_world
    process = world.publish(EFFECTS[:2])
    start(world, process, [])
    with counted_commits() as count:
        row = start(world, process, [])
    assert (row.status, row.output, count) == ("succeeded", "code", [2])
    assert columns(world.get(row.id)) == columns(row)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_write_has_every_effect_once_or_none(idle_world: World, when: When) -> None:
    world = idle_world
    process = world.publish(EFFECTS)
    start(world, process, [])
    unrecorded = 0
    for number in range(1, MOST_WRITES):
        world.wipe()
        Bell.forget()
        runs: list[RunAtOnce] = []
        try:
            with power_cut(number, when):
                start(world, process, runs)
            was_cut = False
        except PowerCut:
            was_cut = True
        execution = runs[0].claim.execution_id
        if not db.rows("SELECT 1 FROM execution WHERE id = ?", (execution,)):
            unrecorded += 1
            assert (was_cut, world.marks(), Bell.rung) == (True, [], []), number
            assert db.rows("SELECT count(*) FROM step_run WHERE execution_id = ?", (execution,)) == [(0,)]
            continue
        if was_cut and world.get(execution).status not in store.FINISHED:
            drive(world, execution)
        row = world.get(execution)
        assert row.status == "succeeded", (number, row.error)
        first = world.steps(execution)["first"].output
        assert [what for what, _ in world.marks()] == ["code", f"step {first}"], number
        assert len({key for key, _ in Bell.rung}) == 1, number
        if not was_cut:
            break
    assert 4 < number < MOST_WRITES
    assert unrecorded == (when == "before")


def test_an_execution_is_recorded_before_it_calls_out(idle_world: World) -> None:
    world = idle_world
    process = world.publish([rule("one", "= 1"), code("two", "return await api.integrations.execute('bell', 'hold', {});")])
    runs: list[RunAtOnce] = []
    thread = threading.Thread(target=start, args=(world, process, runs))
    thread.start()
    assert Bell.arrived.acquire(timeout=20)
    execution = runs[0].claim.execution_id
    assert world.get(execution).status == "running"
    assert world.steps(execution)["one"].status == "succeeded"
    Bell.go_on.set()
    thread.join(20)
    assert world.get(execution).status == "succeeded"


def test_recording_it_while_it_runs(idle_world: World) -> None:
    world, over = idle_world, threading.Event()
    process = world.publish([rule("one", "= 1"), code("two", "const end = Date.now() + 400; while (Date.now() < end); return 2;")])
    runs: list[RunAtOnce] = []
    thread = threading.Thread(target=start, args=(world, process, runs))
    thread.start()
    run = wait_until(lambda: runs and runs[0])
    wait_until(lambda: world.runner.active)
    row = run.record(over.set)
    assert (row.status, row.owner, over.is_set()) == ("running", world.presence.instance, False)
    assert over.wait(20)
    thread.join(20)
    row = world.get(row.id)
    assert (row.status, row.output) == ("succeeded", 2)
    assert {name: run.status for name, run in world.steps(row.id).items()} == {"one": "succeeded", "two": "succeeded"}
    assert event_types(world, row.id) == ["running", "step", "step", "succeeded"]


def test_recording_it_after_its_end(idle_world: World) -> None:
    world, over = idle_world, threading.Event()
    runs: list[RunAtOnce] = []
    row = start(world, world.publish([rule("one", "= 1")]), runs)
    assert runs[0].record(over.set).status == "succeeded"
    assert ("acme", row.id) not in completion.completion_signal.list_awaited()


@pytest.mark.parametrize("first", ["record", "end"])
def test_recording_it_in_the_transaction_in_which_it_ends(idle_world: World, first: str) -> None:
    world = idle_world
    process = world.publish([rule("one", "= 1")])
    start(world, process, [])
    is_blocked, go_on = threading.Event(), threading.Event()
    rows: list[Execution] = []
    runs: list[RunAtOnce] = []
    recording = threading.Thread(target=lambda: rows.append(runs[0].record(lambda: None)))

    def record() -> None:
        queued = db.writer_depth()
        recording.start()
        wait_until(lambda: db.writer_depth() == queued + 1)

    def begin(run: RunAtOnce) -> None:
        runs.append(run)
        if first == "record":
            record()

    request = StartRequest({})
    ending = threading.Thread(
        target=lambda: rows.append(world.flow.start_execution(world.scope, process, request, waiter=Waiter(on_run=begin)))
    )

    def block() -> None:
        is_blocked.set()
        go_on.wait(20)

    blocker = db.submit(block)
    assert is_blocked.wait(20)
    ending.start()
    if first == "end":
        wait_until(lambda: db.writer_depth() == 1)
        record()
    else:
        wait_until(lambda: db.writer_depth() == 2)
    go_on.set()
    blocker.result(20)
    ending.join(20)
    recording.join(20)
    assert [row.status for row in rows] == ["succeeded", "succeeded"]
    assert event_types(world, rows[0].id) == ["running", "step", "succeeded"]


def test_a_failure_is_recorded_like_any_other(idle_world: World) -> None:
    world = idle_world
    row = start(world, world.publish([rule("one", "= 1"), code("two", "throw new Error('no');")]), [])
    assert (row.status, row.error["step"], row.failed_step) == ("failed", "two", "two")
    assert event_types(world, row.id) == ["running", "step", "step", "failed"]
    failures = db.rows("SELECT count(*) FROM failure WHERE process_id = ?", (row.process_id,))
    assert failures == [(1,)]


def test_it_is_durable_while_it_waits(idle_world: World) -> None:
    world = idle_world
    human = {"kind": "approval", "title": "Go on?"}
    row = start(world, world.publish([rule("one", "= 1"), {"id": "two", "human": human}]), [])
    assert (row.status, row.wait_reason) == ("waiting", "approval")
    assert {name: run.status for name, run in world.steps(row.id).items()} == {"one": "succeeded", "two": "waiting"}


def test_errors_of_the_only_commit_are_the_callers(idle_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = idle_world
    process = world.publish([rule("one", "= 1")])
    before = stored_executions(process)

    def refuse(*_: Any) -> None:
        raise StorageFull("full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "add_step_event", refuse)
        with pytest.raises(StorageFull):
            start(world, process, [])
    assert stored_executions(process) == before
    assert start(world, process, []).status == "succeeded"  # its slot is free again


def test_a_process_that_is_deleted_meanwhile(idle_world: World) -> None:
    world = idle_world
    process = world.publish([rule("one", "= 1")])

    def delete(_: RunAtOnce) -> None:
        world.flow.delete_process(world.scope, process, force=True)

    with pytest.raises(NotFound):
        world.flow.start_execution(world.scope, process, StartRequest({}), waiter=Waiter(on_run=delete))
    assert stored_executions(process) == 0


def test_steps_that_cannot_be_written_fail_the_execution(idle_world: World) -> None:
    world = idle_world
    process = world.publish(PURE)
    save = store.save_run

    def refuse(scope: Any, execution: str, run: Any) -> None:
        if run.step == "twice":
            raise RuntimeError("no")
        save(scope, execution, run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "save_run", refuse)
        row = start(world, process, [])
    assert (row.status, row.error["code"]) == ("failed", "internal")


@pytest.mark.parametrize("more", [{"concurrency": {"limit": 1}}, {"paused": True}])
def test_what_may_have_to_wait_does_not_run_in_its_callers_thread(idle_world: World, more: dict[str, Any]) -> None:
    world = idle_world
    runs: list[RunAtOnce] = []
    paused = more.pop("paused", False)
    process = world.publish([rule("one", "= 1")], **more)
    if paused:
        world.flow.pause_process(world.scope, process)
    row = start(world, process, runs)
    assert (runs, row.status in ("queued", "running")) == ([], True)


def test_a_repeatable_request_does_not_run_in_its_callers_thread(idle_world: World) -> None:
    world = idle_world
    runs: list[RunAtOnce] = []
    start(world, world.publish([rule("one", "= 1")]), runs, token="again")
    assert runs == []
