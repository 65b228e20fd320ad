"""One run of a step inside a sandbox process: limits, clock, logs and the calls that go to the appliance."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import dataclass
from typing import Any

from appliance.core import clock
from appliance.sandbox.artefact import Artefact
from appliance.sandbox.engine import Engine
from appliance.sandbox.freezer import Image, TooLarge, freeze, thaw
from appliance.sandbox.outcome import Failure
from appliance.sandbox.program import Limits
from appliance.sandbox.reasons import ABORTED, OVER_CPU, OVER_WALL, Reasons
from appliance.sandbox.snapshot import Carried, Stored, Unusable
from appliance.sandbox.vm import VM, OutOfMemory, Stopped, Thrown, Trapped
from appliance.sandbox.wire import Channel, Header

# After CLOCK_READS reads nothing is recorded and time advances by 1 ms every CLOCK_COARSE reads: a re-run counts alike.
CLOCK_READS, CLOCK_COARSE = 10_000, 100
# Calls that wait for a place before the host, all together.
BACKLOG_BYTES = 16 << 20
LOG_LINE_BYTES = 64
# What is told of something thrown; the prelude keeps far below it.
FAULT_BYTES = 1 << 20
# Far below what exhausts a reader's stack, wherever the data goes next.
DEPTH = 200
_METHOD = re.compile(rb"[a-z]{1,40}\.[a-z_]{1,40}\Z")
_LONE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# Only such a number can be more than a double holds (JSON.rawJSON writes any); nobody could store the infinity it becomes.
_HUGE = re.compile(rb"[eE]\+?0*[1-9][0-9]{2}|[0-9]{309}")


class LimitReached(Exception):
    """The guest went over a limit; it ends here and the failure says how."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is no number that can be kept")
    return value


def _check_depth(value: Any) -> None:
    """RecursionError when lists and objects lie in each other more than DEPTH times."""
    level = [value]
    for _ in range(DEPTH + 1):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
    raise RecursionError


def tidy_json(raw: bytes) -> bytes:
    """The text if it is JSON that everybody can read and store: checked for syntax and depth, lone surrogates replaced."""
    value = json.loads(raw, parse_constant=_refuse_constant, parse_float=_finite if _HUGE.search(raw) else None)
    if raw.count(b"[") + raw.count(b"{") > DEPTH:
        _check_depth(value)
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


@dataclass(frozen=True)
class Request:
    """What the appliance asks to be run: from its start with `facts` and `input`, which are JSON, or on from `stored`."""

    artefact: Artefact
    program: str
    limits: Limits
    seed: int
    clock: list[int]
    serial: int
    facts: bytes
    input: bytes
    stored: Stored | None = None


@dataclass(frozen=True)
class _Call:
    id: int
    method: str
    clock: list[int]
    raw: bytes


