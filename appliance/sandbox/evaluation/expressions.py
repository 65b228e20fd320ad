"""Evaluates the expressions of a step inside a sandbox process, each on its own, over the same names."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from appliance.sandbox.outcome import Failure, Position
from appliance.sandbox.program import Limits
from appliance.sandbox.worker.engine import Engine
from appliance.sandbox.worker.instance import OutOfMemory, Stopped, Trapped
from appliance.sandbox.worker.visit import tidy_json
from appliance.sandbox.worker.vm import VM, Thrown

_PLACE = re.compile(r"<input>:(\d{1,9}):(\d{1,9})")
# QuickJS's own function header (two lines) and the line with which the prelude opens the function precede the text.
_LINES_ABOVE = 4


class ExpressionRun:
    """One fresh instance for a set of expressions; `now` (ms) is the only time they see."""

    def __init__(self, engine: Engine, limits: Limits, now: int) -> None:
        self._engine, self._now = engine, now
        self._wall_ms, self._heap, self._output_bytes = limits.wall_ms, limits.memory_mb << 20, limits.output_bytes
        self._end = time.monotonic() + self._wall_ms / 1000
        self._keys: set[str] = set()
        self._values: dict[str, bytes] = {}
        self._failures: dict[str, Failure] = {}

    def run(self, request: bytes, keys: list[str]) -> tuple[dict[str, bytes], dict[str, Failure]]:
        """Evaluate; returns values (JSON) and failures by key. If the instance stops, all keys without a value fail."""
        self._keys = set(keys)
        stopped: Failure | None = None
        try:
            with self._engine.ticker, VM(self._engine, self, self._heap) as vm:
                vm.send(vm.boot.evaluate, request)
        except Stopped as reason:
            stopped = self._stopped(reason)
        except Thrown as thrown:
            stopped = self._describe(thrown.fault)
        except Trapped:
            stopped = _failure("the expression is nested too deeply")
        for key in keys:
            if key not in self._values and key not in self._failures:
                self._failures[key] = stopped or _failure("the expression gave no value")
        return self._values, self._failures

    def _stopped(self, reason: Stopped) -> Failure:
        if isinstance(reason, OutOfMemory):
            return Failure("memory", "OutOfMemory", "the expression used too much memory", code="memory_limit")
        return Failure("timeout", "TimedOut", f"the expression took longer than {self._wall_ms / 1000:g} s", code="time_limit")

    def on_message(self, message: bytes) -> bytes | None:
        if message[:1] not in (b"v", b"w"):
            return None
        name, body = message[1:].split(b"\n", 1)
        key = name.decode("utf-8", "replace")
        if key not in self._keys:  # expressions can tamper with the list that the keys are read from
            return None
        try:
            raw = tidy_json(body)
        except (ValueError, RecursionError):
            self._failures[key] = _failure("the value is not plain JSON data")
            return None
        if message[:1] == b"w":
            self._failures[key] = self._describe(json.loads(raw))
        elif len(raw) > self._output_bytes:
            self._failures[key] = _failure(f"the value is larger than {self._output_bytes >> 10:,} KB")
        else:
            self._values[key] = raw
        return None

    def _describe(self, fault: Any) -> Failure:
        if not isinstance(fault, dict):
            return _failure("what was thrown cannot be described")
        name, message = str(fault.get("name", "Error")), str(fault.get("message", ""))
        if name == "InternalError" and message == "out of memory":
            return self._stopped(OutOfMemory("memory"))
        place = _PLACE.search(str(fault.get("stack") or ""))
        position = None
        if place is not None and int(place[1]) >= _LINES_ABOVE:
            position = Position("", int(place[1]) - _LINES_ABOVE + 1, int(place[2]))
        return Failure("validation", name, message, code="expression_failed", position=position)

    def read_clock(self) -> int:
        return self._now

    def module_source(self, name: str) -> str | None:
        return None

    def resolve_module(self, importer: str, specifier: str) -> str:
        return specifier

    def overdue(self) -> str | None:
        return "timeout" if time.monotonic() > self._end else None


def _failure(message: str) -> Failure:
    return Failure("validation", "ExpressionFailed", message, code="expression_failed")
