"""The sandbox as the rest of the appliance sees it: run a step, evaluate expressions, compile, decide."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from appliance.sandbox import confinement, runtimes
from appliance.sandbox.conversation import Conversation, Lost, Overdue
from appliance.sandbox.lane import Busy, Lane
from appliance.sandbox.outcome import Evaluated, Failure, LogLine, Outcome
from appliance.sandbox.process import Slot
from appliance.sandbox.program import Entropy, Host, Limits, NoHost, Program
from appliance.sandbox.wire import Header, encode_json

COMPILE_SECONDS = 12.0
DECISION_MEMORY = 1 << 30
_NAME = re.compile(r"[A-Za-z_$][\w$]*\Z", re.ASCII)
EXPRESSION_LIMITS = Limits(wall_ms=1_000, cpu_ms=1_000)


@dataclass(frozen=True)
class Settings:
    """How many processes and places there are, where the prepared runtimes lie (None: where a checkout keeps them), how long to queue."""

    processes: int = 2
    slots: int = 8
    runtimes: Path | None = None
    queue_seconds: float = 60.0


@dataclass(frozen=True)
class _Compiled:
    """A program as a sandbox process made it, ready to be sent to any other; or why it could not."""

    failures: list[Failure]
    artefact: Header = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(map(len, self.parts)) * 3 + 1000


class _CompiledPrograms:
    """Compiled programs by namespace, content and engine; the longest unused one goes."""

    LIMIT_BYTES = 64 << 20

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Compiled] = OrderedDict()
        self._bytes = 0

    def get(self, key: str) -> _Compiled | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: str, compiled: _Compiled) -> None:
        with self._lock:
            replaced = self._kept.pop(key, None)
            self._bytes += compiled.size - (replaced.size if replaced else 0)
            self._kept[key] = compiled
            while self._bytes > self.LIMIT_BYTES and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1].size


class Pool:
    """Sandbox processes and everything they can do; thread-safe. `start` before use, `stop` at the end."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        prepared = runtimes.load(self.settings.runtimes or runtimes.default_folder())
        self._engine = prepared.engine
        self._code = Lane("code", self._code_settings(prepared), self.settings.processes, self.settings.slots)
        # Decisions may hold their whole process for their whole time: they get one of their own, started when first needed.
        decisions = {"role": "decisions", "address_space": DECISION_MEMORY}
        self._decisions = Lane("decisions", decisions, 1, 1)
        self._compiled = _CompiledPrograms()

    def _code_settings(self, prepared: runtimes.Runtimes) -> dict[str, Any]:
        boot = prepared.boot
        return {
            "role": "code",
            "address_space": confinement.ADDRESS_SPACE,
            "slots": self.settings.slots,
            "quickjs": str(prepared.verified(runtimes.QUICKJS)),
            "swc": str(prepared.verified(runtimes.SWC)),
            "boot": {"undefined": boot.undefined, "start": boot.start, "message": boot.message, "evaluate": boot.evaluate},
        }

    def start(self) -> None:
        """Start the processes and wait until they are ready; StartFailed says why they are not."""
        self._code.start()

    def stop(self) -> None:
        self._code.stop()
        self._decisions.stop()

    def health(self) -> dict[str, int]:
        """{"processes", "slots", "busy", "restarts", "queued"} of the processes that run code."""
        return self._code.health()

    # ---- steps

    def run(
        self,
        program: Program,
        input: Any,  # noqa: A002  the contract's word
        host: Host | None = None,
        *,
        api: Mapping[str, Any] | bytes = b"{}",
        limits: Limits | None = None,
        entropy: Entropy | None = None,
    ) -> Outcome:
        """Run one step. `input` may be JSON already (bytes); `api` becomes api.execution. Never raises for what the step does;
        what `host` raises ends the step and passes through."""
        limits, entropy = limits or Limits(), entropy or Entropy()
        try:
            with self._code.slot(self.settings.queue_seconds) as slot:
                return self._run(slot, program, host or NoHost(), (encode_json(dict(api) if not isinstance(api, bytes) else api), encode_json(input)), limits, entropy)
        except Busy as busy:
            return Outcome(_system("SandboxBusy", str(busy), "sandbox_busy"))

    def _run(self, slot: Slot, program: Program, host: Host, texts: tuple[bytes, bytes], limits: Limits, entropy: Entropy) -> Outcome:
        compiled = self._compile(slot, program)
        if compiled.failures:
            return Outcome(compiled.failures[0])
        talk = Conversation(slot, limits.wall_ms / 1000)
        header: Header = {
            "op": "run",
            "key": program.digest,
            "limits": [limits.wall_ms, limits.cpu_ms, limits.memory_mb, limits.output_bytes, limits.host_calls, limits.in_flight, limits.log_bytes],
            "seed": entropy.seed & 0xFFFFFFFFFFFFFFFF,
            "clock": list(entropy.clock),
        }
        try:
            end, parts = talk.run(header, texts, compiled, host)
        except Overdue:
            self._code.condemn(slot.process)
            text = f"The step took longer than {limits.wall_ms / 1000:g} s and did not let itself be stopped; its process was ended."
            return Outcome(Failure("timeout", "TimedOut", text, code="time_limit", retryable=True))
        except Lost:
            self._code.condemn(slot.process)
            return Outcome(_lost())
        except BaseException:
            if not talk.in_step:
                self._code.condemn(slot.process)
            raise
        return _outcome(end, parts)

    # ---- programs

    def compile(self, program: Program) -> list[Failure]:
        """Every syntax error of the files that the entry reaches; empty when the program can run. Kept for `run`."""
        try:
            with self._code.slot(self.settings.queue_seconds) as slot:
                return self._compile(slot, program).failures
        except Busy as busy:
            return [_system("SandboxBusy", str(busy), "sandbox_busy")]

    def _compile(self, slot: Slot, program: Program) -> _Compiled:
        found = self._compiled.get(program.digest)
        if found is not None:
            return found
        source = {"language": program.language, "entry": program.entry, "files": dict(program.files)}
        answer, parts, failure = self._ask(self._code, slot, {"op": "compile"}, (encode_json(source),), COMPILE_SECONDS)
        if failure is not None:
            return _Compiled([failure])
        compiled = _Compiled([Failure.from_wire(each) for each in answer["failures"]], {"op": "artefact", **answer["artefact"]}, parts)
        self._compiled.put(program.digest, compiled)
        return compiled

    # ---- expressions

    def evaluate(
        self, expressions: Mapping[str, str], names: Mapping[str, Any], *, now: int = 0, limits: Limits = EXPRESSION_LIMITS
    ) -> dict[str, Evaluated]:
        """Several JavaScript expressions over `names` in one fresh instance, failures apart. Values of `names` may be JSON already
        (bytes); the expressions cannot change them. `now` (ms) is the only time they see."""
        texts = list(expressions.values())
        used = [name for name in names if _NAME.match(name) and any(name in text for text in texts)]
        request = b"=%s\n%s\n[%s]" % (
            encode_json(used),
            encode_json(list(expressions.items())),
            b",".join(encode_json(names[name]) for name in used),
        )
        return self._evaluate(request, list(expressions), now, limits)

    def check_expression(self, text: str) -> Failure | None:
        """Whether a text is one expression; nothing runs."""
        return self._evaluate(b"?" + text.encode("utf-8", "replace"), ["0"], 0, EXPRESSION_LIMITS)["0"].failure

    def _evaluate(self, request: bytes, keys: list[str], now: int, limits: Limits) -> dict[str, Evaluated]:
        header: Header = {
            "op": "evaluate",
            "keys": keys,
            "now": now,
            "limits": {"wall_ms": limits.wall_ms, "memory_mb": limits.memory_mb, "output_bytes": limits.output_bytes},
        }
        try:
            with self._code.slot(self.settings.queue_seconds) as slot:
                answer, parts, failure = self._ask(self._code, slot, header, (request,), limits.wall_ms / 1000)
        except Busy as busy:
            failure = _system("SandboxBusy", str(busy), "sandbox_busy")
        if failure is not None:
            return {key: Evaluated(failure=failure) for key in keys}
        out = {key: Evaluated(json.loads(raw)) for key, raw in zip(answer["values"], parts, strict=True)}
        out |= {key: Evaluated(failure=Failure.from_wire(each)) for key, each in answer["failures"].items()}
        return {key: out[key] for key in keys}

    # ---- one question, one answer

    def _ask(
        self, lane: Lane, slot: Slot, header: Header, parts: tuple[bytes, ...], seconds: float
    ) -> tuple[Header, list[bytes], Failure | None]:
        started = time.monotonic()
        try:
            answer, found = Conversation(slot, seconds).ask(header, *parts)
        except Overdue:
            lane.condemn(slot.process)
            text = f"this took longer than {seconds:g} s; its process was ended after {time.monotonic() - started:.1f} s"
            return {}, [], Failure("timeout", "TimedOut", text, code="time_limit", retryable=True)
        except Lost:
            lane.condemn(slot.process)
            return {}, [], _lost()
        if answer["op"] == "fault":
            return {}, [], Failure.from_wire(answer["failure"])
        return answer, found, None


def _system(name: str, message: str, code: str) -> Failure:
    return Failure("system", name, message, code=code, retryable=True)


def _lost() -> Failure:
    return _system("SandboxLost", "The sandbox process ended while this ran in it; nothing is wrong with the step itself, it can be tried again.", "sandbox_lost")


def _outcome(end: Header, parts: list[bytes]) -> Outcome:
    failure = end["failure"]
    if end["op"] == "fault":
        return Outcome(Failure.from_wire(failure))
    return Outcome(
        failure=None if failure is None else Failure.from_wire(failure),
        output_json=parts[0],
        logs=[LogLine(*each) for each in end["logs"]],
        clock=end["clock"],
        cpu_ms=end["cpu"],
        wall_ms=end["wall"],
        memory_bytes=end["memory"],
        host_calls=end["calls"],
    )
