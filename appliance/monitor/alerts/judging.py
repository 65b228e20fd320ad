"""State transitions of alerts: a pure function of the current state and the latest finding."""

from dataclasses import dataclass, replace
from typing import Literal

State = Literal["ok", "pending", "firing"]
Turn = Literal["firing", "repeated", "resolved", "test"]


@dataclass(frozen=True)
class Standing:
    """An alert's state since `since`; `told`: whether anyone was notified of the firing; `next_notice_at`: when they are again."""

    state: State
    since: int
    told: bool = False
    next_notice_at: int | None = None


@dataclass(frozen=True)
class Timing:
    """How long a condition must hold before the alert fires, the reminder interval (0: none), and until when it is silenced."""

    for_ms: int
    repeat_ms: int
    silenced_until: int | None = None

    def is_silenced(self, now: int) -> bool:
        return self.silenced_until is not None and now < self.silenced_until


@dataclass(frozen=True)
class Verdict:
    """The next state, and the event to record, if any; a `silenced` event is recorded without notifying anyone."""

    standing: Standing
    turn: Turn | None = None
    silenced: bool = False


def judge(state: Standing, holds: bool, now: int, timing: Timing) -> Verdict:
    """The transition that follows from a finding.

    An alert that fires while silenced notifies when the silence ends, if it is still firing.  Its resolution notifies only those
    who were notified of the firing.
    """
    if not holds:
        if state.state != "firing":
            return Verdict(state if state.state == "ok" else Standing("ok", now))
        return Verdict(Standing("ok", now), "resolved", silenced=timing.is_silenced(now) or not state.told)
    if state.state == "firing":
        return _remind(state, now, timing)
    began = state.since if state.state == "pending" else now
    if now - began < timing.for_ms:
        return Verdict(state if state.state == "pending" else Standing("pending", now))
    return Verdict(_after_notice(Standing("firing", now), now, timing), "firing", silenced=timing.is_silenced(now))


def _remind(state: Standing, now: int, timing: Timing) -> Verdict:
    if state.next_notice_at is None or now < state.next_notice_at:
        return Verdict(state)
    if timing.is_silenced(now):
        return Verdict(replace(state, next_notice_at=timing.silenced_until))
    return Verdict(_after_notice(state, now, timing), "repeated" if state.told else "firing")


def _after_notice(state: Standing, now: int, timing: Timing) -> Standing:
    if timing.is_silenced(now):
        return replace(state, next_notice_at=timing.silenced_until)
    return replace(state, told=True, next_notice_at=now + timing.repeat_ms if timing.repeat_ms else None)
