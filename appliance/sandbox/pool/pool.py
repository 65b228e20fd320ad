"""The sandbox's interface to the rest of the appliance: run steps, evaluate expressions, compile programs, decide."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from appliance.core import clock, json_schema
from appliance.sandbox.compilation.compiled import Compiled, CompiledPrograms
from appliance.sandbox.evaluation.schema_checks import SchemaChecker
from appliance.sandbox.observer import NullObserver, Observer, Reason
from appliance.sandbox.outcome import Evaluated, Failure, Outcome, Problem, Snapshot
from appliance.sandbox.pool.conversation import Conversation, Lost, Overdue
from appliance.sandbox.pool.lane import Lane
from appliance.sandbox.pool.lanes import AnyLane, Lanes, Settings
from appliance.sandbox.pool.outcomes import (
    REFUSALS,
    busy_failure,
    clamp_position,
    lost_failure,
    overdue_failure,
    parse_outcome,
    was_lost,
)
from appliance.sandbox.pool.process import Slot
from appliance.sandbox.pool.protections import Protections, weakest
from appliance.sandbox.program import Entropy, Host, Limits, NoHost, Program
from appliance.sandbox.runtimes.background import RuntimeStatus
from appliance.sandbox.typecheck import LONGEST_SECONDS as TYPES_SECONDS
from appliance.sandbox.typecheck import Finding, FindingsCache, TypeCheck
from appliance.sandbox.typecheck.share import Share
from appliance.sandbox.wire import Header, encode_json
from appliance.sandbox.worker.snapshot import Unusable, check

COMPILE_SECONDS = 12.0
# Compilations that may wait for a runtime in preparation; each holds a thread of a request.
MOST_WAITING_COMPILATIONS = 8
EXPRESSION_LIMITS = Limits(wall_ms=1_000, cpu_ms=1_000)
DECISION_SECONDS = 1.0
SEED = (1 << 256) - 1
_NAME = re.compile(r"[A-Za-z_$][\w$]*\Z", re.ASCII)


@dataclass(frozen=True)
class _RunRequest:
    """One call of `Pool.run`; `text` is the input or the snapshot's data, `used_ms` the wall time of earlier visits."""

    program: Program
    limits: Limits
    host: Host
    header: Header
    facts: bytes
    text: bytes
    resume: Snapshot | None = None
    used_ms: float = 0.0


