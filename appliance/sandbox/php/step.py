"""One run of a PHP step inside a sandbox process: the same limits, clock, logs and calls as of any other step."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from appliance.sandbox.outcome import Failure
from appliance.sandbox.php import faults
from appliance.sandbox.php.engine import PhpEngine
from appliance.sandbox.php.files import ROOT, Files
from appliance.sandbox.php.machine import Exited, Machine, PhpBoot
from appliance.sandbox.php.sources import PhpSources
from appliance.sandbox.wire import Channel, Header, encode_json
from appliance.sandbox.worker.instance import OutOfMemory, Stopped, Trapped
from appliance.sandbox.worker.visit import LimitReached, Request, Visit

# What is kept of what PHP says of errors, to find the one that ended it.
SAID_BYTES = 64 << 10
LINE_BYTES = 64 << 10
PRINTED = 1
# How many line feeds a message has at least; the prelude always writes them, forged ones need not.
LINES = {b"c": 2, b"l": 1}
SUSPENDING = (b"human.request", b"wait.for", b"wait.until", b"events.wait")
NOT_IN_PHP: dict[str, Any] = {
    "code": "not_in_php",
    "message": "a PHP step cannot sleep: write this step in TypeScript, or put a step that waits into the process",
    "retryable": False,
    "failure_class": "user_code",
}


class Randomness:
    """Bytes that are the same whenever a step with this seed asks for them: SHAKE-256 of the seed and a counter."""

    def __init__(self, seed: int) -> None:
        self._seed, self.position = seed.to_bytes(max(8, (seed.bit_length() + 7) // 8), "little"), 0

    def draw(self, count: int) -> bytes:
        self.position += 1
        return hashlib.shake_256(self._seed + self.position.to_bytes(8, "little")).digest(count)


class PhpRun(Visit):
    """Runs one request over a channel; `run` answers the header and the parts of the final frame."""

    def __init__(self, engine: PhpEngine, boot: PhpBoot, sources: PhpSources, request: Request, channel: Channel) -> None:
        super().__init__(request, channel)
        self._engine, self._boot, self._sources = engine, boot, sources
        self._random = Randomness(request.seed)
        self._printed = self._output_tail = b""
        self._has_failed = False

    def run(self) -> tuple[Header, list[bytes]]:
        failure = self._attempt()
        try:
            self._print(self._printed, whole=True)
        except LimitReached as reached:
            failure = failure or reached.failure
        self._seeded = self._random.position > 0
        return self._end(failure), [(self._output or b"null") if failure is None else b"null", b""]

    def _attempt(self) -> Failure | None:
        try:
            files = Files(self._sources.files, self._random.draw)
            with self._engine.ticker, Machine(self._engine, self, self._limits.memory_mb << 20, files) as machine:
                try:
                    machine.limit_memory(self._boot)
                    machine.execute(self._boot.main)
                    self._memory = machine.peak()
                finally:
                    self._memory = self._memory or machine.grown()
        except LimitReached as reached:
            return reached.failure
        except OutOfMemory:
            return self._reasons.memory()
        except Stopped as stopped:
            return self._reasons.stopped(str(stopped))
        except Exited:
            return faults.ended(self._output_tail.decode("utf-8", "replace"), self._reasons)
        except Trapped as trapped:
            return self._reasons.trapped(str(trapped), "PHP")
        if self._thrown is not None:
            return faults.thrown(self._thrown, self._reasons)
        return None if self._output is not None else faults.ended(self._output_tail.decode("utf-8", "replace"), self._reasons)

    # ---- what the guest says

    def on_message(self, message: bytes) -> bytes | None:
        kind, body = message[:1], message[1:]
        if body.count(b"\n") < LINES.get(kind, 0):
            raise LimitReached(self._reasons.unknown_method())
        if kind == b"i":
            entry = (ROOT + self._sources.entry).encode("utf-8", "replace")
            return b"\n".join((entry, self._request.facts, self._request.input))
        if kind == b"c":
            return self._call(body)
        if kind == b"l":
            self._print(self._printed, whole=True)
        self.on_statement(kind, body)
        return None

    def _call(self, body: bytes) -> bytes:
        """Ask the appliance, and wait for its answer: PHP has nothing else to do meanwhile."""
        if _sleeps(body):
            return b"0" + encode_json(NOT_IN_PHP)
        self.on_call(body)
        call = self._calls.pop()
        self._backlog_bytes = 0
        self._channel.send({"op": "calls", "calls": [[call.id, call.method, call.clock]]}, call.raw)
        answer, parts = self._channel.receive()
        if answer["op"] == "suspend":
            raise LimitReached(Failure("user_code", "ApiError", NOT_IN_PHP["message"], code=NOT_IN_PHP["code"]))
        if answer["op"] != "settle":
            raise Stopped(str(answer.get("reason")))
        self._reasons.hear(answer["ok"], parts[0])
        return (b"1" if answer["ok"] else b"0") + parts[0]

    def on_output(self, stream: int, data: bytes) -> None:
        """What is printed becomes log lines; so does what PHP warns of, but not the error that ends it."""
        if stream == PRINTED:
            self._print(self._printed + data)
            return
        self._output_tail = (self._output_tail + data)[-SAID_BYTES:]
        for line in data.decode("utf-8", "replace").splitlines():
            self._has_failed = self._has_failed or faults.is_fatal(line)
            if line and not self._has_failed:
                self.note("warn", faults.warning(line))

    def _print(self, data: bytes, *, whole: bool = False) -> None:
        *lines, rest = data.split(b"\n")
        if whole or len(rest) > LINE_BYTES:
            lines, rest = [*lines, rest], b""
        self._printed = rest
        for line in lines:
            if line:
                self.note("info", faults.strip_root(line.decode("utf-8", "replace")))


def _sleeps(body: bytes) -> bool:
    """Whether a call would store the step, which cannot be done with PHP."""
    method, _, raw = body.partition(b"\n")[2].partition(b"\n")
    if method in SUSPENDING:
        return True
    if method != b"processes.execute":
        return False
    try:
        match json.loads(raw):
            case [_, _, {"wait": wait}]:
                return bool(wait)
    except (ValueError, RecursionError):
        return False  # it is refused where every call is checked
    return False
