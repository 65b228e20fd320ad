"""Counts sign-in attempts in memory: each address has its own growing delay, independent of other addresses."""

import threading
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.errors import RateLimited
from appliance.core.networks import network_of
from appliance.core.sentences import Sentence

FORGET_SECONDS = 3600.0
WINDOW_SECONDS = 60.0
DAY_SECONDS = 86_400.0
BUSY_ATTEMPTS = 100  # attempts on one app within a window, from all addresses; beyond it, each address has one free attempt
MAX_TRACKED = 20_000

App = tuple[str, str]


@dataclass
class _Tries:
    count: int
    until: float
    last: float


class Attempts:
    """`free` attempts per address and app, then a delay of `first` seconds that doubles up to `longest`.

    An attempt counts when it begins, so that concurrent ones are not free; a successful one is forgotten.
    """

    def __init__(self, free: int, first: float, longest: float) -> None:
        self._free, self._first, self._longest = free, first, longest
        self._tries: dict[tuple[App, str], _Tries] = {}
        self._windows: dict[App, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def begin(self, app: App, address: str) -> None:
        """Count an attempt; RateLimited, with Retry-After, while this address must wait."""
        key, now = (app, network_of(address)), clock.monotonic()
        with self._lock:
            tries = self._tries.get(key)
            if tries is None or now - tries.last > FORGET_SECONDS:
                tries = _Tries(0, 0.0, now)
            if now < tries.until:
                wait = max(1, round(tries.until - now))
                message = Sentence("too many attempts; try again in %(wait)s", wait=_format_wait(wait))
                raise RateLimited(message, headers={"Retry-After": str(wait)})
            free = 1 if self._count(app, now) > BUSY_ATTEMPTS else self._free
            tries.count, tries.last = tries.count + 1, now
            if tries.count >= free:
                tries.until = now + min(self._first * 2.0 ** min(tries.count - free, 30), self._longest)
            self._store(key, tries, now)

    def succeed(self, app: App, address: str) -> None:
        """Forget a counted attempt that succeeded."""
        with self._lock:
            self._tries.pop((app, network_of(address)), None)
            if app in self._windows:
                ends, count = self._windows[app]
                self._windows[app] = (ends, max(0, count - 1))

    def has_tried(self, app: App, address: str) -> bool:
        """Whether this address has failed attempts."""
        with self._lock:
            return (app, network_of(address)) in self._tries

    def _count(self, app: App, now: float) -> int:
        ends, count = self._windows.get(app, (0.0, 0))
        if now >= ends:
            ends, count = now + WINDOW_SECONDS, 0
        self._windows[app] = (ends, count + 1)
        if len(self._windows) > MAX_TRACKED:
            self._windows = {key: window for key, window in self._windows.items() if window[0] > now}
        return count + 1

    def _store(self, key: tuple[App, str], tries: _Tries, now: float) -> None:
        self._tries.pop(key, None)
        self._tries[key] = tries
        if len(self._tries) > MAX_TRACKED:
            recent = {each: known for each, known in self._tries.items() if now - known.last <= FORGET_SECONDS}
            while len(recent) > MAX_TRACKED * 3 // 4:
                del recent[next(iter(recent))]  # the least recent one
            self._tries = recent


class DailyLimit:
    """`free` failures a day per key, then one attempt per `seconds`: guessing from many networks is slow, and no user is locked
    out until tomorrow."""

    def __init__(self, free: int, seconds: float) -> None:
        self._free, self._seconds = free, seconds
        self._days: dict[tuple[str, ...], _Day] = {}
        self._lock = threading.Lock()

    def begin(self, key: tuple[str, ...]) -> None:
        """RateLimited, with Retry-After, while the key must wait; an attempt admitted now delays the next one."""
        now = clock.monotonic()
        with self._lock:
            day = self._day(key, now)
            if day is None or day.failed < self._free:
                return
            if now < day.next_at:
                wait = max(1, round(day.next_at - now))
                raise RateLimited(
                    Sentence("too many attempts; try again in %(wait)s", wait=_format_wait(wait)),
                    headers={"Retry-After": str(wait)},
                )
            day.next_at = now + self._seconds

    def fail(self, key: tuple[str, ...]) -> None:
        """Count a failed attempt."""
        now = clock.monotonic()
        with self._lock:
            day = self._day(key, now) or _Day(now + DAY_SECONDS)
            self._days[key] = day
            day.failed += 1
            if day.failed == self._free:
                day.next_at = now + self._seconds
            if len(self._days) > MAX_TRACKED:
                self._days = {each: known for each, known in self._days.items() if known.ends > now}
                while len(self._days) > MAX_TRACKED:
                    del self._days[next(iter(self._days))]

    def has_failed(self, key: tuple[str, ...]) -> bool:
        """Whether an attempt of the key has failed within its current day."""
        with self._lock:
            return self._day(key, clock.monotonic()) is not None

    def _day(self, key: tuple[str, ...], now: float) -> "_Day | None":
        day = self._days.get(key)
        return day if day is not None and now < day.ends else None


@dataclass
class _Day:
    ends: float
    failed: int = 0
    next_at: float = 0.0


def _format_wait(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} minutes"
