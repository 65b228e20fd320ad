"""Turns a sandbox process's final frame, or the lack of one, into an outcome."""

from __future__ import annotations

from appliance.sandbox.outcome import Failure, LogLine, Outcome, Position, Snapshot
from appliance.sandbox.pool.conversation import Lost
from appliance.sandbox.pool.lane import Busy
from appliance.sandbox.pool.process import StartFailed
from appliance.sandbox.runtimes import RuntimesMissing
from appliance.sandbox.runtimes.background import RuntimePreparing
from appliance.sandbox.wire import Header

LOST = "SandboxLost"
# What keeps a request from getting a slot.
REFUSALS = (Busy, StartFailed, RuntimesMissing, RuntimePreparing)
Refusal = Busy | StartFailed | RuntimesMissing | RuntimePreparing


def was_lost(failure: Failure | None) -> bool:
    return failure is not None and failure.name == LOST


def overdue_failure(seconds: float, advice: str = "do less at once") -> Failure:
    text = f"This took longer than {seconds:g} s and could only be stopped by ending its process; {advice}."
    return Failure("timeout", "TimedOut", text, code="time_limit", retryable=True)


def lost_failure() -> Failure:
    text = "The sandbox process ended while this ran in it; the step itself need not be wrong, it can be tried again."
    return Failure("system", LOST, text, code="sandbox_lost", retryable=True)


def busy_failure(refusal: Refusal) -> Failure:
    """The failure if no process could take the request; not retryable if a runtime is missing."""
    if isinstance(refusal, RuntimesMissing):
        return Failure("system", "RuntimesMissing", str(refusal), code="runtime_unavailable")
    if isinstance(refusal, RuntimePreparing):
        return Failure("system", "RuntimePreparing", refusal.message, code="runtime_preparing", retryable=True)
    return Failure("system", "SandboxBusy", f"{refusal}; try again later", code="sandbox_busy", retryable=True)


def clamp_position(text: str, failure: Failure) -> Failure:
    """Report a position past the end of the expression as an early end: the error was at the bracket we add after it."""
    lines = text.split("\n")
    position = failure.position
    if position is None or position.line <= len(lines):
        return failure
    end = Position("", len(lines), len(lines[-1]) + 1)
    return Failure(failure.failure_class, failure.name, "the expression ends too early", code=failure.code, position=end)


def parse_outcome(end: Header, parts: list[bytes], template: str, pending: set[int]) -> Outcome:
    """The outcome in a final frame; raises Lost if the frame is malformed."""
    try:
        failure = None if end["failure"] is None else Failure.from_wire(end["failure"])
        if end["op"] == "fault":
            return Outcome(failure)
        sleeps = end["pending"] is not None
        if sleeps and (not pending or end["pending"] != sorted(pending) or failure is not None):
            raise Lost
        return Outcome(
            failure=failure,
            output_json=parts[0],
            logs=[LogLine(*each) for each in end["logs"]],
            clock=end["clock"],
            cpu_ms=end["cpu"],
            wall_ms=end["wall"],
            memory_bytes=end["memory"],
            host_calls=end["calls"],
            snapshot=Snapshot(template, parts[1], tuple(end["pending"])) if sleeps else None,
            random=end.get("random") is True,
        )
    except (KeyError, TypeError, IndexError, ValueError) as fault:
        raise Lost from fault
