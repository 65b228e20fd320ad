"""The result of a rehearsal."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RehearsalResult:
    """What was restored and checked, and how long it took: until it was unpacked, and until it answered."""

    made_at: str
    rows: int
    contents: int
    sampled: int
    trails: int
    restore_ms: int
    start_ms: int
