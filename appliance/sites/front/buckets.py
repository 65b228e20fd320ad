"""Rate limits of visitors: in-memory token buckets for a bounded number of callers; a restart resets them.

Of several processes that serve requests, each grants its share.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.database.presence import ServerCount
from appliance.core.errors import RateLimited
from appliance.core.sentences import Sentence
from appliance.tenants import RateState

MOST_BUCKETS = 50_000
Key = tuple[str, ...]


@dataclass(frozen=True)
class BucketLimit:
    """The number of requests in a burst; the bucket refills evenly over the window."""

    requests: int
    window_s: int


class Buckets:
    """Used on the event loop only. The callers inactive for the longest are dropped first."""

    def __init__(self, servers: ServerCount | None = None, max_buckets: int = MOST_BUCKETS) -> None:
        self._servers = servers or ServerCount()
        self._most = max_buckets
        self._tokens: OrderedDict[Key, tuple[float, float]] = OrderedDict()

    def take(self, key: Key, allowance: BucketLimit) -> RateState:
        """Count one request; RateLimited with Retry-After when the bucket is empty."""
        now, share = clock.monotonic(), self._servers.share(allowance.requests)
        rate = share / allowance.window_s
        tokens, updated_at = self._tokens.pop(key, (float(share), now))
        tokens = min(float(share), tokens + (now - updated_at) * rate)
        is_granted = tokens >= 1
        tokens -= 1 if is_granted else 0
        self._tokens[key] = (tokens, now)
        while len(self._tokens) > self._most:
            self._tokens.popitem(last=False)
        refill_s = max(1, math.ceil((share - tokens) / rate))
        state = RateState(allowance.requests, allowance.window_s, int(tokens), refill_s)
        if not is_granted:
            wait = max(1, math.ceil((1 - tokens) / rate))
            headers = {**state.headers(), "Retry-After": str(wait)}
            raise RateLimited(Sentence("too many requests; try again in %(wait)s s", wait=wait), headers=headers)
        return state
