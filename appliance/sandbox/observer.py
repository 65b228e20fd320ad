"""The interface through which the sandbox reports events; the sandbox itself keeps no metrics."""

from __future__ import annotations

from typing import Literal, Protocol

from appliance.sandbox.outcome import Outcome

# Why a process was replaced: it did not answer in time, it had died, or it used too much memory.
Reason = Literal["overdue", "lost", "memory"]


class Observer(Protocol):
    """Receives events on the thread where they happen, so its methods must return quickly."""

    def waited(self, lane: str, seconds: float) -> None:
        """A request got a slot of this lane after waiting this long."""

    def replaced(self, lane: str, reason: Reason) -> None:
        """A process of this lane was ended and will be replaced."""

    def stepped(self, language: str, outcome: Outcome) -> None:
        """A step has ended or was suspended."""


class NullObserver:
    """An observer that ignores every event."""

    def waited(self, lane: str, seconds: float) -> None: ...
    def replaced(self, lane: str, reason: Reason) -> None: ...
    def stepped(self, language: str, outcome: Outcome) -> None: ...
