"""Limits sign-in attempts: each address has its own growing delay, independent of other addresses."""

from appliance.core.errors import RateLimited
from appliance.core.networks import network_of
from appliance.core.sentences import Sentence

from .counts import Count, Counts, MemoryCounts

FORGET_SECONDS = 3600.0
WINDOW_SECONDS = 60.0
DAY_SECONDS = 86_400.0
BUSY_ATTEMPTS = 100  # attempts on one app within a window, from all addresses; beyond it, each address has one free attempt

App = tuple[str, str]


class Attempts:
    """`free` attempts per address and app, then a delay of `first` seconds that doubles up to `longest`.

    An attempt counts when it begins, so that concurrent ones are not free; a successful one is forgotten.
    """

    def __init__(self, free: int, first: float, longest: float, counts: Counts | None = None) -> None:
        self._free, self._first, self._longest = free, first, longest
        self._counts = counts or MemoryCounts()

    def begin(self, app: App, address: str) -> None:
        """Count an attempt; RateLimited, with Retry-After, while this address must wait."""
        key = (*app, network_of(address))
        if (tries := self._counts.read(key)) is not None:
            _check(tries, self._counts.now())  # here already, as it takes no write
        self._counts.change((key, app), self._begin)

    def _begin(self, counts: list[Count], now: float) -> None:
        tries, window = counts
        _check(tries, now)
        window.used += 1
        window.ends = window.ends or now + WINDOW_SECONDS
        tries.used += 1
        tries.ends = now + FORGET_SECONDS
        free = 1 if window.used > BUSY_ATTEMPTS else self._free
        if tries.used >= free:
            tries.until = now + min(self._first * 2.0 ** min(tries.used - free, 30), self._longest)

    def succeed(self, app: App, address: str) -> None:
        """Forget a counted attempt that succeeded."""
        if self.has_tried(app, address):
            self._counts.change(((*app, network_of(address)), app), _forget)

    def has_tried(self, app: App, address: str) -> bool:
        """Whether this address has failed attempts."""
        return self._counts.read((*app, network_of(address))) is not None


def _forget(counts: list[Count], _now: float) -> None:
    tries, window = counts
    tries.used, tries.until, tries.ends = 0, 0.0, 0.0
    window.used = max(0, window.used - 1)


class DailyLimit:
    """`free` failures a day per key, then one attempt per `seconds`: guessing from many networks is slow, and no user is locked
    out until tomorrow."""

    def __init__(self, free: int, seconds: float, counts: Counts | None = None) -> None:
        self._free, self._seconds = free, seconds
        self._counts = counts or MemoryCounts()

    def begin(self, key: tuple[str, ...]) -> None:
        """RateLimited, with Retry-After, while the key must wait; an attempt admitted now delays the next one."""
        day = self._counts.read(key)
        if day is not None and day.used >= self._free:
            _check(day, self._counts.now())
            self._counts.change((key,), self._begin)

    def _begin(self, counts: list[Count], now: float) -> None:
        (day,) = counts
        _check(day, now)
        day.until = now + self._seconds

    def fail(self, key: tuple[str, ...]) -> None:
        """Count a failed attempt."""
        self._counts.change((key,), self._fail)

    def _fail(self, counts: list[Count], now: float) -> None:
        (day,) = counts
        day.used += 1
        day.ends = day.ends or now + DAY_SECONDS
        if day.used == self._free:
            day.until = now + self._seconds

    def has_failed(self, key: tuple[str, ...]) -> bool:
        """Whether an attempt of the key has failed within its current day."""
        return self._counts.read(key) is not None


def _check(count: Count, now: float) -> None:
    """RateLimited, with Retry-After, while no attempt is admitted."""
    if now < count.until:
        wait = max(1, round(count.until - now))
        message = Sentence("too many attempts; try again in %(wait)s", wait=_format_wait(wait))
        raise RateLimited(message, headers={"Retry-After": str(wait)})


def _format_wait(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} minutes"
