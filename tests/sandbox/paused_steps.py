"""Steps that are paused in the middle of a call until the test resumes them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.sandbox import HostCall, Outcome, Pool, Program, Settled


class BlockingHost:
    """A host whose call stays open until the test sets `go_on`."""

    def __init__(self) -> None:
        self.called = threading.Event()
        self.go_on = threading.Event()
        self.timeouts: list[float] = []
        self._call: HostCall | None = None

    def submit(self, call: HostCall, clock: list[int]) -> None:
        self._call = call
        self.called.set()

    def wait(self, timeout: float) -> Settled | None:
        self.timeouts.append(timeout)
        if not self.go_on.wait(min(timeout, 0.1)) or self._call is None:
            return None
        return Settled(self._call.id, True, None)


class StoppingHost:
    """A host that stops the process of the step, as soon as this makes a call, and answers the call."""

    def __init__(self, process_id: int) -> None:
        self._process_id = process_id
        self._call: HostCall | None = None

    def submit(self, call: HostCall, clock: list[int]) -> None:
        os.kill(self._process_id, signal.SIGSTOP)
        until(self._has_stopped)  # a signal is delivered some time later, and the process could read the answer before
        self._call = call

    def _has_stopped(self) -> bool:
        stats = [thread.read_text() for thread in Path(f"/proc/{self._process_id}/task").glob("*/stat")]
        return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)

    def wait(self, timeout: float) -> Settled | None:
        call, self._call = self._call, None
        return Settled(call.id, True, None) if call else None


class RunningStep:
    """A step that runs on a thread of its own, stopped in the middle of a call."""

    def __init__(self, pool: Pool, program: Program, **options: Any) -> None:
        self.host = BlockingHost()
        self.outcome: Outcome | None = None
        self._thread = threading.Thread(target=self._run, args=(pool, program, options))
        self._thread.start()

    def _run(self, pool: Pool, program: Program, options: Any) -> None:
        self.outcome = pool.run(program, {}, self.host, **options)

    def finish(self) -> Outcome:
        self.host.go_on.set()
        return self.wait_ended(10)

    def wait_ended(self, seconds: float) -> Outcome:
        """The outcome, when the step ends by itself."""
        self._thread.join(seconds)
        assert self.outcome is not None
        return self.outcome


CALLING = "export default async (input, api) => { await api.datapool.find('o', 1); return 'done' }"


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        threading.Event().wait(0.01)
