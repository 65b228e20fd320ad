"""The processes behind the pool: their open files, steps whose process dies, and the order of waiting steps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.sandbox import Limits, Pool, Program, Settings
from appliance.sandbox.pool.lane import Lane
from tests.sandbox.paused_steps import CALLING, RunningStep, StoppingHost, until

Make = Callable[..., Program]


@pytest.fixture
def small(prepared: None) -> Iterator[Pool]:
    """A pool of one process with two places, for tests that harm it."""
    created_pool = Pool(Settings(processes=1, slots=2, queue_seconds=5))
    created_pool.start()
    yield created_pool
    created_pool.stop()


def state_of(number: int) -> str:
    """The kernel's letter for the state of a process; "Z" also when there is none."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def test_a_killed_process_fails_only_its_steps_and_is_replaced(small: Pool, make_program: Make) -> None:
    step = RunningStep(small, make_program(CALLING))
    step.host.called.wait(10)
    (victim,) = small.process_ids()
    os.kill(victim, signal.SIGKILL)
    failure = step.finish().failure
    assert failure is not None
    assert (failure.failure_class, failure.name, failure.retryable) == ("system", "SandboxLost", True)
    until(lambda: small.health()["processes"] == 1)
    assert small.process_ids() != [victim]
    assert small.health()["restarts"] == 1
    assert small.run(make_program("export default () => 1"), {}).output == 1


def test_a_process_killed_while_idle_costs_no_attempt(small: Pool, make_program: Make) -> None:
    (victim,) = small.process_ids()
    os.kill(victim, signal.SIGKILL)
    until(lambda: state_of(victim) == "Z")
    assert small.run(make_program("export default () => 1"), {}).output == 1


def test_a_process_killed_while_idle_refuses_no_program(small: Pool, make_program: Make) -> None:
    (victim,) = small.process_ids()
    os.kill(victim, signal.SIGKILL)
    until(lambda: state_of(victim) == "Z")
    assert small.compile(make_program("export default () => 'compiled after a kill'")) == []


def test_a_process_that_does_not_answer_is_ended_in_time(small: Pool, make_program: Make) -> None:
    step = make_program(CALLING)
    assert small.compile(step) == []
    (victim,) = small.process_ids()
    started = time.monotonic()
    failure = small.run(step, {}, StoppingHost(victim), limits=Limits(wall_ms=300)).failure
    assert 0.3 <= time.monotonic() - started < 10, "it would never have ended"
    assert failure is not None
    assert failure.failure_class == "timeout"
    until(lambda: small.health()["processes"] == 1)
    assert small.process_ids() != [victim]


def test_a_step_without_a_slot_waits_and_fails_as_busy(prepared: None, make_program: Make) -> None:
    small = Pool(Settings(processes=1, slots=2, queue_seconds=0.2))
    small.start()
    step = make_program(CALLING)
    running = [RunningStep(small, step), RunningStep(small, step)]
    for each in running:
        each.host.called.wait(10)
    assert small.health()["busy"] == 2
    failure = small.run(step, {}).failure
    assert failure is not None
    assert (failure.name, failure.retryable) == ("SandboxBusy", True)
    assert [each.finish().output for each in running] == ["done", "done"]
    assert small.health()["busy"] == 0
    small.stop()


def test_slots_are_given_in_order_of_arrival(prepared: None, make_program: Make) -> None:
    pool = Pool(Settings(processes=1, slots=1))
    pool.start()
    try:
        step = make_program(CALLING)
        running = []
        for number in range(4):
            running.append(RunningStep(pool, step))
            until(lambda number=number: pool.health()["queued"] == max(0, number) and pool.health()["busy"] == 1)  # type: ignore[misc]
        for each in running:
            assert each.host.called.wait(10)
            assert not any(later.host.called.is_set() for later in running[running.index(each) + 1 :])
            each.finish()
    finally:
        pool.stop()


def test_work_is_spread_over_the_processes(pool: Pool, make_program: Make) -> None:
    step = make_program(CALLING)
    running = [RunningStep(pool, step) for _ in range(4)]
    for each in running:
        each.host.called.wait(10)
    assert isinstance(pool._code, Lane)
    free = [len(process.free) for process in pool._code._processes]
    for each in running:
        each.finish()
    assert free == [2, 2]


