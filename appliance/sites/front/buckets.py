"""Rate limits of visitors: token buckets in memory, for a bounded number of callers; a restart forgives."""

import math
from collections import OrderedDict
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.errors import RateLimited
from appliance.core.sentences import Sentence
from appliance.tenants import RateState

MOST_BUCKETS = 50_000
Key = tuple[str, ...]


@dataclass(frozen=True)
class Allowance:
    """So many requests at once, which come back evenly over the window."""

    requests: int
    window_s: int


class Buckets:
    """Used on the event loop only.  Who has not called for longest is forgotten first."""

    def __init__(self, most: int = MOST_BUCKETS) -> None:
        self._most = most
        self._left: OrderedDict[Key, tuple[float, float]] = OrderedDict()

    def take(self, key: Key, allowance: Allowance) -> RateState:
        """Count one request; RateLimited with Retry-After when there is none left."""
        now, rate = clock.monotonic(), allowance.requests / allowance.window_s
        left, seen = self._left.pop(key, (float(allowance.requests), now))
        left = min(float(allowance.requests), left + (now - seen) * rate)
        granted = left >= 1
        left -= 1 if granted else 0
        self._left[key] = (left, now)
        while len(self._left) > self._most:
            self._left.popitem(last=False)
        state = RateState(allowance.requests, allowance.window_s, int(left), max(1, math.ceil((allowance.requests - left) / rate)))
        if not granted:
            wait = max(1, math.ceil((1 - left) / rate))
            told = {**state.headers(), "Retry-After": str(wait)}
            raise RateLimited(Sentence("that was too often; try again in %(wait)s s", wait=wait), headers=told)
        return state
