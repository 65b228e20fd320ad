"""After a crash at any write the attempt runs again against its journal, and nothing happens twice."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.core import clock
from appliance.core.database import db, writers
from appliance.processes.engine import store
from appliance.processes.host import journal
from tests.processes.world import Bell, World, code, rule, wait_until

When = Literal["before", "after"]
MOST_WRITES = 60


class PowerCut(BaseException):
    """A simulated power failure."""


@contextmanager
def power_cut(number: int, when: When) -> Iterator[None]:
    """Kills the process at its `number`-th transaction from now, just before or just after the commit."""
    write = db.write
    numbers = itertools.count(1)

    def write_until_dark(fn: Callable[[], Any], *, is_shared: bool = False) -> Any:
        if writers.state.inside:
            return write(fn, is_shared=is_shared)
        position = next(numbers)
        if position == number and when == "before":
            raise PowerCut
        result = write(fn, is_shared=is_shared)
        if position == number:
            raise PowerCut
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db, "write", write_until_dark)
        yield


@contextmanager
def cut_after_first_mark() -> Iterator[None]:
    """Kills the process when the answer of a create is durable, whatever else is running."""
    append = store.append_journal
    wrote = threading.Event()
    write = db.write

    def note(claim: Any, run_key: Any, entries: list[Any]) -> None:
        append(claim, run_key, entries)
        if any(entry.method == "datapool.create" for entry in entries):
            wrote.set()

    def write_until_dark(fn: Callable[[], Any], *, is_shared: bool = False) -> Any:
        result = write(fn, is_shared=is_shared)
        if wrote.is_set() and not writers.state.inside:
            raise PowerCut
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "append_journal", note)
        patch.setattr(db, "write", write_until_dark)
        yield


def drive(world: World, execution: str) -> None:
    """Another worker claims the execution, as often as necessary."""
    for _ in range(20):
        world.lose_worker(execution)
        world.runner.drive("acme", execution)
        row = world.get(execution)
        if row.status in store.FINISHED:
            return
        wait_until(lambda row=row: row.next_run_at is None or world.get(execution).status != "waiting" or is_due(row))
    raise AssertionError(world.get(execution).status)


def is_due(row: Any) -> bool:
    return bool(row.next_run_at <= clock.now_ms())


def crash_and_drive(world: World, execution: str, cuts: list[tuple[int, When]]) -> bool:
    """Whether any of the power failures happened; afterwards the execution is finished."""
    cut = False
    for number, when in cuts:
        world.lose_worker(execution)
        with power_cut(number, when):
            try:
                world.runner.drive("acme", execution)
            except PowerCut:
                cut = True
        if world.get(execution).status in store.FINISHED:
            return cut
    drive(world, execution)
    return cut


PROGRAM = """
const began = Date.now();
const dice = Math.random();
const a = await api.datapool.create('marks', {what: 'a', note: `${dice}:${began}`});
const seen = await api.datapool.query('marks', {filter: {what: {_eq: 'a'}}});
const [rung, b] = await Promise.all([
  api.integrations.execute('bell', 'ring', {dice}),
  api.datapool.create('marks', {what: 'b', note: String(seen.items.length)}),
]);
await api.datapool.update('marks', a.id, {what: 'c'});
await api.datapool.batch({operations: [
  {op: 'upsert', collection: 'marks', key: ['what'], values: {what: 'b', note: 'upserted'}},
  {op: 'create', collection: 'marks', values: {what: 'd'}},
]}).catch(async error => { await api.datapool.create('marks', {what: 'd', note: error.code}); });
const e = await api.datapool.create('marks', {what: 'e'});
await api.datapool.delete('marks', e.id);
return {note: `${dice}:${began}`, rung: rung.rung.dice === dice};
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_write_of_a_step_leaves_everything_done_exactly_once(idle_world: World, when: When) -> None:
    world = idle_world
    process = world.publish([code("a", PROGRAM), rule("b", "= steps.a")])
    for number in range(1, MOST_WRITES):
        world.wipe()
        Bell.forget()
        execution = world.start(process, soon=False)
        cut = crash_and_drive(world, execution, [(number, when)])
        row = world.get(execution)
        assert row.status == "succeeded", (number, row.error)
        assert row.output["rung"] is True
        marks = world.marks()
        assert sorted(what for what, _ in marks) == ["b", "c", "d"], number
        assert dict(marks)["c"] == row.output["note"], "the clock and the dice are those of the first run"
        assert len({key for key, _ in Bell.rung}) == 1
        assert world.steps(execution)["a"].attempt == 1
        if not cut:
            break
    assert 10 < number < MOST_WRITES


