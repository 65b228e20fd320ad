"""Every limit ends the step with its own failure, in time, and leaves the pool as it was."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from appliance.sandbox import Limits, Outcome, Pool, Settled
from tests.timing import timed

Run = Callable[..., Outcome]
SHORT = Limits(wall_ms=400)


@pytest.mark.parametrize(
    "body",
    [
        "while (true) {}",
        "while (true) await null",
        "try { while (true) {} } catch { return 'caught' } finally { return 'kept' }",
        "const again = () => queueMicrotask(again); again(); await new Promise(() => {})",
        "return /^(a+)+$/.test('a'.repeat(40) + 'b')",
        "return String(3n ** 600000n).length",
        "[3, 2, 1].sort(() => { while (true); })",
        "const e = new Error('x'); Object.defineProperty(e, 'message', {get() { while (true); }}); throw e",
        "return { toJSON() { while (true); } }",
        "const e: any = new Error('x'); e.toString = () => { while (true); }; console.log(e)",
    ],
)
def test_computing_without_end_is_stopped_in_time(run: Run, body: str) -> None:
    outcome, elapsed = timed(0.4 + 0.25, lambda: run(body, limits=SHORT))
    assert outcome.failure is not None
    assert (outcome.failure.failure_class, outcome.failure.code) == ("timeout", "time_limit")
    assert "raise limits.time" in outcome.failure.message
    assert 0.4 <= elapsed < 0.4 + 0.25


def test_processor_time_has_a_limit_of_its_own(run: Run) -> None:
    outcome = run("while (true) {}", limits=Limits(cpu_ms=100))
    assert outcome.failure is not None
    assert (outcome.failure.failure_class, outcome.failure.code) == ("timeout", "cpu_limit")
    assert "raise limits.cpu" in outcome.failure.message
    assert 100 <= outcome.cpu_ms < 350


def test_the_wall_clock_counts_waiting(run: Run) -> None:
    class Silent:
        def submit(self, call: Any, clock: list[int]) -> None: ...

        def wait(self, timeout: float) -> Settled | None:
            time.sleep(timeout)
            return None

    body, limits = "console.log('before'); await api.integrations.execute('erp', 'ping', {})", Limits(wall_ms=200)
    outcome, elapsed = timed(0.45, lambda: run(body, host=Silent(), limits=limits))
    assert outcome.failure is not None
    assert (outcome.failure.failure_class, outcome.failure.code) == ("timeout", "time_limit")
    assert outcome.failure.retryable
    assert [line.message for line in outcome.logs] == ["before"]
    assert 0.2 <= elapsed < 0.45


@pytest.mark.parametrize(
    "body",
    [
        "const a: any[] = []; while (true) a.push(new Array(1000).fill(1))",
        "return new ArrayBuffer(1 << 30).byteLength",
        "const a: string[] = []; while (true) a.push('x'.repeat(1 << 20) + a.length)",
        "const m = new Map(); for (let i = 0; ; i++) m.set(i, {i})",
    ],
)
def test_memory_is_limited(run: Run, body: str) -> None:
    outcome = run(body, limits=Limits(memory_mb=16))
    assert outcome.failure is not None
    assert (outcome.failure.failure_class, outcome.failure.code) == ("memory", "memory_limit")
    assert outcome.failure.message.startswith("The step used more than 16 MB of memory; raise limits.memory_mb")
    assert outcome.memory_bytes < 48 << 20


def test_an_input_that_does_not_fit_is_a_memory_failure(run: Run) -> None:
    outcome = run("return input.length", "x" * (20 << 20), limits=Limits(memory_mb=16))
    assert outcome.failure is not None
    assert outcome.failure.failure_class == "memory"


def test_more_memory_can_be_granted(run: Run) -> None:
    body = "const a = []; for (let i = 0; i < 100; i++) a.push(new Uint8Array(1 << 20).fill(1)); return a.length"
    assert run(body, limits=Limits(memory_mb=200)).output == 100


@pytest.mark.parametrize(
    "body",
    [
        "const f = (n: number): number => f(n + 1) + 1; return f(0)",
        "const o: any = {}; o.toString = () => '' + o; return '' + o",
        "const p: any = new Proxy({}, {get(t, k, r) { return r[k] }}); return p.x",
        "return JSON.parse('['.repeat(200000))",
        "let a: any = {}; for (let k = 0; k < 100000; k++) a = {a}; return a",
        "let a: any = {}; for (let k = 0; k < 3000; k++) a = {a}; return a",
        "return new RegExp('('.repeat(50000) + ')'.repeat(50000)).test('a')",
    ],
)
def test_depth_is_limited(run: Run, body: str) -> None:
    outcome = run(body)
    assert outcome.failure is not None
    assert outcome.failure.failure_class == "user_code"


def test_output_is_limited(run: Run) -> None:
    outcome = run("return 'x'.repeat(2_000_000)")
    assert outcome.failure is not None
    assert outcome.failure.code == "output_limit"
    assert outcome.failure.message.startswith("The step returned 1.91 MB, more than 1 MB")


@pytest.mark.parametrize("line", ["'x'.repeat(1000)", "''"])
def test_logging_is_limited_and_earlier_lines_are_kept(run: Run, line: str) -> None:
    outcome = run(f"for (;;) console.log({line})")
    assert outcome.failure is not None
    assert outcome.failure.code == "log_limit"
    assert 200 < len(outcome.logs) <= 4096


def test_calls_are_limited(run: Run) -> None:
    outcome = run("for (let k = 0; k < 1e7; k++) api.datapool.find('orders', k)")
    assert outcome.failure is not None
    assert outcome.failure.code == "host_call_limit"


def test_the_size_of_a_call_is_limited(run: Run) -> None:
    outcome = run("await api.datapool.create('orders', {text: 'x'.repeat(2_000_000)})")
    assert outcome.failure is not None
    assert outcome.failure.code == "host_call_size"


def test_the_clock_never_stands_still(run: Run) -> None:
    outcome = run("const from = Date.now(); let n = 0; while (Date.now() - from < 200) n++; return n > 10000")
    assert outcome.output is True
    assert len(outcome.clock) == 10_000


def test_limits_do_not_affect_the_next_step(run: Run, pool: Pool) -> None:
    assert run("return 42").output == 42
    assert pool.health()["busy"] == 0
    assert pool.health()["restarts"] == 0
