"""A circuit breaker per foreign system, which also honours Retry-After.

closed      every call is sent; `FAILURES` consecutive failures of an unavailable system open the circuit
open        nothing is sent until `open_until`; the pause doubles with each opening that follows a failed probe
half_open   one call is sent as a probe; an answer closes the circuit, a failure opens it again

A system that refuses is available: a refusal, wrong credentials and a rate limit all close the circuit.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from appliance.connectors.contract import (
    AuthError,
    ConnectorError,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)

FAILURES = 5
FIRST_OPEN_MS = 10_000
MAX_OPEN_MS = 300_000
MAX_HOLD_MS = 3_600_000
MAX_PROBE_MS = 60_000
PROBE_RETRY_S = 2.0

State = Literal["closed", "open", "half_open"]
Why = Literal["circuit_open", "rate_limited", "busy"]


class Withheld(TransientError):
    """The call was not sent, and can be repeated after `retry_after` seconds; `why` names the reason."""

    def __init__(self, message: str, why: Why, retry_after: float) -> None:
        super().__init__(message, details={"withheld": why})
        self.why: Why = why
        self.retry_after = retry_after


class RateLimitHeld(Withheld):
    """The foreign system sent a rate limit whose time is not over yet."""

    error_class = "rate_limited"


@dataclass(frozen=True)
class Circuit:
    """The state of a foreign system; times in epoch milliseconds.  `reason` is the message of the last failure."""

    failures: int = 0
    openings: int = 0
    open_until: int | None = None
    probing_until: int | None = None
    held_until: int | None = None
    reason: str = ""

    def state(self, now: int) -> State:
        """The state at this time: closed, open, or half-open once the pause is over."""
        if self.open_until is None:
            return "closed"
        return "open" if now < self.open_until else "half_open"

    def is_rate_limited(self, now: int) -> bool:
        """Whether a rate limit sent by the foreign system is still in effect."""
        return self.held_until is not None and now < self.held_until


def refusal(circuit: Circuit, slug: str, now: int) -> Withheld | None:
    """The error for a call that must not be sent now; None if it may be sent."""
    if circuit.held_until is not None and now < circuit.held_until:
        seconds = _seconds(circuit.held_until - now)
        message = (
            f"{slug} is rate limiting, so nothing is sent to it for another {seconds:g} s; the call can be repeated after that."
        )
        return RateLimitHeld(message, "rate_limited", seconds)
    state = circuit.state(now)
    if state == "closed" or circuit.open_until is None:
        return None
    if state == "open":
        seconds = _seconds(circuit.open_until - now)
    elif circuit.probing_until is not None and now < circuit.probing_until:
        seconds = PROBE_RETRY_S
    else:
        return None
    message = (
        f"{slug} failed {circuit.failures} times in a row; calls to it are paused for another {seconds:g} s, then it is tried "
        f"again automatically. The last failure: {circuit.reason}"
    )
    return Withheld(message, "circuit_open", seconds)


def probing(circuit: Circuit, now: int, seconds: float) -> Circuit:
    """The half-open circuit during a probe; if its process dies, another may probe after a minute at most."""
    return replace(circuit, probing_until=now + min(MAX_PROBE_MS, int(seconds * 1000)))


def after_answer(circuit: Circuit) -> Circuit:
    """The circuit after an answer; a rate limit stays in effect."""
    return Circuit(held_until=circuit.held_until)


def after_error(circuit: Circuit, error: ConnectorError, now: int) -> Circuit:
    """The circuit after an error; unchanged if the foreign system was not reached."""
    if isinstance(error, Withheld):
        return circuit
    if isinstance(error, RateLimited):
        return _apply_rate_limit(after_answer(circuit), error, now)
    if isinstance(error, Rejected | AuthError):
        return after_answer(circuit)
    if isinstance(error, TransientError | SystemFailure):
        return _failed(circuit, error, now)
    return replace(circuit, probing_until=None)


def _apply_rate_limit(circuit: Circuit, error: RateLimited, now: int) -> Circuit:
    """Apply a rate limit, at most one hour; an invalid Retry-After is ignored."""
    retry_after = error.retry_after
    if retry_after is None or not retry_after > 0:
        return circuit
    until = now + int(min(retry_after * 1000, MAX_HOLD_MS))
    return replace(circuit, held_until=max(until, circuit.held_until or 0))


def _failed(circuit: Circuit, error: ConnectorError, now: int) -> Circuit:
    failed = replace(circuit, failures=circuit.failures + 1, reason=error.message[:500])
    state = circuit.state(now)
    if state == "open" or failed.failures < FAILURES:
        return failed  # a call already in progress when the circuit opened adds no information
    pause = min(MAX_OPEN_MS, FIRST_OPEN_MS * 2 ** min(circuit.openings, 10))
    return replace(failed, openings=circuit.openings + 1, open_until=now + pause, probing_until=None)


def _seconds(ms: int) -> float:
    return math.ceil(ms / 100) / 10