def test_a_crash_at_any_write_of_declarative_steps(idle_world: World) -> None:
    world = idle_world
    mark = {"id": "mark", "datapool": {"collection": "marks", "create": {"values": {"what": "= item"}}}}
    ring = {"id": "ring", "integration": {"use": "bell", "action": "ring", "input": {"n": "= item"}}}
    each = {"id": "each", "for_each": {"items": ["1", "2", "3"], "concurrency": 2, "steps": [mark, ring]}}
    process = world.publish(
        [
            each,
            {"id": "pause", "wait": {"for": "1ms"}},
            {**mark, "id": "end", "datapool": {"collection": "marks", "create": {"values": {"what": "end"}}}},
        ]
    )
    for number in range(1, MOST_WRITES):
        world.wipe()
        Bell.forget()
        execution = world.start(process, soon=False)
        cut = crash_and_drive(world, execution, [(number, "after" if number % 2 else "before")])
        assert world.get(execution).status == "succeeded", world.get(execution).error
        assert sorted(what for what, _ in world.marks()) == ["1", "2", "3", "end"], number
        assert len({key for key, _ in Bell.rung}) == 3
        if not cut:
            break
    assert number < MOST_WRITES


def test_a_clock_read_before_a_call_still_in_flight_is_read_again_after_the_crash(idle_world: World) -> None:
    world = idle_world
    body = """
      const first = Date.now();
      while (Date.now() < first + 5) {}
      const slow = api.integrations.execute('bell', 'hold', {first});
      const second = Date.now();
      await api.datapool.create('marks', {what: 'x', note: String(second)});
      await slow;
      return [first, second];
    """
    execution = world.start(world.publish([code("a", body)]), soon=False)
    with cut_after_first_mark(), pytest.raises(PowerCut):
        world.runner.drive("acme", execution)
    Bell.go_on.set()
    drive(world, execution)
    row = world.get(execution)
    assert row.status == "succeeded", row.error
    assert {payload["first"] for _, payload in Bell.rung} == {row.output[0]}
    assert world.marks() == [("x", str(row.output[1]))]


@pytest.mark.parametrize("when", ["before", "after"])
def test_clock_values_of_calls_begun_together_keep_their_order(idle_world: World, when: When) -> None:
    world = idle_world
    body = """
      const tick = () => { const now = Date.now(); while (Date.now() === now) {} return Date.now(); };
      const first = tick();
      const made = api.datapool.create('marks', {what: String(first)});
      const second = tick();
      const [, rung] = await Promise.all([made, api.integrations.execute('bell', 'ring', {second})]);
      return [first, rung.rung.second];
    """
    process = world.publish([code("a", body)])
    for number in range(2, 9):
        world.wipe()
        Bell.forget()
        execution = world.start(process, soon=False)
        crash_and_drive(world, execution, [(number, when)])
        row = world.get(execution)
        assert row.status == "succeeded", (number, row.error)
        assert [what for what, _ in world.marks()] == [str(row.output[0])]
        assert {payload["second"] for _, payload in Bell.rung} == {row.output[1]}


def test_answers_are_replayed_in_the_order_in_which_they_came(idle_world: World) -> None:
    world = idle_world
    body = """
      const order: string[] = [];
      await Promise.all([
        api.integrations.execute('bell', 'hold', {}).then(() => order.push('slow')),
        api.datapool.create('marks', {what: '1'}).then(() => order.push('quick')),
      ]);
      await api.datapool.create('marks', {what: order.join()});
      return order;
    """
    process = world.publish([code("a", body)])
    for number in range(4, 9):
        world.wipe()
        Bell.forget()
        execution = world.start(process, soon=False)
        with power_cut(number, "after"):
            Bell.go_on.set()
            with suppress(PowerCut):
                world.runner.drive("acme", execution)
        drive(world, execution)
        row = world.get(execution)
        assert row.status == "succeeded", row.error
        assert [what for what, _ in world.marks()] == ["1", ",".join(row.output)]


@pytest.mark.parametrize("change", ["other arguments", "another call", "no call at all"])
def test_code_that_asks_something_else_than_before_fails_as_nondeterministic(idle_world: World, change: str) -> None:
    world = idle_world
    body = """
      if (input.how === 'another call') await api.datapool.query('marks', {});
      else if (input.how !== 'no call at all') await api.datapool.create('marks', {what: input.how});
      return 1;
    """
    execution = world.start(world.publish([code("a", body)]), {"how": "x"}, soon=False)
    with power_cut(2, "after"), pytest.raises(PowerCut):
        world.runner.drive("acme", execution)
    db.write(lambda: db.execute("UPDATE execution SET input = ? WHERE id = ?", (json.dumps({"how": change}), execution)))
    drive(world, execution)
    row = world.get(execution)
    assert (row.status, row.error["code"], row.failure_class) == ("failed", "nondeterministic", "user_code")
    assert len(world.marks()) == 1