def test_many_threads_share_the_pool(pool: Pool, make_program: Make) -> None:
    step = make_program("export default (input) => input.n * 2")
    wrong: list[Any] = []

    def work(base: int) -> None:
        for n in range(base, base + 40):
            outcome = pool.run(step, {"n": n})
            if outcome.output != n * 2:
                wrong.append(outcome)

    threads = [threading.Thread(target=work, args=(base,)) for base in range(0, 480, 40)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


def test_a_process_holds_nothing_of_ours(pool: Pool) -> None:
    for number in pool.process_ids():
        base = Path(f"/proc/{number}")
        status = dict(line.split(":", 1) for line in (base / "status").read_text().splitlines())
        assert status["NoNewPrivs"].strip() == "1"
        assert {pair.split(b"=")[0] for pair in (base / "environ").read_bytes().split(b"\0") if pair} <= {
            b"LC_ALL",
            b"MALLOC_ARENA_MAX",
        }
        opened = {str(each.readlink()) for each in (base / "fd").iterdir()}
        files = {Path(each).name for each in opened if each.startswith("/") and not each.endswith("(deleted)")}
        assert files <= {"null", "pagemap", "quickjs.cwasm", "swc.cwasm"}


def test_system_calls_are_confined(pool: Pool) -> None:
    health = pool.health()
    assert health["confined"] == health["processes"] == 2


CONFINED = """
import errno, os, socket, subprocess, sys, mmap, threading
from appliance.core.confinement import confinement
from appliance.core.confinement.syscalls import confine_calls
confinement.confine()
if not confine_calls(threads=False):
    sys.exit(3)
attempts = {
    "read": lambda: open("/etc/passwd"),
    "write": lambda: open("/tmp/x", "w"),
    "list": lambda: os.listdir("/"),
    "socket": lambda: socket.socket(),
    "fork": lambda: os.fork(),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "kill": lambda: os.kill(os.getppid(), 0),
    "code": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC),
    "delete": lambda: os.unlink("/tmp/x"),
}
for name, attempt in attempts.items():
    try:
        attempt()
    except OSError as refused:
        assert refused.errno == errno.EPERM, (name, refused)
    else:
        os.write(2, name.encode())
        os._exit(1)
os._exit(0)
"""


def test_a_confined_process_opens_starts_and_reaches_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", CONFINED], capture_output=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr


ORPHANS = """
import os, signal
from appliance.sandbox import Pool, Settings
pool = Pool(Settings(processes=2, slots=1))
pool.start()
print(*pool.process_ids(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_no_process_survives_a_killed_appliance(prepared: None) -> None:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(ORPHANS)], capture_output=True, check=False, timeout=30)
    orphans = [int(number) for number in done.stdout.split()]
    assert len(orphans) == 2

    until(lambda: all(state_of(number) == "Z" for number in orphans))


def resident_kb(number: int) -> int:
    """Memory that is this process's own."""
    lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def test_a_process_does_not_grow_with_its_work(small: Pool, make_program: Make) -> None:
    flood, throws = (
        make_program("export default () => { for (;;) console.log('x'.repeat(1000)) }"),
        make_program("export default () => { throw 1 }"),
    )

    def work(start: int) -> None:
        for number in range(start, start + 40):
            small.compile(make_program(f"export default (n: number) => n + {number}"))
            small.run(throws, {})
            small.evaluate({"a": "x.y", "b": "1"}, {})
        for _ in range(10):
            small.run(flood, {})

    work(0)
    (number,) = small.process_ids()
    before = resident_kb(number)
    work(100)
    assert resident_kb(number) - before < 3000
    assert small.process_ids() == [number]


def test_stop_ends_all_processes(prepared: None) -> None:
    created_pool = Pool(Settings(processes=2, slots=1))
    created_pool.start()
    numbers = created_pool.process_ids()
    created_pool.stop()
    assert not any(Path(f"/proc/{number}").exists() for number in numbers)
