"""One run of a step inside a sandbox process: limits, clock, logs and the calls that go to the appliance."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

from appliance.sandbox.artefact import Artefact
from appliance.sandbox.engine import Engine
from appliance.sandbox.outcome import FAILURE_CLASSES, Failure
from appliance.sandbox.program import Limits
from appliance.sandbox.vm import OutOfMemory, Stopped, Thrown, Trapped, VM
from appliance.sandbox.wire import Channel, Header

# Beyond this many reads of the clock it advances by 1 ms every CLOCK_COARSE reads and nothing is recorded: a re-run counts alike.
CLOCK_READS, CLOCK_COARSE = 10_000, 100
# Calls that wait for a place before the host, all together.
BACKLOG_BYTES = 16 << 20
_METHOD = re.compile(rb"[a-z]+\.[a-z_]+\Z")
_LONE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class LimitReached(Exception):
    """The guest went over a limit; it ends here and the failure says how."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def tidy_json(raw: bytes) -> bytes:
    """The text if it is JSON that everybody can store: checked for syntax and depth, lone surrogates replaced."""
    value = json.loads(raw, parse_constant=_constant)
    if _LONE_SURROGATE.search(raw):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    return raw


def spread_seed(seed: int) -> bytes:
    """Four 32-bit words from a 64-bit seed by splitmix64 (Steele, Lea, Flood), as JSON."""
    words, mask = [], (1 << 64) - 1
    for _ in range(2):
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        mixed = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & mask
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
        mixed ^= mixed >> 31
        words += [mixed & 0xFFFFFFFF, mixed >> 32]
    return json.dumps([each - (1 << 32) if each >> 31 else each for each in words]).encode()


@dataclass
class Request:
    """What the appliance asks to be run."""

    artefact: Artefact
    limits: Limits
    seed: int
    clock: list[int]
    facts: bytes
    input: bytes


@dataclass
class _Call:
    id: int
    method: str
    clock: list[int]
    raw: bytes


