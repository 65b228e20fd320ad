"""The language-independent part of running a step: limits, clock, logs, calls and result."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import dataclass
from typing import Any

from appliance.core import clock
from appliance.sandbox.outcome import Failure
from appliance.sandbox.program import Limits
from appliance.sandbox.reasons import ABORTED, OVER_CPU, OVER_WALL, Reasons
from appliance.sandbox.wire import Channel, Header
from appliance.sandbox.worker.snapshot import HostState

# After CLOCK_READS reads nothing is recorded and time advances by 1 ms every CLOCK_COARSE reads, which replays identically.
CLOCK_READS, CLOCK_COARSE = 10_000, 100
# The total size of calls that wait to be sent to the host.
BACKLOG_BYTES = 16 << 20
LOG_LINE_BYTES = 64
LEVELS = {b"info": "info", b"warn": "warn", b"error": "error"}
# The maximum size of a thrown error's description; the prelude stays far below it.
FAULT_BYTES = 1 << 20
# Far below the depth that exhausts the stack of any later reader of the data.
DEPTH = 200
_METHOD = re.compile(rb"[a-z]{1,40}\.[a-z_]{1,40}\Z")
_LONE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# Only such numbers can exceed a double (JSON.rawJSON writes any number); they would become infinity, which JSON cannot store.
_HUGE = re.compile(rb"[eE]\+?0*[1-9][0-9]{2}|[0-9]{309}")


class LimitReached(Exception):
    """The guest exceeded a limit and is ended; `failure` says which."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is too large for a number")
    return value


def _check_depth(value: Any) -> None:
    """Raise RecursionError if lists and objects are nested deeper than DEPTH."""
    level = [value]
    for _ in range(DEPTH + 1):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
    raise RecursionError


def tidy_json(raw: bytes) -> bytes:
    """Validate JSON for storage: checks syntax and depth, and replaces lone surrogates."""
    value = json.loads(raw, parse_constant=_refuse_constant, parse_float=_finite if _HUGE.search(raw) else None)
    if raw.count(b"[") + raw.count(b"{") > DEPTH:
        _check_depth(value)
    if _LONE_SURROGATE.search(raw):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    return raw


@dataclass(frozen=True)
class Request:
    """A request to run a step; `facts` and `input` are JSON."""

    program: str
    limits: Limits
    seed: int
    clock: list[int]
    serial: int
    facts: bytes
    input: bytes


@dataclass(frozen=True)
class Call:
    id: int
    method: str
    clock: list[int]
    raw: bytes


class Visit:
    """One visit of a step to a sandbox process; subclasses run the step in their language."""

    def __init__(self, request: Request, channel: Channel, before: HostState | None = None) -> None:
        self._request, self._channel = request, channel
        self._limits = request.limits
        self._before = before = before or HostState(seed=request.seed)
        self._reasons = Reasons(request.limits, system_failed=before.system_failed)
        self._began, self._cpu_began = time.monotonic(), time.thread_time()
        self._wall_end = self._began + (self._limits.wall_ms - before.wall_ms) / 1000
        self._cpu_end = self._cpu_began + (self._limits.cpu_ms - before.cpu_ms) / 1000
        self._clock: list[int] = []
        self._clock_last = before.clock_last
        self._clock_coarse = self._clock_told = 0
        self._calls: list[Call] = []
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

    # ---- messages of the guest

    def on_statement(self, kind: bytes, body: bytes) -> None:
        """Handle a message that needs no answer: log line, output or thrown error; ignores any other kind."""
        if kind == b"l":
            self._on_log(body)
        elif kind == b"d":
            self._on_done(body)
        elif kind == b"f":
            self._on_fault(body)

    def on_call(self, body: bytes) -> None:
        self._calls_made += 1
        if self._calls_made > self._limits.host_calls:
            raise LimitReached(self._reasons.too_many_calls())
        method, _, raw = body.partition(b"\n")[2].partition(b"\n")
        if not _METHOD.match(method):
            raise LimitReached(self._reasons.unknown_method())
        self._backlog_bytes += len(raw)
        if len(raw) > self._limits.output_bytes or self._backlog_bytes > BACKLOG_BYTES:
            raise LimitReached(self._reasons.call_too_large(method.decode()))
        clock, self._clock_told = self._clock[self._clock_told :], len(self._clock)
        raw = self._checked(raw, "What a call was given")
        if raw.lstrip()[:1] != b"[":  # a guest can override how arrays become JSON, which would look like our own fault
            raise LimitReached(self._reasons.not_json("What a call was given"))
        self._calls.append(Call(self._calls_made, method.decode(), clock, raw))

    def _on_log(self, body: bytes) -> None:
        level, _, raw = body.partition(b"\n")
        self._count_log(len(body))
        entry = json.loads(self._checked(raw, "A log line"))
        if not isinstance(entry, list) or not entry:
            raise LimitReached(self._reasons.not_json("A log line"))
        self._keep_log(LEVELS.get(level, "info"), str(entry[0]), entry[1] if len(entry) > 1 else None)

    def note(self, level: str, message: str) -> None:
        """Add a log line on behalf of the guest."""
        self._count_log(len(message))
        self._keep_log(level, message, None)

    def _count_log(self, size: int) -> None:
        self._log_bytes += max(size, LOG_LINE_BYTES)
        if self._log_bytes > self._limits.log_bytes:
            raise LimitReached(self._reasons.too_much_log())

    def _keep_log(self, level: str, message: str, fields: Any) -> None:
        self._logs.append([clock.now_ms(), level, message.replace("\0", "\ufffd"), fields])

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

    # ---- requests of the guest

    def read_clock(self) -> int:
        """Return recorded values first, then the clock, which never goes back; every value is recorded.

        The first value of a visit is always recorded, because the step may have been suspended for days.
        """
        count, recorded = len(self._clock), self._request.clock
        if count and self._before.clock_count + count >= CLOCK_READS:
            self._clock_coarse += 1
            self._clock_last = self._clock[-1] + self._clock_coarse // CLOCK_COARSE
        else:
            self._clock_last = recorded[count] if count < len(recorded) else max(clock.now_ms(), self._clock_last)
            self._clock.append(self._clock_last)
        return self._clock_last

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
