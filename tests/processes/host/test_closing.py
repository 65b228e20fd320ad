"""The final journal entries: clock values, the seed, and the times at which expressions were evaluated."""

import hashlib
import json
from pathlib import Path

import pytest

from appliance.core import clock
from appliance.processes.engine import store
from appliance.processes.engine.store import FINAL_LINE, JournalEntry
from appliance.processes.host.final_entries import END, parse_final_entry
from appliance.sandbox import Pool
from tests.processes.world import Bell, World, code, make_world, rule

MARK = "await api.datapool.create('marks', {what: 'x'});"
TICK = "const tick = () => { const now = Date.now(); while (Date.now() === now) {} return Date.now(); };"


def lines(world: World, execution: str, step: str = "a", attempt: int = 1) -> list[JournalEntry]:
    return store.load_lines(world.scope, execution, (step, "", attempt))


def closing_line(world: World, execution: str, step: str = "a", attempt: int = 1) -> JournalEntry:
    (result,) = [line for line in lines(world, execution, step, attempt) if line.call == FINAL_LINE]
    assert result.method == END
    return result


def test_clock_values_after_the_last_call_and_the_seed_close_the_journal(world: World) -> None:
    body = f"const first = Date.now(); {MARK} const then = [Date.now(), Date.now()]; return {{first, then, dice: Math.random()}};"
    row = world.run([code("a", body)])
    call, final = lines(world, row.id)
    assert (call.call, call.clock) == (1, [row.output["first"]])
    assert final.clock == row.output["then"]
    assert final.answer["random"] is True
    assert final.answer["clock_reads"] == 3
    assert isinstance(parse_final_entry(final).seed, int)


def test_two_attempts_have_two_seeds(world: World) -> None:
    retry = {"max_attempts": 2, "initial": "1ms", "classes": ["user_code"]}
    body = "const dice = Math.random(); if (api.execution.attempt < 2) throw new Error('once'); return dice;"
    row = world.run([code("a", body, retry=retry)])
    seeds = {parse_final_entry(closing_line(world, row.id, attempt=attempt)).seed for attempt in (1, 2)}
    assert len(seeds) == 2


def test_nobody_computes_a_seed_from_what_is_shown_of_an_execution(world: World) -> None:
    row = world.run([code("a", "return crypto.randomUUID();")])
    final = closing_line(world, row.id)
    seed = parse_final_entry(final).seed or 0
    assert final.answer["random"] is True
    assert seed.bit_length() > 200
    guess = hashlib.sha256(f"{row.id}/a//1".encode()).digest()
    assert seed & (1 << 64) - 1 not in (int.from_bytes(guess[:8], "big"), int.from_bytes(guess[-8:], "big"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("throw new Error()", "Error without a message"),
        ("throw new RangeError()", "RangeError without a message"),
        ("throw new RangeError('x')", "RangeError: x"),
        ("Promise.reject(new TypeError()); return 1", "TypeError without a message"),
        ("class Odd extends Error { name = 'Odd' } Promise.reject(new Odd('x')); return 1", "Odd: x"),
    ],
)
def test_a_failure_keeps_the_name_of_its_error(world: World, body: str, message: str) -> None:
    assert world.run([code("a", body)]).error["message"] == message


@pytest.mark.parametrize(("body", "count"), [("return 1;", 0), (MARK, 2), ("return Date.now();", 1), ("return Math.random();", 1)])
def test_only_a_step_that_asked_something_has_lines(world: World, body: str, count: int) -> None:
    row = world.run([code("a", body)])
    assert len(lines(world, row.id)) == count
    if count:
        assert closing_line(world, row.id).answer["random"] is ("random" in body)


def test_a_failed_step_has_what_it_read_before_it_failed(world: World) -> None:
    row = world.run([code("a", "const now = Date.now(); throw new Error(String(now));")])
    assert closing_line(world, row.id).clock == [int(row.error["message"])]


def test_clock_values_told_with_a_call_that_was_never_answered_are_kept_in_order(world: World) -> None:
    body = f"""
      {TICK}
      const seen = [tick()];
      {MARK}
      seen.push(tick());
      api.integrations.execute('bell', 'hold', {{}});
      await api.datapool.find('marks', 'none');
      seen.push(tick());
      throw new Error(JSON.stringify(seen));
    """
    execution = world.start(world.publish([code("a", body)]))
    assert Bell.arrived.acquire(timeout=10)
    row = world.finish(execution)
    Bell.go_on.set()
    read = [value for line in sorted(lines(world, execution), key=lambda each: each.call or 99) for value in line.clock]
    assert read == sorted(read)
    first, second, third = json.loads(row.error["message"])
    assert read.index(first) < read.index(second) < read.index(third)
    assert read[-1] == third


def test_the_moment_of_a_later_attempt_is_noted(world: World) -> None:
    retry = {"max_attempts": 2, "initial": "20ms", "jitter": False, "classes": ["user_code"]}
    body = "if (api.execution.attempt < 2) throw new Error('once'); return input;"
    row = world.run([code("a", body, input="= Date.now()", retry=retry)])
    run = world.steps(row)["a"]
    assert row.output > run.started_at
    assert parse_final_entry(closing_line(world, row.id, attempt=2)).now == row.output
    assert parse_final_entry(closing_line(world, row.id, attempt=1)).now is None, (
        "the first one's moment is the step run's beginning"
    )


def test_moments_that_expressions_see_are_those_of_the_rows(world: World) -> None:
    each = {"id": "each", "for_each": {"items": [1], "collect": "= Date.now()", "steps": [rule("inner", "= Date.now()")]}}
    steps = [rule("a", "= execution.started_at"), rule("b", "= Date.now()"), each]
    execution = world.start(world.publish(steps, output="= [steps.a, steps.b, steps.each[0], Date.now()]"), soon=False)
    row = world.finish(execution)
    runs = world.steps(row)
    expected = [clock.rfc3339(row.started_at), runs["b"].started_at, runs["each"].finished_at, row.finished_at]
    assert row.output == expected


def test_an_answer_that_the_journal_cannot_keep_is_refused_and_a_write_is_undone(folder: Path, sandbox: Pool) -> None:
    world = make_world(folder, sandbox, limits__step_answer_kb=4)
    big = "'x'.repeat(5000)"
    body = f"""
      const codes: string[] = [];
      const note = (error: any) => codes.push(error.code);
      await api.datapool.create('marks', {{what: 'big', note: {big}}}).catch(note);
      await api.datapool.create('marks', {{what: 'small'}});
      await api.integrations.execute('bell', 'ring', {{loud: {big}}}).catch(note);
      return codes;
    """
    Bell.forget()
    try:
        execution = world.start(world.publish([code("a", body)]), soon=False)
        world.runner.drive("acme", execution)
        row = world.get(execution)
        assert row.output == ["payload_too_large", "payload_too_large"], row.error
        assert ("small", None) in world.marks()
        assert "big" not in dict(world.marks())
        assert len(Bell.rung) == 1
    finally:
        world.runner.stop(5)
        world.presence.close()