def test_a_second_attempt_has_a_journal_and_dice_of_its_own(idle_world: World) -> None:
    world = idle_world
    body = """
      await api.datapool.create('marks', {what: String(Math.random())});
      if (api.execution.attempt < 2) throw new Error('once');
      return 1;
    """
    retry = {"max_attempts": 2, "initial": "1ms", "classes": ["user_code"]}
    execution = world.start(world.publish([code("a", body, retry=retry)]), soon=False)
    drive(world, execution)
    assert world.get(execution).status == "succeeded"
    assert len({what for what, _ in world.marks()}) == 2
    rows = db.rows("SELECT attempt, call FROM journal WHERE execution_id = ? AND call > 0 ORDER BY attempt", (execution,))
    assert rows == [(1, 1), (2, 1)]


def test_an_integration_step_that_mentions_the_clock_sends_the_same_again_after_a_crash(idle_world: World) -> None:
    world = idle_world
    sent = {"at": "= Date.now()", "day": "{{ new Date().toISOString() }}"}
    process = world.publish([{"id": "a", "integration": {"use": "bell", "action": "ring", "input": sent}}])
    for number in range(1, MOST_WRITES):
        Bell.forget()
        execution = world.start(process, soon=False)
        cut = crash_and_drive(world, execution, [(number, "after"), (number, "before")])
        assert world.get(execution).status == "succeeded", world.get(execution).error
        assert len({(key, json.dumps(payload)) for key, payload in Bell.rung}) == 1
        if not cut:
            break
    assert 3 < number < MOST_WRITES


OPERATIONS = st.lists(
    st.sampled_from(["create", "update", "read", "random", "now", "ring", "both", "pair"]), min_size=1, max_size=8
)
CUTS = st.lists(st.tuples(st.integers(1, 14), st.sampled_from(["before", "after"])), min_size=1, max_size=3)
INTERPRETER = """
const ids: string[] = [], seen: unknown[] = [];
const note = () => JSON.stringify(seen);
for (const [i, op] of input.ops.entries()) {
  if (op === 'random') seen.push(Math.random());
  if (op === 'now') seen.push(Date.now());
  if (op === 'read') seen.push((await api.datapool.query('marks', {})).items.length);
  if (op === 'ring') seen.push((await api.integrations.execute('bell', 'ring', {i, now: Date.now()})).rung.i);
  if (op === 'create') ids.push((await api.datapool.create('marks', {what: `c${i}`, note: note()})).id);
  if (op === 'update' && ids.length) await api.datapool.update('marks', ids[ids.length - 1], {what: `u${i}`, note: note()});
  if (op === 'both') {
    const ring = api.integrations.execute('bell', 'ring', {i, now: Date.now()});
    seen.push(Date.now());
    const made = await api.datapool.create('marks', {what: `b${i}`, note: note()});
    seen.push((await ring).rung.now);
    ids.push(made.id);
  }
  if (op === 'pair') {
    const now = Date.now();
    const note = JSON.stringify([now]);
    const [made, rung] = await Promise.all([
      api.datapool.create('marks', {what: `p${i}`, note}), api.integrations.execute('bell', 'ring', {i, now: Date.now()}),
    ]);
    seen.push(now, rung.rung.now);
    ids.push(made.id);
  }
}
return seen;
"""


def expected_marks(operations: list[str], seen: list[Any]) -> list[tuple[str, str]]:
    """The marks that a run which saw these values leaves behind."""
    marks: list[tuple[str, str]] = []
    count = 0

    def note() -> str:
        return json.dumps(seen[:count], separators=(",", ":"))

    for index, operation in enumerate(operations):
        if operation in ("random", "now", "read", "ring"):
            count += 1
        elif operation == "create":
            marks.append((f"c{index}", note()))
        elif operation == "update" and marks:
            marks[-1] = (f"u{index}", note())
        elif operation == "both":
            count += 1
            marks.append((f"b{index}", note()))
            count += 1
        elif operation == "pair":
            marks.append((f"p{index}", f"[{seen[count]}]"))
            count += 2
    return marks


@pytest.fixture
def interpreter(idle_world: World) -> tuple[World, str]:
    return idle_world, idle_world.publish([code("a", INTERPRETER)])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS, cuts=CUTS)
def test_whatever_a_step_does_and_whenever_it_crashes_the_data_is_that_of_one_run(
    interpreter: tuple[World, str], operations: list[str], cuts: list[tuple[int, When]]
) -> None:
    world, process = interpreter
    world.wipe()
    Bell.forget()
    execution = world.start(process, {"ops": operations}, soon=False)
    crash_and_drive(world, execution, cuts)
    row = world.get(execution)
    assert row.status == "succeeded", row.error
    assert sorted(world.marks()) == sorted(expected_marks(operations, row.output))
    rings = sum(operation in ("ring", "both", "pair") for operation in operations)
    assert len({key for key, _ in Bell.rung}) == rings
    assert len({json.dumps(payload) for _, payload in Bell.rung}) == rings, "a repeated call asks the same"
