"""The findings about this installation, made for callers at most once a minute."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from appliance.core import clock

FRESH_MS = 60_000
Level = Literal["ok", "note", "fail"]


@dataclass(frozen=True)
class Finding:
    """What a check says: `ok`, a `note`, or a `fail` that needs somebody."""

    check: str
    level: Level
    text: str


@dataclass(frozen=True)
class HealthReport:
    """Findings and when they were made, in epoch milliseconds."""

    checked_at: int
    findings: tuple[Finding, ...]


class Health:
    """Runs the checks; callers that come meanwhile wait for the same report."""

    def __init__(self, run_checks: Callable[[], Iterable[Finding]]) -> None:
        self._run_checks = run_checks
        self._lock = threading.Lock()
        self._latest: HealthReport | None = None

    def check(self) -> HealthReport:
        """The findings, at most a minute old."""
        with self._lock:
            now, latest = clock.now_ms(), self._latest
            if latest is None or not 0 <= now - latest.checked_at < FRESH_MS:
                latest = self._latest = HealthReport(now, tuple(self._run_checks()))
            return latest
