"""Quotas of WebApps: requests per minute, and bytes sent per day; 0 means no limit."""

import threading
from collections import Counter

from appliance.core.database.presence import ServerCount
from appliance.core.errors import RateLimited
from appliance.core.sentences import Sentence

from .daily_totals import DAY, Stored, traffic_of_day

MINUTE = 60_000


class Quotas:
    """Counts in memory, so that checks are cheap.

    Of the requests per minute, each of several processes that serve answers its share. Bytes per day are those of all processes
    as last stored, plus what this process has sent since.
    """

    def __init__(self, requests_per_minute: int, bytes_per_day: int, servers: ServerCount | None = None) -> None:
        self._servers = servers or ServerCount()
        self._per_minute = requests_per_minute
        self._per_day = bytes_per_day
        self._minute = 0
        self._counts: Counter[tuple[str, str]] = Counter()
        self._day = 0
        self._stored: dict[tuple[str, str], int] = {}
        self._sent: Counter[tuple[str, str]] = Counter()
        self._day_lock = threading.Lock()  # `_sent` is changed on the event loop and by the thread that stores requests

    def count(self, tenant: str, app: str, now: int) -> None:
        """Count a request at `now` (ms); RateLimited when the quota of the minute or the day is used up."""
        self._start_period(now)
        if self._per_minute:
            self._counts[tenant, app] += 1
            if self._counts[tenant, app] > self._servers.share(self._per_minute):
                raise _exceeded("requests a minute", self._per_minute, MINUTE - now % MINUTE)
        if self._per_day and self._stored.get((tenant, app), 0) + self._sent[tenant, app] >= self._per_day:
            raise _exceeded("MiB a day", self._per_day >> 20, DAY - now % DAY)

    def add_sent(self, tenant: str, app: str, size: int) -> None:
        """Count bytes that were sent."""
        if self._per_day and size:
            with self._day_lock:
                self._sent[tenant, app] += size

    def _start_period(self, now: int) -> None:
        if now // MINUTE != self._minute:
            self._minute = now // MINUTE
            self._counts.clear()
        if now // DAY != self._day:
            with self._day_lock:
                self._day = now // DAY
                self._stored, self._sent = {}, Counter()

    def update_stored(self, stored: Stored) -> None:
        """Update the stored bytes of today from all processes, after this process stored `stored`."""
        for (tenant, app, day), size in stored.items() if self._per_day else ():
            total = traffic_of_day(tenant, app, day).bytes
            with self._day_lock:
                if day == self._day * DAY:
                    self._sent[tenant, app] -= size
                    self._stored[tenant, app] = total
                    self._sent += Counter()  # drops zero counts, such as those of names that are no app


def _exceeded(unit: str, limit: int, wait_ms: int) -> RateLimited:
    seconds = str(-(-wait_ms // 1000))
    return RateLimited(
        Sentence("this app has reached its limit of %(most)s %(what)s; try again later", most=limit, what=unit),
        headers={"Retry-After": seconds},
    )
