"""Attempts to get in, counted in memory: each address waits longer and longer for its own, nobody for another's."""

import threading
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.errors import RateLimited
from appliance.core.networks import network_of

FORGOTTEN_SECONDS = 3600.0
WINDOW_SECONDS = 60.0
DAY_SECONDS = 86_400.0
MANY = 100  # attempts on one app within a window, from all addresses: then each address has a single free one
MOST_KNOWN = 20_000

App = tuple[str, str]


@dataclass
class _Tries:
    count: int
    until: float
    last: float


class Attempts:
    """`free` attempts of one address on one app, then a wait of `first` seconds that doubles up to `longest`.

    An attempt counts when it begins, so that many at once are not free; one that succeeds is forgotten.
    """

    def __init__(self, free: int, first: float, longest: float) -> None:
        self._free, self._first, self._longest = free, first, longest
        self._tries: dict[tuple[App, str], _Tries] = {}
        self._windows: dict[App, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def begin(self, app: App, address: str) -> None:
        """Count an attempt; RateLimited, with Retry-After, while this address has to wait."""
        key, now = (app, network_of(address)), clock.monotonic()
        with self._lock:
            found = self._tries.get(key)
            if found is None or now - found.last > FORGOTTEN_SECONDS:
                found = _Tries(0, 0.0, now)
            if now < found.until:
                wait = max(1, round(found.until - now))
                message = f"too many attempts; try again in {_said(wait)}"
                raise RateLimited(message, headers={"Retry-After": str(wait)})
            free = 1 if self._count(app, now) > MANY else self._free
            found.count, found.last = found.count + 1, now
            if found.count >= free:
                found.until = now + min(self._first * 2.0 ** min(found.count - free, 30), self._longest)
            self._keep(key, found, now)

    def succeed(self, app: App, address: str) -> None:
        """The attempt that began was good."""
        with self._lock:
            self._tries.pop((app, network_of(address)), None)
            if app in self._windows:
                ends, count = self._windows[app]
                self._windows[app] = (ends, max(0, count - 1))

    def has_tried(self, app: App, address: str) -> bool:
        """Whether this address has attempts to its name that did not succeed."""
        with self._lock:
            return (app, network_of(address)) in self._tries

    def _count(self, app: App, now: float) -> int:
        ends, count = self._windows.get(app, (0.0, 0))
        if now >= ends:
            ends, count = now + WINDOW_SECONDS, 0
        self._windows[app] = (ends, count + 1)
        if len(self._windows) > MOST_KNOWN:
            self._windows = {key: window for key, window in self._windows.items() if window[0] > now}
        return count + 1

    def _keep(self, key: tuple[App, str], tries: _Tries, now: float) -> None:
        self._tries.pop(key, None)
        self._tries[key] = tries
        if len(self._tries) > MOST_KNOWN:
            recent = {each: known for each, known in self._tries.items() if now - known.last <= FORGOTTEN_SECONDS}
            while len(recent) > MOST_KNOWN * 3 // 4:
                del recent[next(iter(recent))]  # the one that tried longest ago
            self._tries = recent


class Budget:
    """`most` attempts a day that fail, from all addresses together: no number of networks guesses on.

    Only for what stands behind a link that cannot be guessed, for who knows that can use it up for everybody.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._days: dict[App, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def begin(self, app: App) -> None:
        """Count an attempt; RateLimited, with Retry-After, until the day is over when there were too many."""
        now = clock.monotonic()
        with self._lock:
            ends, count = self._days.get(app, (0.0, 0))
            if now >= ends:
                ends, count = now + DAY_SECONDS, 0
            if count >= self._most:
                wait = max(1, round(ends - now))
                raise RateLimited(f"too many attempts; try again in {_said(wait)}", headers={"Retry-After": str(wait)})
            self._days[app] = (ends, count + 1)
            if len(self._days) > MOST_KNOWN:
                self._days = {each: day for each, day in self._days.items() if day[0] > now}

    def succeed(self, app: App) -> None:
        """The attempt that began was good."""
        with self._lock:
            if app in self._days:
                ends, count = self._days[app]
                self._days[app] = (ends, max(0, count - 1))


def _said(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} minutes"
