"""Fixtures of the sandbox: one pool for all tests, and hosts that record calls."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from appliance.sandbox import HostCall, Outcome, Pool, Program, Settings, Settled, runtimes

Answer = Callable[[HostCall], Settled]
Run = Callable[..., Outcome]


@pytest.fixture(scope="session")
def prepared() -> None:
    """The runtimes of this checkout; made when they are missing or of another version."""
    try:
        runtimes.load(runtimes.default_folder())
    except runtimes.RuntimesMissing:
        subprocess.run([sys.executable, "-m", "appliance.sandbox.runtimes.prepare"], check=True)


@pytest.fixture(scope="session")
def pool(prepared: None) -> Iterator[Pool]:
    created_pool = Pool(Settings(processes=2, slots=4))
    created_pool.start()
    yield created_pool
    created_pool.stop()


class RecordingHost:
    """Answers every call with `answer`, the oldest first unless `newest_first`."""

    def __init__(self, answer: Answer | None = None, *, newest_first: bool = False) -> None:
        self.calls: list[HostCall] = []
        self.clocks: list[list[int]] = []
        self.most_in_flight = 0
        self._answer = answer or (lambda call: Settled(call.id, True, {"id": call.id}))
        self._newest_first = newest_first
        self._open: deque[HostCall] = deque()

    def submit(self, call: HostCall, clock: list[int]) -> None:
        self.calls.append(call)
        self.clocks.append(clock)
        self._open.append(call)
        self.most_in_flight = max(self.most_in_flight, len(self._open))

    def wait(self, timeout: float) -> Settled | None:
        call = self._open.pop() if self._newest_first else self._open.popleft()
        return self._answer(call)


@pytest.fixture
def recording_host() -> type[RecordingHost]:
    return RecordingHost


def program(source: str, files: Mapping[str, str] | None = None, namespace: str = "") -> Program:
    """A TypeScript step `steps/step.ts` with further files beside it."""
    return Program("typescript", "steps/step.ts", {"steps/step.ts": source, **(files or {})}, namespace)


@pytest.fixture
def run(pool: Pool) -> Run:
    """Run the body of a step function of `input` and `api`."""

    def call(body: str, input: Any = None, host: Any = None, **options: Any) -> Outcome:  # noqa: A002
        return pool.run(program("export default async function (input: any, api: any) {\n" + body + "\n}"), input, host, **options)

    return call


@pytest.fixture
def make_program() -> Callable[..., Program]:
    return program
