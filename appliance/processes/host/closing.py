"""The closing line of a step run's journal: the moment, the seed, and the clock values that no call's line has."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from appliance.processes.engine.store import CLOSING, JournalEntry
from appliance.sandbox import Outcome

END = "end"


@dataclass(frozen=True)
class Closing:
    """What the closing line says.  None: that attempt left it out, because the default is what happened.

    `now` is the moment at which the step's expressions were evaluated, where it is not the step run's `started_at`;
    `clock` are the values read after those that the calls' lines have.
    """

    seed: int | None = None
    now: int | None = None
    wall_ms: int | None = None
    clock: Sequence[int] = ()


def close_code(outcome: Outcome, seed: int, wall_ms: int, position: int, unrecorded: list[int]) -> list[JournalEntry]:
    """The closing line of an attempt of code; none for code that asked nothing of anybody and went well.

    `unrecorded` are the clock values, in order, that no line has.
    """
    if outcome.failure is None and not (position or outcome.clock or outcome.random):
        return []
    # A seed has 256 bits, more than a JSON number carries.
    answer = {"seed": str(seed), "random": outcome.random, "clock_reads": len(outcome.clock), "wall_ms": wall_ms}
    return [JournalEntry(CLOSING, position, END, [], True, answer, unrecorded)]


def with_moment(journal: list[JournalEntry], now: int) -> list[JournalEntry]:
    """The journal of an attempt whose expressions were evaluated at `now`, not when its step run began."""
    lines = [line for line in journal if line.call != CLOSING]
    closing = next((line for line in journal if line.call == CLOSING), JournalEntry(CLOSING, 0, END, [], True, {}, []))
    return [*lines, replace(closing, answer={**closing.answer, "now": now})]


def read_closing(entry: JournalEntry | None) -> Closing:
    """What a closing line says; without one everything was as it is without saying."""
    if entry is None:
        return Closing()
    said: dict[str, Any] = entry.answer
    seed = said.get("seed")
    return Closing(None if seed is None else int(seed), said.get("now"), said.get("wall_ms"), entry.clock)


def recorded_clock(recorded: Sequence[JournalEntry]) -> list[int]:
    """Every clock value the recorded run read before its last recorded call, in order."""
    return [value for entry in sorted(recorded, key=lambda e: e.call) for value in entry.clock]