class StepRun:
    """Runs one request over a channel; `run` answers the header and the output of the final frame."""

    def __init__(self, engine: Engine, request: Request, channel: Channel) -> None:
        self._engine, self._request, self._channel = engine, request, channel
        self._limits = request.limits
        self._began = time.monotonic()
        self._wall_end = self._began + self._limits.wall_ms / 1000
        self._cpu_began = time.thread_time()
        self._cpu_end = self._cpu_began + self._limits.cpu_ms / 1000
        self._clock: list[int] = []
        self._clock_reads = 0
        self._clock_told = 0
        self._calls: list[_Call] = []
        self._calls_made = 0
        self._backlog_bytes = 0
        self._outstanding = 0
        self._logs: list[list[Any]] = []
        self._log_bytes = 0
        self._output: bytes | None = None
        self._thrown: dict[str, Any] | None = None
        self._memory = 0

    # ---- the run

    def run(self) -> tuple[Header, bytes]:
        failure: Failure | None = None
        try:
            with self._engine.ticker, VM(self._engine, self, self._limits.memory_mb << 20) as vm:
                try:
                    failure = self._drive(vm)
                finally:
                    self._memory = vm.measure()
        except LimitReached as reached:
            failure = reached.failure
        except OutOfMemory:
            failure = self._memory_failure()
        except Stopped as stopped:
            failure = self._stop_failure(str(stopped))
        except Thrown as thrown:
            failure = self._thrown_failure(thrown.fault)
        except Trapped as trapped:
            failure = self._trap_failure(str(trapped))
        return self._end(failure), self._output or b"null"

    def _drive(self, vm: VM) -> Failure | None:
        promise = self._request.artefact.load_into(vm)
        vm.start(promise, self._request.facts + b"\n" + self._request.input)
        while not self._finished():
            if not self._calls and not self._outstanding:
                return Failure(
                    "user_code",
                    "NeverSettled",
                    "The step waits for a promise that nothing will settle; await only calls of api and your own async functions.",
                    code="never_settled",
                )
            self._exchange(vm)
        if self._thrown is not None:
            return self._thrown_failure(self._thrown)
        for _, reason in vm.rejections.values():
            return self._thrown_failure(vm.describe(reason))
        return None

    def _finished(self) -> bool:
        """Calls nobody awaited are still answered: a write that was begun is not left half done."""
        return self._thrown is not None or (self._output is not None and not self._outstanding and not self._calls)

    def _exchange(self, vm: VM) -> None:
        """Tell the appliance of new calls, take one answer and let the guest go on with it."""
        room = self._limits.in_flight - self._outstanding
        ready, self._calls = self._calls[:room], self._calls[room:]
        self._outstanding += len(ready)
        for call in ready:
            self._backlog_bytes -= len(call.raw)
        header = {"op": "calls", "calls": [[call.id, call.method, call.clock] for call in ready]}
        self._channel.send(header, *(call.raw for call in ready))
        answer, parts = self._channel.receive()
        if answer["op"] != "settle":
            raise Stopped(str(answer.get("reason", "aborted")))
        self._outstanding -= 1
        vm.send(vm.boot.message, b"%d\n%d\n%s" % (answer["id"], 1 if answer["ok"] else 0, parts[0]))

    # ---- what the guest says

    def on_message(self, message: bytes) -> bytes | None:
        kind, body = message[:1], message[1:]
        if kind == b"c":
            self._on_call(body)
        elif kind == b"l":
            self._on_log(body)
        elif kind == b"d":
            self._on_done(body)
        elif kind == b"f":
            self._thrown = json.loads(tidy_json(body))
        elif kind == b"s":
            return spread_seed(self._request.seed)
        return None

    def _on_call(self, body: bytes) -> None:
        _, method, raw = body.split(b"\n", 2)
        self._calls_made += 1
        if self._calls_made > self._limits.host_calls:
            raise LimitReached(
                _limit("host_call_limit", f"The step made more than {self._limits.host_calls} calls; use api.datapool.batch or split the work over steps.")
            )
        self._backlog_bytes += len(raw)
        if len(raw) > self._limits.output_bytes or self._backlog_bytes > BACKLOG_BYTES:
            raise LimitReached(
                _limit("host_call_size", f"The parameters of {method.decode('ascii', 'replace')} are larger than {_size(self._limits.output_bytes)}; send less at once.")
            )
        if not _METHOD.match(method):
            raise LimitReached(_limit("unknown_method", "The step called a method that api does not have."))
        clock, self._clock_told = self._clock[self._clock_told :], len(self._clock)
        self._calls.append(_Call(self._calls_made, method.decode(), clock, self._checked(raw, "The parameters of a call")))

    def _on_log(self, body: bytes) -> None:
        level, raw = body.split(b"\n", 1)
        self._log_bytes += len(raw)
        if self._log_bytes > self._limits.log_bytes or len(self._logs) >= self._limits.log_bytes // 64:
            raise LimitReached(_limit("log_limit", f"The step logged more than {_size(self._limits.log_bytes)}; log less, or return the data as output."))
        entry = json.loads(self._checked(raw, "A log line"))
        message = str(entry[0]).replace("\0", "\ufffd")
        self._logs.append([time.time_ns() // 1_000_000, level.decode("ascii", "replace"), message, entry[1] if len(entry) > 1 else None])

    def _on_done(self, body: bytes) -> None:
        if len(body) > self._limits.output_bytes:
            raise LimitReached(
                _limit("output_limit", f"The step returned {_size(len(body))}, more than {_size(self._limits.output_bytes)}; store the data in DataPool and return a reference.")
            )
        self._output = self._checked(body, "The output")

    def _checked(self, raw: bytes, what: str) -> bytes:
        try:
            return tidy_json(raw)
        except RecursionError:
            raise LimitReached(_limit("nesting_limit", f"{what} is nested too deeply; flatten it.")) from None
        except ValueError:
            raise LimitReached(_limit("invalid_output", f"{what} is not plain JSON data.")) from None

    def read_clock(self) -> int:
        """Recorded values first, then the clock; each value is recorded again."""
        self._clock_reads += 1
        count = len(self._clock)
        if count >= CLOCK_READS:
            return self._clock[-1] + (self._clock_reads - CLOCK_READS) // CLOCK_COARSE
        recorded = self._request.clock
        value = recorded[count] if count < len(recorded) else time.time_ns() // 1_000_000
        self._clock.append(value)
        return value

    def module_source(self, name: str) -> str | None:
        return self._request.artefact.source(name)

    def resolve_module(self, importer: str, specifier: str) -> str:
        return self._request.artefact.resolve(importer, specifier)

    def overdue(self) -> str | None:
        if time.monotonic() >= self._wall_end:
            return "timeout"
        if time.thread_time() >= self._cpu_end:
            return "cpu"
        return None

    # ---- how it ended

    def _end(self, failure: Failure | None) -> Header:
        return {
            "op": "end",
            "failure": None if failure is None else failure.to_wire(),
            "logs": self._logs,
            "clock": self._clock,
            "cpu": round((time.thread_time() - self._cpu_began) * 1000, 3),
            "wall": round((time.monotonic() - self._began) * 1000, 3),
            "memory": self._memory,
            "calls": self._calls_made,
        }

    def _memory_failure(self) -> Failure:
        limit = self._limits.memory_mb
        return Failure("memory", "OutOfMemory", f"The step used more than {limit} MB of memory; raise limits.memory_mb or work on less data at once.", code="memory_limit")

    def _stop_failure(self, reason: str) -> Failure:
        if reason == "timeout":
            text = f"The step took longer than {self._limits.wall_ms / 1000:g} s; raise limits.time or do less in one step."
            return Failure("timeout", "TimedOut", text, code="time_limit", retryable=True)
        if reason == "cpu":
            text = f"The step computed for more than {self._limits.cpu_ms / 1000:g} s; raise limits.cpu or do less in one step."
            return Failure("timeout", "TimedOut", text, code="cpu_limit", retryable=True)
        return Failure("system", "Aborted", "The step was ended by the appliance.", code="aborted", retryable=True)

    def _trap_failure(self, text: str) -> Failure:
        if "stack" in text:
            return Failure("user_code", "StackOverflow", "The step recurses too deeply; use a loop.", code="stack_limit")
        return Failure("system", "SandboxFault", f"The JavaScript engine stopped: {text}", code="sandbox_fault")

    def _thrown_failure(self, fault: dict[str, Any]) -> Failure:
        name, message = str(fault.get("name", "Error")), str(fault.get("message", ""))
        if name == "InternalError" and message == "out of memory":
            return self._memory_failure()
        stack, position = self._request.artefact.locate(str(fault.get("stack") or ""))
        if fault.get("cause") is not None:
            stack += f"\ncaused by {fault['cause']}"
        given = fault.get("failure_class")
        code = fault.get("code")
        return Failure(
            given if given in FAILURE_CLASSES else "user_code",
            name,
            message,
            stack,
            code if isinstance(code, str) else None,
            fault.get("retryable") is True,
            position,
        )


def _limit(code: str, message: str) -> Failure:
    return Failure("user_code", "LimitReached", message, code=code)


def _size(count: int) -> str:
    return f"{count / (1 << 20):g} MB" if count >= 1 << 20 and count % (1 << 20) == 0 else f"{count // 1024:,} KB"
