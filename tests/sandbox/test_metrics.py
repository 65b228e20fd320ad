"""What an operator can count of the sandbox."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from appliance.monitor import Registry, SandboxMetrics
from appliance.sandbox import Pool, Program, Settings
from tests.sandbox.paused_steps import until


def test_steps_waits_and_restarts_are_counted(prepared: None, make_program: Callable[..., Program]) -> None:
    registry = Registry()
    pool = Pool(Settings(processes=1, slots=2))
    SandboxMetrics(registry).watch(pool)
    pool.start()
    try:
        assert pool.run(make_program("export default () => 1"), {}).output == 1
        assert pool.run(make_program("export default () => { throw 1 }"), {}).failure is not None
        before = registry.render().splitlines()
        (victim,) = pool.process_ids()
        os.kill(victim, signal.SIGKILL)
        until(lambda: pool.health()["restarts"] == 1 and pool.health()["processes"] == 1)
        after = registry.render().splitlines()
    finally:
        pool.stop()
    for line in (
        "gos_sandbox_processes 1",
        "gos_sandbox_slots 2",
        "gos_sandbox_busy 0",
        "gos_sandbox_queued 0",
        "gos_sandbox_oldest_wait_seconds 0",
        'gos_sandbox_steps_total{language="typescript",outcome="succeeded"} 1',
        'gos_sandbox_steps_total{language="typescript",outcome="user_code"} 1',
        'gos_sandbox_step_seconds_count{language="typescript"} 2',
        'gos_sandbox_queue_seconds_count{lane="code"} 2',
    ):
        assert line in before, line
    assert 'gos_sandbox_restarts_total{lane="code",reason="lost"} 1' in after
