"""Suspended steps: their whole state survives, and only the suspended step itself can be resumed from a snapshot."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.sandbox import Entropy, HostCall, Limits, Pool, Program, Settings, Settled, Snapshot, Suspend
from tests.sandbox.sleepy import SleepyHost, answers, failed, finished, suspended

MakeProgram = Callable[..., Program]
RICH = (Path(__file__).parent / "rich_step.ts").read_text()
LIBRARY = "export const tag = (n: number) => `t${n}`; export const later = new Map<string, number>();"


@pytest.fixture
def rich(make_program: MakeProgram) -> Program:
    return make_program(RICH, {"steps/lib.ts": LIBRARY}, "acme")


EXPECTED = {
    "tag": "t8",
    "total": "132",
    "next": 12,
    "weak": "weak",
    "floats": [1.5, 2.5],
    "expression": "a2",
    "closure": 42,
    "memo": [["k", {"deep": [1, 2, {"x": 3}]}], ["answer", {"approved": True}], ["finally", True]],
    "other": {"slow": 1},
    "date": "2020-02-02T00:00:00.000Z",
    "set": ["a", "b"],
    "view": [1, 2, 255, 4],
    "proxy": "seen x",
    "symbol": "described",
    "later": 7,
    "caught": "late",
    "input": {"order": 5},
    "execution": "exe_1",
}


@pytest.fixture
def another_pool(prepared: None) -> Iterator[Pool]:
    created_pool = Pool(Settings(processes=1, slots=2))
    created_pool.start()
    yield created_pool
    created_pool.stop()


def sleep_richly(pool: Pool, rich: Program) -> Snapshot:
    outcome = pool.run(rich, {"order": 5}, SleepyHost(), api={"id": "exe_1"}, entropy=Entropy(seed=7))
    snapshot = suspended(outcome)
    assert snapshot.pending == (1, 4)
    return snapshot


def wake_richly(pool: Pool, rich: Program, snapshot: Snapshot) -> Any:
    output = finished(pool.run(rich, None, SleepyHost(*answers(snapshot, {"slow": 1}, {"approved": True})), resume=snapshot))
    return {name: value for name, value in output.items() if name in EXPECTED}


def test_the_whole_state_of_a_step_survives_sleep(pool: Pool, rich: Program) -> None:
    assert wake_richly(pool, rich, sleep_richly(pool, rich)) == EXPECTED


def test_a_step_resumes_in_another_process(pool: Pool, another_pool: Pool, rich: Program) -> None:
    assert wake_richly(another_pool, rich, sleep_richly(pool, rich)) == EXPECTED


_ELSEWHERE = """
import sys
from appliance.sandbox import Pool, Program, Settings, Settled, Snapshot
from tests.sandbox.sleepy import SleepyHost
source, library, template, path = sys.argv[1:]
program = Program("typescript", "steps/step.ts", {"steps/step.ts": source, "steps/lib.ts": library}, "acme")
pool = Pool(Settings(processes=1, slots=1)); pool.start()
snapshot = Snapshot(template, open(path, "rb").read(), (1, 4))
host = SleepyHost(Settled(4, True, {"approved": True}), Settled(1, True, {"slow": 1}))
print(pool.run(program, None, host, resume=snapshot).output["memo"][1]); pool.stop()
"""


def test_a_step_resumes_in_another_appliance(pool: Pool, rich: Program, tmp_path: Path) -> None:
    snapshot = sleep_richly(pool, rich)
    stored = tmp_path / "snapshot"
    stored.write_bytes(snapshot.data)
    command = [sys.executable, "-c", _ELSEWHERE, RICH, LIBRARY, snapshot.template, str(stored)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['answer', {'approved': True}]"


def test_a_snapshot_can_be_resumed_repeatedly_with_the_same_result(pool: Pool, rich: Program) -> None:
    snapshot = sleep_richly(pool, rich)
    assert [wake_richly(pool, rich, snapshot) for _ in range(5)] == [EXPECTED] * 5


def test_a_step_may_sleep_repeatedly(pool: Pool, make_program: MakeProgram) -> None:
    program = make_program("""export default async function (input, api) {
      const seen = [];
      for (let k = 0; k < 5; k++) seen.push(await api.human.request({k}), Math.floor(Math.random() * 1e9));
      return seen }""")
    outcome = pool.run(program, None, SleepyHost(), entropy=Entropy(seed=3))
    for turn in range(5):
        snapshot = suspended(outcome)
        assert snapshot.pending == (turn + 1,)
        outcome = pool.run(program, None, SleepyHost(*answers(snapshot, turn)), resume=snapshot, entropy=Entropy(seed=99))
    straight = pool.run(program, None, AwakeHost(), entropy=Entropy(seed=3))
    assert finished(outcome) == straight.output


class AwakeHost(SleepyHost):
    """Answers every call with its number, counted from zero."""

    def wait(self, timeout: float) -> Settled | Suspend | None:
        number = self.calls[-1].id
        return Settled(number, True, number - 1)


def test_the_seed_is_the_one_it_began_with(pool: Pool, make_program: MakeProgram) -> None:
    program = make_program("""export default async function (input, api) {
      await api.human.request(1); await api.human.request(2); return Math.random() }""")
    outcome = pool.run(program, None, SleepyHost(), entropy=Entropy(seed=3))
    for other in (4, 5):
        snapshot = suspended(outcome)
        outcome = pool.run(program, None, SleepyHost(*answers(snapshot, 1)), resume=snapshot, entropy=Entropy(seed=other))
    assert finished(outcome) == pool.run(program, None, AwakeHost(), entropy=Entropy(seed=3)).output


def test_unreachable_objects_are_not_part_of_a_snapshot(pool: Pool, make_program: MakeProgram) -> None:
    program = make_program("""export default async function (input, api) {
      const circle = () => { const a = {b: {}}; a.b.a = a; return new WeakRef(a) };
      const gone = circle(); await api.human.request({}); return gone.deref() === undefined }""")
    snapshot = suspended(pool.run(program, None, SleepyHost()))
    assert finished(pool.run(program, None, SleepyHost(*answers(snapshot, 1)), resume=snapshot)) is True


def test_queued_calls_are_made_after_the_sleep(pool: Pool, make_program: MakeProgram) -> None:
    program = make_program("""export default async function (input, api) {
      Date.now();
      const all = await Promise.all(Array.from({length: 6}, (_, k) => (Date.now(), api.human.request({k}))));
      return [...all, await api.human.request({k: 6})] }""")
    limits, first = Limits(in_flight=2), SleepyHost()
    outcome = pool.run(program, None, first, limits=limits)
    snapshot = suspended(outcome)
    assert ([call.id for call in first.calls], snapshot.pending) == ([1, 2], (1, 2))
    assert len(outcome.clock) == 7
    second = AnsweringHost(snapshot.pending)
    output = finished(pool.run(program, None, second, limits=limits, resume=snapshot))
    assert output == [1, 2, 3, 4, 5, 6, 7]
    assert [(call.id, call.args) for call in second.calls] == [(k + 1, [{"k": k}]) for k in range(2, 7)]
    assert second.clocks == [[]] * 5


class AnsweringHost(SleepyHost):
    """Answers every open call with its number, the oldest first."""

    def __init__(self, pending: Sequence[int]) -> None:
        super().__init__()
        self._open = list(pending)

    def submit(self, call: HostCall, clock: list[int]) -> None:
        super().submit(call, clock)
        self._open.append(call.id)

    def wait(self, timeout: float) -> Settled | Suspend | None:
        number = self._open.pop(0)
        return Settled(number, True, number)


def test_the_output_of_a_step_that_did_not_await_its_call_is_kept(pool: Pool, make_program: MakeProgram) -> None:
    program = make_program("export default async function (input, api) { api.human.request({}); return {done: true} }")
    snapshot = suspended(pool.run(program, None, SleepyHost()))
    assert finished(pool.run(program, None, SleepyHost(*answers(snapshot, 1)), resume=snapshot)) == {"done": True}


def test_an_unhandled_rejection_survives_sleep_unless_handled_later(
    pool: Pool, make_program: MakeProgram
) -> None:
    source = """export default async function (input, api) {
      const bad = Promise.reject(new Error('lost'));
      await api.human.request({});
      HANDLE
      return 1 }"""
    for handling, expected in (("", "lost"), ("await bad.catch(() => 0);", None)):
        program = make_program(source.replace("HANDLE", handling))
        snapshot = suspended(pool.run(program, None, SleepyHost()))
        outcome = pool.run(program, None, SleepyHost(*answers(snapshot, 1)), resume=snapshot)
        assert (outcome.failure and outcome.failure.message) == expected


def test_a_refusal_after_the_sleep_is_thrown_where_the_call_was_made(pool: Pool, make_program: MakeProgram) -> None:
    program = make_program("export default async function (input, api) {\n  await api.human.request({});\n}")
    snapshot = suspended(pool.run(program, None, SleepyHost()))
    fault = {"code": "rejected", "message": "no", "retryable": False}
    failure = pool.run(program, None, SleepyHost(Settled(1, False, fault)), resume=snapshot).failure
    assert failure is not None
    assert (failure.code, failure.position and failure.position.line) == ("rejected", 2)


def test_a_failure_of_the_appliance_may_be_passed_on_after_a_sleep(pool: Pool, make_program: MakeProgram) -> None:
    program = make_program("""export default async function (input, api) {
      let heard; try { await api.human.request(1) } catch (fault) { heard = fault }
      await api.human.request(2); throw heard }""")
    first = suspended(pool.run(program, None, SleepyHost()))
    fault = {"code": "unavailable", "message": "later", "retryable": True, "failure_class": "system"}
    second = suspended(pool.run(program, None, SleepyHost(Settled(1, False, fault)), resume=first))
    outcome = pool.run(program, None, SleepyHost(*answers(second, 1)), resume=second)
    assert failed(outcome) == ("system", "unavailable")


# ---- clock and limits


CLOCKED = """export default async function (input, api) {
  const first = Date.now(); await api.human.request({});
  return [Date.now() - first, Date.now(), Date.now()] }"""


def test_the_clock_of_a_visit_is_recorded_and_replayed(pool: Pool, make_program: MakeProgram) -> None:
    program = make_program(CLOCKED)
    before = pool.run(program, None, SleepyHost(), entropy=Entropy(clock=[1000]))
    snapshot = suspended(before)
    assert before.clock == [1000]
    rerun = Entropy(clock=[87_000, 90_000])
    outcome = pool.run(program, None, SleepyHost(*answers(snapshot, 1)), resume=snapshot, entropy=rerun)
    output = finished(outcome)
    assert output[:2] == [86_000, 90_000]
    assert output[2] > 1_700_000_000_000
    assert outcome.clock == [87_000, 90_000, output[2]]


def test_a_step_that_read_the_clock_too_often_still_sees_that_it_slept(pool: Pool, make_program: MakeProgram) -> None:
    program = make_program("""export default async function (input, api) {
      let t; for (let k = 0; k < 20000; k++) t = Date.now();
      await api.human.request({}); return [t, Date.now(), Date.now()] }""")
    snapshot = suspended(pool.run(program, None, SleepyHost(), entropy=Entropy(clock=[5] * 10_000)))
    woken = Entropy(clock=[1_000_000])
    outcome = pool.run(program, None, SleepyHost(*answers(snapshot, 1)), resume=snapshot, entropy=woken)
    assert (finished(outcome), outcome.clock) == ([105, 1_000_000, 1_000_000], [1_000_000])


def test_the_clock_does_not_go_back_over_a_sleep(pool: Pool, make_program: MakeProgram) -> None:
    program, ahead = make_program(CLOCKED), 9_000_000_000_000
    snapshot = suspended(pool.run(program, None, SleepyHost(), entropy=Entropy(clock=[ahead])))
    assert finished(pool.run(program, None, SleepyHost(*answers(snapshot, 1)), resume=snapshot)) == [0, ahead, ahead]


def test_a_resumed_step_that_never_ends_is_stopped_without_harm_to_its_process(
    another_pool: Pool, make_program: MakeProgram
) -> None:
    program = make_program("""export default async function (input, api) {
      const began = Date.now(); while (Date.now() - began < 400); await api.human.request({}); while (true); }""")
    snapshot = suspended(another_pool.run(program, None, SleepyHost(), limits=Limits(wall_ms=1000)))
    processes = another_pool.process_ids()
    host = SleepyHost(*answers(snapshot, 1))
    outcome = another_pool.run(program, None, host, limits=Limits(wall_ms=1000), resume=snapshot)
    assert failed(outcome) == ("timeout", "time_limit")
    assert another_pool.process_ids() == processes


def test_limits_count_over_the_whole_life_of_a_step(pool: Pool, make_program: MakeProgram) -> None:
    calls = make_program("""export default async function (input, api) {
      for (let k = 0; k < 4; k++) await api.human.request({k}) }""")
    logs = make_program("""export default async function (input, api) {
      for (let k = 0; k < 4; k++) { api.log.info('x'.repeat(300)); await api.human.request({k}) } }""")
    cpu = make_program("""export default async function (input, api) {
      const spin = () => { for (let k = 0; k < 1e6; k++); };
      for (let k = 0; k < 900; k++) { spin(); await api.human.request({k}) } }""")
    expected = [
        (calls, Limits(host_calls=3), "host_call_limit"),
        (logs, Limits(log_bytes=1000), "log_limit"),
        (cpu, Limits(cpu_ms=300), "cpu_limit"),
        (cpu, Limits(wall_ms=1500), "time_limit"),
    ]
    for program, limits, code in expected:
        outcome = pool.run(program, None, SleepyHost(), limits=limits)
        visits = 1
        while outcome.snapshot is not None:
            host = SleepyHost(*answers(outcome.snapshot, 1))
            outcome = pool.run(program, None, host, limits=limits, resume=outcome.snapshot)
            visits += 1
        assert failed(outcome)[1] == code
        assert visits > 2


def test_logs_and_figures_are_of_the_visit(pool: Pool, make_program: MakeProgram) -> None:
    program = make_program("""export default async function (input, api) {
      api.log.info('before'); await api.human.request({}); api.log.info('after') }""")
    first = pool.run(program, None, SleepyHost())
    second = pool.run(program, None, SleepyHost(*answers(suspended(first), 1)), resume=first.snapshot)
    assert [[line.message for line in each.logs] for each in (first, second)] == [["before"], ["after"]]
    assert [each.host_calls for each in (first, second)] == [1, 0]


# ---- refused snapshots


def test_a_snapshot_is_bound_to_program_tenant_and_memory_limit(pool: Pool, make_program: MakeProgram) -> None:
    source = "export default async function (input, api) { return [await api.human.request({}), 'own'] }"
    program = make_program(source, namespace="acme")
    snapshot = suspended(pool.run(program, None, SleepyHost()))
    host = SleepyHost(*answers(snapshot, 1))
    for other in (make_program(source + " ", namespace="acme"), make_program(source, namespace="evil")):
        assert failed(pool.run(other, None, host, resume=snapshot)) == ("system", "snapshot_program_changed")
    larger = pool.run(program, None, host, limits=Limits(memory_mb=65), resume=snapshot)
    assert failed(larger) == ("system", "snapshot_program_changed")
    assert finished(pool.run(program, None, host, resume=snapshot)) == [1, "own"]


def test_any_altered_byte_is_refused(pool: Pool, make_program: MakeProgram) -> None:
    program = make_program("export default async function (input, api) { await api.human.request({}); return 1 }")
    snapshot = suspended(pool.run(program, None, SleepyHost()))
    data, host = snapshot.data, SleepyHost(*answers(snapshot, 1))
    places = [*range(64), *range(64, len(data), 97), len(data) - 1]
    altered = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in places]
    for each in (*altered, b"", data[:-1], data + b"\0", data[: len(data) // 2]):
        outcome = pool.run(program, None, host, resume=replace(snapshot, data=each))
        assert failed(outcome) == ("system", "snapshot_damaged")
    for other in (replace(snapshot, pending=(2,)), replace(snapshot, pending=())):
        assert failed(pool.run(program, None, host, resume=other)) == ("system", "snapshot_damaged")


def test_a_snapshot_that_is_too_large_fails_with_advice(pool: Pool, make_program: MakeProgram) -> None:
    program = make_program("""export default async function (input, api) {
      const held = Array.from({length: 300000}, () => Math.random()); await api.human.request({}); return held.length }""")
    outcome = pool.run(program, None, SleepyHost(), limits=Limits(snapshot_bytes=1 << 20))
    assert failed(outcome) == ("memory", "snapshot_too_large")
    assert outcome.failure is not None
    assert "DataPool" in outcome.failure.message


def test_a_snapshot_may_be_as_large_as_its_limit_and_no_larger(pool: Pool, make_program: MakeProgram) -> None:
    program = make_program("export default async function (input, api) { await api.human.request({}) }")
    size = len(suspended(pool.run(program, None, SleepyHost())).data)
    assert failed(pool.run(program, None, SleepyHost(), limits=Limits(snapshot_bytes=size - 100)))[1] == "snapshot_too_large"
    suspended(pool.run(program, None, SleepyHost(), limits=Limits(snapshot_bytes=size + 100)))


def test_an_answer_to_no_open_call_is_an_error_of_the_host(pool: Pool, make_program: MakeProgram) -> None:
    program = make_program("export default async function (input, api) { await api.human.request({}); return 1 }")
    snapshot = suspended(pool.run(program, None, SleepyHost()))
    with pytest.raises(ValueError, match="call 2"):
        pool.run(program, None, SleepyHost(Settled(2, True, 1)), resume=snapshot)


# ---- memory


def test_grown_memory_survives_and_contains_nothing_of_other_instances(another_pool: Pool, make_program: MakeProgram) -> None:
    """The places of the pool hold a dirty instance each before every wake-up."""
    dirty = make_program("""export default async function () {
      const a = []; for (let k = 0; k < 40; k++) a.push(new Uint8Array(1 << 20).fill(0xab)); return a.length }""")
    grown = make_program("""export default async function (input, api) {
      const mine = new Uint32Array(1 << 20).map((_, k) => k * 7); await api.human.request({});
      let good = 0; for (let k = 0; k < mine.length; k++) if (mine[k] === k * 7) good++;
      return [good, new Uint32Array(2 << 20).indexOf(0xabababab)] }""")
    first = another_pool.run(grown, None, SleepyHost())
    snapshot = suspended(first)
    assert first.memory_bytes > 4 << 20
    for _ in range(3):
        assert finished(another_pool.run(dirty, None)) == 40
        outcome = another_pool.run(grown, None, SleepyHost(*answers(snapshot, 1)), resume=snapshot)
        assert finished(outcome) == [1 << 20, -1]


def test_a_hundred_sleeping_steps_occupy_no_slot(another_pool: Pool, make_program: MakeProgram) -> None:
    program = make_program("""export default async function (input, api) {
      const secret = `mine ${input}`; return [secret, await api.human.request({})] }""")
    asleep = [suspended(another_pool.run(program, number, SleepyHost())) for number in range(100)]
    assert another_pool.health()["busy"] == 0
    assert len({each.data for each in asleep}) == 100
    assert sum(len(each.data) for each in asleep) < 100 * (32 << 10)
    for number in reversed(range(100)):
        outcome = another_pool.run(program, None, SleepyHost(*answers(asleep[number], number)), resume=asleep[number])
        assert finished(outcome) == [f"mine {number}", number]
