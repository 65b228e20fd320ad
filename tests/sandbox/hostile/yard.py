"""Where hostile scripts run: one sandbox process shared with a neighbour and a sleeper, surrounded by canaries."""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from appliance.sandbox import SUSPEND, HostCall, Limits, Outcome, Pool, Program, Settings, Settled, Suspend
from tests.sandbox.hostile.corpus import Script

MARK = "canary-"
GRACE_MS = 250
_SLOW_SECONDS, _PAUSE_SECONDS = 0.1, 0.02
# Calls that let the step sleep; a script that sleeps more often than this never ends.
_SLEEPY, MOST_SLEEPS = ("human.request", "wait.for", "wait.until", "events.wait"), 5
_NEIGHBOUR = {
    "javascript": Program(
        "typescript",
        "steps/neighbour.ts",
        {
            "steps/neighbour.ts": """export default async function (input: any, api: any) {
  const kept = [input.secret, ...Object.keys(globalThis).slice(2), ...Object.keys(Object.prototype)]
  const answer = await api.datapool.find("numbers", input.n)
  return { twice: input.n * 2, asked: answer.args[1], secret: kept[0], strange: kept.slice(1) }
}"""
        },
        "ten_neighbour",
    ),
    "php": Program(
        "php",
        "steps/neighbour.php",
        {
            "steps/neighbour.php": """<?php return function (array $input, $api) {
  static $kept = [];
  $kept[] = $input['secret'];
  $strange = array_merge(array_slice($kept, 1), array_values(array_filter(glob('/tmp/*'))), spl_autoload_functions());
  $answer = $api->datapool->find('numbers', $input['n']);
  return ['twice' => $input['n'] * 2, 'asked' => $answer['args'][1], 'secret' => $kept[0], 'strange' => $strange];
};"""
        },
        "ten_neighbour",
    ),
}
_SLEEPER = {
    "javascript": Program(
        "typescript",
        "steps/sleeper.ts",
        {
            "steps/sleeper.ts": """export default async function (input: any, api: any) {
  const heap = Array.from({ length: 1000 }, (_, n) => input.secret + ":" + n)
  await api.datapool.find("corpus", "end")
  return heap.every((text, n) => text === input.secret + ":" + n)
}"""
        },
        "ten_sleeper",
    ),
    "php": Program(
        "php",
        "steps/sleeper.php",
        {
            "steps/sleeper.php": """<?php return function (array $input, $api) {
  $heap = array_map(fn ($n) => $input['secret'] . ':' . $n, range(0, 999));
  file_put_contents('/tmp/secret', $input['secret']);
  $api->datapool->find('corpus', 'end');
  foreach ($heap as $n => $text) if ($text !== $input['secret'] . ':' . $n) return false;
  return file_get_contents('/tmp/secret') === $input['secret'];
};"""
        },
        "ten_sleeper",
    ),
}


def _children() -> set[int]:
    """The processes that this one has started and that still run."""
    numbers = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = path.read_text().rsplit(")", 1)[1].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                numbers.add(int(path.parent.name))
    return numbers


class HostileHost:
    """The appliance's side of a hostile step: records its calls, and answers in one of several tempers."""

    def __init__(self, temper: str = "echo") -> None:
        self.calls: list[HostCall] = []
        self.awake = False
        self._temper = temper
        self._open: deque[HostCall] = deque()
        self._pause = threading.Event()

    def submit(self, call: HostCall, clock: list[int]) -> None:
        self.calls.append(call)
        self._open.append(call)

    def wait(self, timeout: float) -> Settled | Suspend | None:
        if self._temper == "silent":
            self._pause.wait(timeout)
            return None
        if all(call.method in _SLEEPY for call in self._open) and not self.awake:
            return SUSPEND
        self.awake = False
        call = self._open.popleft()
        if self._temper == "slow":
            self._pause.wait(min(timeout, _SLOW_SECONDS))
        if self._temper == "refusing":
            return Settled(call.id, False, {"code": "policy_denied", "message": f"{call.method} is not granted"})
        if self._temper == "large":
            return Settled(call.id, True, {"text": "x" * (4 << 20)})
        if self._temper == "strange":
            return Settled(call.id, True, {"__proto__": {"polluted": 1}, "then": 1, "constructor": {"prototype": {"polluted": 1}}})
        return Settled(call.id, True, {"id": call.id, "method": call.method, "args": call.args})


