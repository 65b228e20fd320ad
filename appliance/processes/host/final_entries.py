"""The final entry of an attempt in the journal: evaluation time, random seed and the clock values not recorded with a call."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from appliance.processes.engine.store import FINAL_LINE, JournalEntry
from appliance.sandbox import Outcome

END = "end"


@dataclass(frozen=True)
class FinalEntry:
    """The contents of a final entry; None for each value that kept its default.

    `now` is when the step's expressions were evaluated, if that differs from the step run's `started_at`; `clock` holds
    the clock values read after those recorded with calls.
    """

    seed: int | None = None
    now: int | None = None
    wall_ms: int | None = None
    clock: Sequence[int] = ()


def build_final_entry(result: Outcome, seed: int, wall_ms: int, position: int, unrecorded: list[int]) -> list[JournalEntry]:
    """The final entry of an attempt of a code step; none if it succeeded without calls, clock reads or random numbers.

    `unrecorded` are the clock values, in order, that no other entry has.
    """
    if result.failure is None and not (position or result.clock or result.random):
        return []
    # A seed has 256 bits, more than a JSON number can hold.
    answer = {"seed": str(seed), "random": result.random, "clock_reads": len(result.clock), "wall_ms": wall_ms}
    return [JournalEntry(call=FINAL_LINE, position=position, method=END, args=[], ok=True, answer=answer, clock=unrecorded)]


def with_evaluation_time(journal: list[JournalEntry], now: int) -> list[JournalEntry]:
    """The journal with `now` recorded as the time of evaluation, for an attempt that did not evaluate at its start."""
    lines = [line for line in journal if line.call != FINAL_LINE]
    final = next((line for line in journal if line.call == FINAL_LINE), JournalEntry(
        call=FINAL_LINE, position=0, method=END, args=[], ok=True, answer={}, clock=[],
    ))
    return [*lines, replace(final, answer={**final.answer, "now": now})]


def parse_final_entry(entry: JournalEntry | None) -> FinalEntry:
    """Parses a final entry; all defaults without one."""
    if entry is None:
        return FinalEntry()
    answer: dict[str, Any] = entry.answer
    seed = answer.get("seed")
    return FinalEntry(None if seed is None else int(seed), answer.get("now"), answer.get("wall_ms"), entry.clock)


def recorded_clock(recorded: Sequence[JournalEntry]) -> list[int]:
    """Every clock value the recorded run read before its last recorded call, in the order of the calls."""
    return [value for entry in sorted(recorded, key=lambda e: e.call) for value in entry.clock]
