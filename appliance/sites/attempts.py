"""How often a password may be tried: few times a minute from one network, many in an hour from all of them together."""

import threading

from appliance.core import clock

FROM_ONE, ONE_SECONDS = 5, 60.0
FROM_ALL, ALL_SECONDS = 300, 3600.0
MOST_KEPT = 20_000


class Attempts:
    """Fixed windows, in memory: a restart forgives.  Counting comes before trying, so that parallel tries count too."""

    def __init__(self) -> None:
        self._windows: dict[str, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def count(self, subject: str, network: str) -> int:
        """Count a try; 0, or for how many seconds no further one is taken.  What one network tries too often is not counted
        against the others."""
        now = clock.monotonic()
        with self._lock:
            wait = self._take(f"{subject} {network}", FROM_ONE, now + ONE_SECONDS)
            return wait or self._take(subject, FROM_ALL, now + ALL_SECONDS)

    def _take(self, key: str, most: int, fresh_end: float) -> int:
        now = clock.monotonic()
        ends, used = self._windows.get(key, (fresh_end, 0))
        if now >= ends:
            ends, used = fresh_end, 0
        if used >= most:
            return max(1, round(ends - now))
        self._windows[key] = (ends, used + 1)
        if len(self._windows) > MOST_KEPT:
            self._windows = {each: window for each, window in self._windows.items() if window[0] > now}
        return 0