class Sleeper:
    """A step of another tenant that holds its secret in memory from the first script to the last."""

    def __init__(self, pool: Pool, program: Program, secret: str) -> None:
        self._asleep, self._wake = threading.Event(), threading.Event()
        self._call: HostCall | None = None
        self._outcome: Outcome | None = None
        self._thread = threading.Thread(target=self._run, args=(pool, program, secret), daemon=True)
        self._thread.start()
        if not self._asleep.wait(20):
            raise RuntimeError(f"the sleeper did not fall asleep: {self._outcome}")

    def _run(self, pool: Pool, program: Program, secret: str) -> None:
        self._outcome = pool.run(program, {"secret": secret}, self, limits=Limits(wall_ms=900_000))

    def submit(self, call: HostCall, clock: list[int]) -> None:
        self._call = call
        self._asleep.set()

    def wait(self, timeout: float) -> Settled | None:
        self._wake.wait(timeout)
        return Settled(self._call.id, True, None) if self._call is not None and self._wake.is_set() else None

    def wake(self) -> Outcome | None:
        self._wake.set()
        self._thread.join(20)
        return self._outcome


class Neighbour:
    """A well-behaved tenant that works on without a pause of its own choosing; every answer is checked."""

    def __init__(self, pool: Pool, program: Program, secret: str) -> None:
        self._pool, self._program, self._secret = pool, program, secret
        self._wrong: list[object] = []
        self.seconds: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        number = 0
        while not self._stop.wait(_PAUSE_SECONDS):
            number += 1
            expected = {"twice": number * 2, "asked": number, "secret": self._secret, "strange": []}
            began = time.monotonic()
            outcome = self._pool.run(self._program, {"n": number, "secret": self._secret}, HostileHost())
            self.seconds.append(time.monotonic() - began)
            if outcome.output != expected:
                self._wrong.append(outcome.failure or outcome.output)

    def wrong(self) -> list[object]:
        """The wrong answers since the last call of this method."""
        results, self._wrong = self._wrong, []
        return results

    def go_on(self, steps: int) -> None:
        """Wait until it has done so many steps more."""
        target = len(self.seconds) + steps
        while len(self.seconds) < target and self._thread.is_alive():
            self._stop.wait(_PAUSE_SECONDS)

    def end(self) -> None:
        self._stop.set()
        self._thread.join(60)


class Yard:
    """One sandbox process with its canaries; `run` a script, then `find_reached` lists the canaries it reached (none)."""

    def __init__(self, family: str, folder: Path) -> None:
        self.file, self.environment, self.tenant = (MARK + secrets.token_hex(12) for _ in range(3))
        self.path = folder / "secret.txt"
        self.path.write_text(self.file)
        self.variable = "CANARY_" + secrets.token_hex(4)
        os.environ[self.variable] = self.environment
        self._port = socket.create_server(("127.0.0.1", 0))
        self._port.setblocking(False)
        before = _children()
        self.pool = Pool(Settings(processes=1, slots=6))
        self.pool.start()
        self.sleeper = Sleeper(self.pool, _SLEEPER[family], self.tenant)
        self.neighbour = Neighbour(self.pool, _NEIGHBOUR[family], self.tenant)
        self.neighbour.go_on(1)
        self._processes = _children() - before
        self.input = {
            "file": str(self.path),
            "folder": str(folder),
            "port": self._port.getsockname()[1],
            "variable": self.variable,
            "mark": MARK,
        }

    def run(self, script: Script) -> tuple[Outcome, HostileHost]:
        """The end of a script; when it sleeps it is woken, in whatever place is free, until it ends."""
        host = HostileHost(script.host)
        outcome = self.pool.run(script.program, self.input, host, limits=script.limits)
        for _ in range(MOST_SLEEPS):
            if outcome.snapshot is None:
                break
            host.awake = True
            outcome = self.pool.run(script.program, None, host, limits=script.limits, resume=outcome.snapshot)
        return outcome, host

    def ended(self) -> set[int]:
        """The sandbox processes of the yard that have ended since the last call of this method."""
        ended = self._processes - _children()
        self._processes -= ended
        return ended

    def find_reached(self, *evidence: object) -> list[str]:
        """The canaries that were found in the sandbox's output, changed, or called."""
        text = json.dumps([str(each) for each in evidence], ensure_ascii=False)
        sung = [each for each in (self.file, self.environment, self.tenant) if each in text]
        if self.path.read_text() != self.file or [each.name for each in self.path.parent.iterdir()] != [self.path.name]:
            sung.append("the folder was changed")
        try:
            self._port.accept()[0].close()
            sung.append("the port was called")
        except BlockingIOError:
            pass
        return sung

    def end(self) -> None:
        self.neighbour.end()
        awake = self.sleeper.wake()
        self.pool.stop()
        self._port.close()
        del os.environ[self.variable]
        if awake is None or awake.output is not True:
            raise AssertionError(f"the sleeper was harmed: {awake}")