class Pool:
    """The sandbox processes and the work they do. Call `start` before use and `stop` at the end. Thread-safe."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        lanes = self._lanes = Lanes(self.settings)
        self.templates, self._code, self._former = lanes.templates, lanes.code, lanes.former
        self._decisions, self._types = lanes.decisions, lanes.types
        self.schemas = SchemaChecker(lanes.schemas)
        self._findings, self._type_checks = FindingsCache(), Share()
        self._compiled = CompiledPrograms()
        self._waiting_compilations = threading.BoundedSemaphore(MOST_WAITING_COMPILATIONS)
        self._observer: Observer = NullObserver()

    def begin(self) -> None:
        """Start the processes without waiting for them, beside whatever comes before `start`; not those on demand."""
        if isinstance(self._code, Lane):
            self._code.begin()

    def start(self) -> None:
        """Start the processes, unless they start on demand, and wait until they are ready; raises StartFailed.

        From then on, values that take long to check against their JSON Schema are checked in the sandbox.
        """
        if isinstance(self._code, Lane):
            self.templates.store_current()
            self._code.start()
        json_schema.register_worker(self.schemas)

    def stop(self) -> None:
        json_schema.withdraw_worker(self.schemas)
        self._lanes.runtimes.stop()
        self._lanes.stop()

    def prepare_runtimes(self) -> None:
        """Prepare in the background the runtimes that the start did not need; until then, what needs one is refused or waits."""
        self._lanes.runtimes.start()

    def runtimes(self) -> list[RuntimeStatus]:
        """The state of the runtimes that may be prepared in the background."""
        return self._lanes.runtimes.statuses()

    def health(self) -> dict[str, int]:
        """The health of the processes for code: processes, slots, busy, restarts, queued, oldest_wait_ms, confined."""
        return self._code.health()

    def is_alive(self) -> bool:
        """Whether at least one process for code is running, or will be started on demand; while one is replaced, the others take
        over its work."""
        return self.settings.starts_on_demand or self._code.health()["processes"] > 0

    def restarts(self) -> dict[Reason, int]:
        """How many processes for code were ended and replaced, by reason."""
        return self._code.restarts()

    def observe(self, observer: Observer) -> None:
        """Report waiting times, replaced processes and finished steps to `observer` from now on."""
        self._observer = observer
        self._lanes.observe(observer)

    def protections(self) -> Protections | None:
        """The protections that all processes for code have: of each protection, the weakest among them. None without a process."""
        each = self._code.protections()
        return weakest(each) if each else None

    def process_ids(self) -> list[int]:
        """The operating system's ids of the processes for code."""
        return self._code.process_ids()

    def former_process_ids(self) -> list[int]:
        """The ids of the processes for steps that were suspended under a former version."""
        return self._former.process_ids()

    def php_process_ids(self) -> list[int]:
        """The ids of the processes for PHP; empty if no PHP step has run for a while."""
        return self._lanes.php.process_ids()

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
        resume: Snapshot | None = None,
    ) -> Outcome:
        """Run one step. `input` and `api` (which becomes api.execution) may be JSON already, as bytes.

        With `resume` the step continues where it was suspended: it keeps its input, api and seed, `host.wait` may answer its
        pending calls, `entropy.clock` has the values read since, and limits count from its start.
        Failures of the step are in the outcome and never raised; exceptions of `host` end the step and propagate.
        Long because it names every part of one run.
        """
        limits, entropy = limits or Limits(), entropy or Entropy()
        facts = api if isinstance(api, bytes) else encode_json(dict(api))
        header: Header = {
            "op": "run",
            "key": program.digest,
            "limits": limits.as_list(),
            "seed": entropy.seed & SEED,
            "clock": list(entropy.clock),
            "resume": resume is not None,
        }
        request = _RunRequest(program, limits, host or NoHost(), header, facts, encode_json(input))
        if resume is not None:
            try:
                used_ms = check(resume, program, limits).carried.wall_ms
            except Unusable as unusable:
                return Outcome(unusable.failure)
            request = replace(request, text=resume.data, resume=resume, used_ms=used_ms)
        outcome, used_host = self._attempt(request)
        if was_lost(outcome.failure) and not used_host:
            # The step had no effect yet and the process had most likely died earlier, so retry without counting an attempt.
            outcome, _ = self._attempt(request)
        self._observer.stepped(program.language, outcome)
        return outcome

    def _attempt(self, request: _RunRequest) -> tuple[Outcome, bool]:
        """Run the step once; returns its outcome and whether it exchanged any call or answer with the host."""
        try:
            place = (self.settings.queue_seconds, request.program.namespace)
            lane = self._lane_for(request)
            with lane.slot(*place) as slot:
                compiled = self._compile_near(lane, slot, request.program)
                if compiled.failures:
                    return Outcome(compiled.failures[0]), False
                pending = request.resume.pending if request.resume is not None else ()
                talk = Conversation(slot, (request.limits.wall_ms - request.used_ms) / 1000, pending)
                return self._converse(lane, slot, talk, request, compiled), bool(talk.calls or talk.answers)
        except Unusable as unusable:
            return Outcome(unusable.failure), False
        except REFUSALS as refusal:
            return Outcome(busy_failure(refusal)), False

    def _lane_for(self, request: _RunRequest) -> AnyLane:
        if request.resume is None or request.resume.template == self.templates.current:
            return self._lanes.lane_for(request.program)
        return self._former.lane(request.resume.template)

    def _converse(self, lane: AnyLane, slot: Slot, talk: Conversation, request: _RunRequest, compiled: Compiled) -> Outcome:
        try:
            end, parts = talk.run(request.header, request.facts, request.text, compiled, request.host)
            template = self.templates.current if request.resume is None else request.resume.template
            return parse_outcome(end, parts, template, talk.open)
        except Overdue:
            lane.condemn(slot.process, "overdue")
            return Outcome(overdue_failure(request.limits.wall_ms / 1000, "raise limits.time or do less in one step"))
        except Lost:
            lane.condemn(slot.process)
            return Outcome(lost_failure(), host_calls=talk.calls)
        except BaseException:
            if not talk.in_step:
                lane.condemn(slot.process, "overdue")
            raise

    # ---- programs

    def compile(self, program: Program) -> list[Failure]:
        """Compile a program and cache it for `run`; returns every syntax error of the files that the entry reaches.

        While its runtime is being prepared, this waits for it as long as for a slot, unless many others do already.
        """
        try:
            self._await_runtime(program)
            for _ in range(2):
                # Retry once, because the process had most likely died earlier and compiling has no side effects.
                lane = self._lanes.lane_for(program)
                with lane.slot(self.settings.queue_seconds, program.namespace) as slot:
                    failures = self._compile(lane, slot, program).failures
                if not any(map(was_lost, failures)):
                    break
        except REFUSALS as refusal:
            return [busy_failure(refusal)]
        return failures

    def _await_runtime(self, program: Program) -> None:
        name = self._lanes.runtime_of(program)
        if name is not None and self._waiting_compilations.acquire(blocking=False):
            try:
                self._lanes.runtimes.await_part(name, self.settings.queue_seconds)
            finally:
                self._waiting_compilations.release()

    def _compile_near(self, lane: AnyLane, slot: Slot, program: Program) -> Compiled:
        """Compile in the slot's own process, or in the current lane if that process has a former template, which cannot."""
        home = self._lanes.lane_for(program)
        if lane is home:
            return self._compile(lane, slot, program)
        with home.slot(self.settings.queue_seconds, program.namespace) as other:
            return self._compile(home, other, program)

    def _compile(self, lane: AnyLane, slot: Slot, program: Program) -> Compiled:
        cached = self._compiled.get(program.digest)
        if cached is not None:
            return cached
        source = encode_json({"language": program.language, "entry": program.entry, "files": dict(program.files)})
        answer, parts, failure = _ask_process(lane, slot, COMPILE_SECONDS, {"op": "compile"}, source)
        if failure is not None:
            return Compiled([failure])
        failures = [Failure.from_wire(each) for each in answer["failures"]]
        compiled = Compiled(failures, {"op": "artefact", **answer["artefact"]}, parts)
        if not any(each.retryable for each in failures):
            self._compiled.put(program.digest, compiled)
        return compiled

    def check_types(self, check: TypeCheck) -> list[Finding] | Failure:
        """Find the type errors of a process and calls beyond its grants; returns a Failure if they cannot be determined.

        Raises ConcurrencyLimited while several checks of the same tenant are in progress.
        """
        findings = self._findings.get(check.digest)
        if findings is None:
            with self._type_checks.slot(check.namespace):
                _, parts, failure = self._ask_types(check)
            if failure is not None:
                return failure
            findings = [Finding.from_wire(each) for each in json.loads(parts[0])]
            self._findings.put(check.digest, findings)
        return findings

    def _ask_types(self, check: TypeCheck) -> Answer:
        """Check types within TYPES_SECONDS, including the wait for a slot; retries once if the process had died."""
        end = clock.monotonic() + TYPES_SECONDS
        try:
            for _ in range(2):
                with self._types.slot(max(0.1, end - clock.monotonic()), check.namespace) as slot:
                    answer = _ask_process(self._types, slot, max(0.1, end - clock.monotonic()), {"op": "types"}, check.wire)
                if not was_lost(answer[2]):
                    break
            return answer
        except REFUSALS as refusal:
            return {}, [], busy_failure(refusal)

    # ---- expressions

    def evaluate(
        self,
        expressions: Mapping[str, str],
        names: Mapping[str, Any],
        *,
        now: int = 0,
        limits: Limits = EXPRESSION_LIMITS,
        namespace: str = "",
    ) -> dict[str, Evaluated]:
        """Evaluate JavaScript expressions over `names` in one fresh instance; each has its own value or failure.

        Values of `names` may be JSON already (bytes); expressions cannot change them. `now` (ms) is the only time they see.
        """
        texts = list(expressions.values())
        used = [name for name in names if _NAME.match(name) and any(name in text for text in texts)]
        values = b",".join(encode_json(names[name]) for name in used)
        request = b"=%s\n%s\n[%s]" % (encode_json(used), encode_json(list(expressions.items())), values)
        return self._evaluate(request, expressions, now, limits, namespace)

    def check_expression(self, text: str) -> Failure | None:
        """Check the syntax of an expression without running it; None if it is valid."""
        return self._evaluate(b"?" + text.encode("utf-8", "replace"), {"0": text}, 0, EXPRESSION_LIMITS)["0"].failure

    def _evaluate(
        self, request: bytes, expressions: Mapping[str, str], now: int, limits: Limits, namespace: str = ""
    ) -> dict[str, Evaluated]:
        keys = list(expressions)
        header: Header = {"op": "evaluate", "keys": keys, "now": now, "limits": limits.as_list()}
        answer, parts, failure = self._ask_lane(self._code, limits.wall_ms / 1000, header, request, namespace=namespace)
        if failure is not None:
            return {key: Evaluated(failure=failure) for key in keys}
        out = {key: Evaluated(json.loads(raw)) for key, raw in zip(answer["values"], parts, strict=True)}
        for key, each in answer["failures"].items():
            out[key] = Evaluated(failure=clamp_position(expressions[key], Failure.from_wire(each)))
        return {key: out[key] for key in keys}

    # ---- decisions

    def decide(
        self,
        model: Mapping[str, Any] | bytes,
        input: Any,  # noqa: A002  the contract's word
        *,
        seconds: float = DECISION_SECONDS,
        namespace: str = "",
    ) -> Evaluated:
        """Evaluate a JSON Decision Model for an input object; both may be JSON already, as bytes."""
        text = model if isinstance(model, bytes) else encode_json(dict(model))
        answer, parts, failure = self._ask_decision(seconds, {"op": "decide"}, text, encode_json(input), namespace=namespace)
        if failure is None and answer["failure"] is not None:
            failure = Failure.from_wire(answer["failure"])
        return Evaluated(failure=failure) if failure is not None else Evaluated(json.loads(parts[0]))

    def check_decision(self, model: Any) -> list[Problem]:
        """The problems of a JSON Decision Model; empty if `decide` accepts it."""
        answer, _, failure = self._ask_decision(COMPILE_SECONDS, {"op": "check"}, encode_json(model))
        if failure is not None:
            return [Problem("", failure.message)]
        return [Problem(pointer, message) for pointer, message in answer["problems"]]

    def _ask_decision(self, seconds: float, header: Header, *parts: bytes, namespace: str = "") -> Answer:
        answer, results, failure = self._ask_lane(self._decisions, seconds, header, *parts, namespace=namespace)
        if was_lost(failure):
            # The process served only this decision, so the decision must have ended it.
            text = "The decision ended its process, most likely by using too much memory; let it work on less."
            failure = Failure("memory", "OutOfMemory", text, code="memory_limit")
        return answer, results, failure

    def _ask_lane(self, lane: AnyLane, seconds: float, header: Header, *parts: bytes, namespace: str = "") -> Answer:
        """Send a request to a slot of the lane; retries once if the process had died, as requests have no side effects."""
        try:
            for _ in range(2):
                with lane.slot(self.settings.queue_seconds, namespace) as slot:
                    answer, results, failure = _ask_process(lane, slot, seconds, header, *parts)
                if not was_lost(failure):
                    break
        except REFUSALS as refusal:
            return {}, [], busy_failure(refusal)
        return answer, results, failure


Answer = tuple[Header, list[bytes], Failure | None]


def _ask_process(lane: AnyLane, slot: Slot, seconds: float, header: Header, *parts: bytes) -> Answer:
    """Send one request to a process; ends the process if it gives no answer."""
    try:
        answer, results = Conversation(slot, seconds).ask(header, *parts)
    except Overdue:
        lane.condemn(slot.process, "overdue")
        return {}, [], overdue_failure(seconds)
    except Lost:
        lane.condemn(slot.process)
        return {}, [], lost_failure()
    if answer["op"] == "fault":
        return {}, [], Failure.from_wire(answer["failure"])
    return answer, results, None
