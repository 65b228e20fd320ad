"""State transitions of alerts: a pure function of the current state and the latest finding."""

from dataclasses import dataclass, replace
from typing import Literal

State = Literal["ok", "pending", "firing"]
Turn = Literal["firing", "repeated", "resolved", "test"]


@dataclass(frozen=True)
class AlertState:
    """An alert's state since `since`; `told`: whether anyone was notified of the firing; `next_notice_at`: when they are again."""

    state: State
    since: int
    is_notified: bool = False
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
class Transition:
    """The next state, and the event to record, if any; a `silenced` event is recorded without notifying anyone."""

    state: AlertState
    event: Turn | None = None
    silenced: bool = False


def next_transition(state: AlertState, holds: bool, now: int, timing: Timing) -> Transition:
    """The transition that follows from a finding.

    An alert that fires while silenced notifies when the silence ends, if it is still firing.  Its resolution notifies only those
    who were notified of the firing.
    """
    if not holds:
        if state.state != "firing":
            return Transition(state if state.state == "ok" else AlertState("ok", now))
        return Transition(AlertState("ok", now), "resolved", silenced=timing.is_silenced(now) or not state.is_notified)
    if state.state == "firing":
        return _remind(state, now, timing)
    began = state.since if state.state == "pending" else now
    if now - began < timing.for_ms:
        return Transition(state if state.state == "pending" else AlertState("pending", now))
    return Transition(_after_notice(AlertState("firing", now), now, timing), "firing", silenced=timing.is_silenced(now))


def _remind(state: AlertState, now: int, timing: Timing) -> Transition:
    if state.next_notice_at is None or now < state.next_notice_at:
        return Transition(state)
    if timing.is_silenced(now):
        return Transition(replace(state, next_notice_at=timing.silenced_until))
    return Transition(_after_notice(state, now, timing), "repeated" if state.is_notified else "firing")


def _after_notice(state: AlertState, now: int, timing: Timing) -> AlertState:
    if timing.is_silenced(now):
        return replace(state, next_notice_at=timing.silenced_until)
    return replace(state, is_notified=True, next_notice_at=now + timing.repeat_ms if timing.repeat_ms else None)
