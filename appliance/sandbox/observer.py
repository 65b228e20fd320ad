"""Whoever counts what the sandbox does; the sandbox itself knows no metrics."""

from __future__ import annotations

from typing import Literal, Protocol

from appliance.sandbox.outcome import Outcome

# Why a process was ended: it did not answer in time, it was gone, or it held too much memory.
Reason = Literal["overdue", "lost", "memory"]


class Observer(Protocol):
    """Told of what happens, on the thread to which it happens; it must be quick."""

    def waited(self, lane: str, seconds: float) -> None:
        """Somebody got a place after so long."""

    def replaced(self, lane: str, reason: Reason) -> None:
        """A process was ended, and another one takes its place."""

    def stepped(self, language: str, outcome: Outcome) -> None:
        """A step ended, or sleeps."""


class Unobserved:
    """Nobody counts."""

    def waited(self, lane: str, seconds: float) -> None: ...
    def replaced(self, lane: str, reason: Reason) -> None: ...
    def stepped(self, language: str, outcome: Outcome) -> None: ...