class StepRun:
    """Runs one request over a channel; `run` answers the header and the parts of the final frame."""

    def __init__(self, engine: Engine, image: Image, request: Request, channel: Channel) -> None:
        self._engine, self._image, self._request, self._channel = engine, image, request, channel
        self._limits = request.limits
        self._before = before = request.stored.carried if request.stored else Carried(seed=request.seed)
        self._reasons = Reasons(request.limits, system_failed=before.system_failed)
        self._began, self._cpu_began = time.monotonic(), time.thread_time()
        self._wall_end = self._began + (self._limits.wall_ms - before.wall_ms) / 1000
        self._cpu_end = self._cpu_began + (self._limits.cpu_ms - before.cpu_ms) / 1000
        self._clock: list[int] = []
        self._clock_last = before.clock_last
        self._clock_coarse = self._clock_told = 0
        self._calls: list[_Call] = []
        self._calls_made = before.calls_made
        self._pending = set(before.pending)
        self._backlog_bytes = 0
        self._seeded = before.seeded
        self._logs: list[list[Any]] = []
        self._log_bytes = before.log_bytes
        self._output: bytes | None = None
        self._thrown: dict[str, Any] | None = None
        self._memory = 0
        self._frozen: bytes | None = None

    # ---- the run

    def run(self) -> tuple[Header, list[bytes]]:
        failure: Failure | None = None
        try:
            with self._engine.ticker, VM(self._engine, self, self._limits.memory_mb << 20) as vm:
                try:
                    failure = self._drive(vm)
                finally:
                    self._memory = vm.measure()
        except (LimitReached, Unusable) as ended:
            failure = ended.failure
        except TooLarge:
            failure = self._reasons.snapshot_too_large()
        except OutOfMemory:
            failure = self._reasons.memory()
        except Stopped as stopped:
            failure = self._reasons.stopped(str(stopped))
        except Thrown as thrown:
            failure = self._reasons.thrown(thrown.fault, self._request.artefact)
        except Trapped as trapped:
            failure = self._reasons.trapped(str(trapped))
        return self._end(failure), [(self._output or b"null") if failure is None else b"null", self._frozen or b""]

    def _drive(self, vm: VM) -> Failure | None:
        if self._request.stored is None:
            promise = self._request.artefact.load_into(vm)
            vm.start(promise, self._request.facts + b"\n" + self._request.input)
        else:
            self._take_up(vm, thaw(self._request.stored, vm, self._image))
        while not self._finished():
            if not self._calls and not self._pending:
                return self._unhandled(vm) or self._reasons.never_settled()
            self._exchange(vm)
        if self._frozen is not None:
            return None
        if self._thrown is not None:
            return self._reasons.thrown(self._thrown, self._request.artefact)
        return self._unhandled(vm)

    def _unhandled(self, vm: VM) -> Failure | None:
        for _, reason in vm.rejections.values():
            return self._reasons.thrown(vm.describe(reason), self._request.artefact)
        return None

    def _finished(self) -> bool:
        """Calls nobody awaited are still answered: a write that was begun is not left half done."""
        if self._thrown is not None or self._frozen is not None:
            return True
        return self._output is not None and not self._pending and not self._calls

    def _exchange(self, vm: VM) -> None:
        """Tell the appliance of new calls, take one answer and let the guest go on with it, or store it."""
        room = max(0, self._limits.in_flight - len(self._pending))
        ready, self._calls = self._calls[:room], self._calls[room:]
        self._pending.update(call.id for call in ready)
        self._backlog_bytes -= sum(len(call.raw) for call in ready)
        header = {"op": "calls", "calls": [[call.id, call.method, call.clock] for call in ready]}
        self._channel.send(header, *(call.raw for call in ready))
        answer, parts = self._channel.receive()
        if answer["op"] == "suspend":
            self._suspend(vm)
            return
        if answer["op"] != "settle":
            raise Stopped(str(answer.get("reason")))
        self._pending.remove(answer["id"])
        self._reasons.hear(answer["ok"], parts[0])
        vm.send(vm.boot.message, b"%d\n%d\n%s" % (answer["id"], 1 if answer["ok"] else 0, parts[0]))

    # ---- sleep

    def _suspend(self, vm: VM) -> None:
        """The clock values of calls that were not shown yet go with the outcome of this visit, and are not told again."""
        vm.call("qjs_run_gc")
        carried = Carried(
            template=self._image.template,
            program=self._request.program,
            memory_mb=self._limits.memory_mb,
            seed=self._before.seed,
            wall_ms=self._before.wall_ms + (time.monotonic() - self._began) * 1000,
            cpu_ms=self._before.cpu_ms + (time.thread_time() - self._cpu_began) * 1000,
            calls_made=self._calls_made,
            log_bytes=self._log_bytes,
            clock_count=self._before.clock_count + len(self._clock),
            clock_last=self._clock_last,
            pending=sorted(self._pending),
            calls=[[call.id, call.method] for call in self._calls],
            rejections=[[identity, *handles] for identity, handles in vm.rejections.items()],
            seeded=self._seeded,
            system_failed=self._reasons.system_failed,
            returned=self._output is not None,
            output=self._output or b"",
            raws=[call.raw for call in self._calls],
        )
        self._frozen = freeze(vm, self._image, carried, self._limits.snapshot_bytes)

    def _take_up(self, vm: VM, carried: Carried) -> None:
        vm.rejections = {identity: (promise, reason) for identity, promise, reason in carried.rejections}
        self._calls = [_Call(number, method, [], raw) for (number, method), raw in zip(carried.calls, carried.raws, strict=True)]
        self._backlog_bytes = sum(map(len, carried.raws))
        self._output = carried.output if carried.returned else None

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
            self._on_fault(body)
        elif kind == b"s":
            self._seeded = True
            return spread_seed(self._before.seed)
        return None

    def _on_call(self, body: bytes) -> None:
        _, method, raw = body.split(b"\n", 2)
        self._calls_made += 1
        if self._calls_made > self._limits.host_calls:
            raise LimitReached(self._reasons.too_many_calls())
        if not _METHOD.match(method):
            raise LimitReached(self._reasons.unknown_method())
        self._backlog_bytes += len(raw)
        if len(raw) > self._limits.output_bytes or self._backlog_bytes > BACKLOG_BYTES:
            raise LimitReached(self._reasons.call_too_large(method.decode()))
        clock, self._clock_told = self._clock[self._clock_told :], len(self._clock)
        raw = self._checked(raw, "What a call was given")
        if raw.lstrip()[:1] != b"[":  # the guest can say how its arrays become JSON; the appliance would take it for our fault
            raise LimitReached(self._reasons.not_json("What a call was given"))
        self._calls.append(_Call(self._calls_made, method.decode(), clock, raw))

    def _on_log(self, body: bytes) -> None:
        level, raw = body.split(b"\n", 1)
        self._log_bytes += max(len(raw), LOG_LINE_BYTES)
        if self._log_bytes > self._limits.log_bytes:
            raise LimitReached(self._reasons.too_much_log())
        entry = json.loads(self._checked(raw, "A log line"))
        if not isinstance(entry, list) or not entry:
            raise LimitReached(self._reasons.not_json("A log line"))
        message = str(entry[0]).replace("\0", "\ufffd")
        fields = entry[1] if len(entry) > 1 else None
        self._logs.append([clock.now_ms(), level.decode("ascii", "replace"), message, fields])

    def _on_fault(self, body: bytes) -> None:
        large = len(body) > FAULT_BYTES
        fault = None if large else json.loads(self._checked(body, "What was thrown"))
        self._thrown = fault if isinstance(fault, dict) else {"message": "what was thrown cannot be described"}

    def _on_done(self, body: bytes) -> None:
        if len(body) > self._limits.output_bytes:
            raise LimitReached(self._reasons.output_too_large(len(body)))
        self._output = self._checked(body, "The output")

    def _checked(self, raw: bytes, what: str) -> bytes:
        try:
            return tidy_json(raw)
        except RecursionError:
            raise LimitReached(self._reasons.too_deep(what)) from None
        except ValueError:
            raise LimitReached(self._reasons.not_json(what)) from None

    # ---- what the guest asks

    def read_clock(self) -> int:
        """Recorded values first, then the clock, which never goes back; each value is recorded again.

        The first of a visit always is: the step may have slept for days.
        """
        count, recorded = len(self._clock), self._request.clock
        if count and self._before.clock_count + count >= CLOCK_READS:
            self._clock_coarse += 1
            self._clock_last = self._clock[-1] + self._clock_coarse // CLOCK_COARSE
        else:
            self._clock_last = recorded[count] if count < len(recorded) else max(clock.now_ms(), self._clock_last)
            self._clock.append(self._clock_last)
        return self._clock_last

    def module_source(self, name: str) -> str | None:
        return self._request.artefact.source(name)

    def resolve_module(self, importer: str, specifier: str) -> str:
        return self._request.artefact.resolve(importer, specifier)

    def overdue(self) -> str | None:
        if time.monotonic() >= self._wall_end:
            return OVER_WALL
        if self._channel.stop_asked == self._request.serial:
            return ABORTED
        return OVER_CPU if time.thread_time() >= self._cpu_end else None

    def _end(self, failure: Failure | None) -> Header:
        return {
            "op": "end",
            "failure": None if failure is None else failure.to_wire(),
            "logs": self._logs,
            "clock": self._clock,
            "cpu": round((time.thread_time() - self._cpu_began) * 1000, 3),
            "wall": round((time.monotonic() - self._began) * 1000, 3),
            "memory": self._memory,
            "calls": self._calls_made - self._before.calls_made,
            "pending": None if self._frozen is None else sorted(self._pending),
            "random": self._seeded,
        }
