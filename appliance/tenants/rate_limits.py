"""Rate limits of API keys: fixed windows in memory; a request counts on the key and on every key it descends from.

Of several processes that serve requests, each grants its share, so that none has to ask the others for each request.
"""

import threading
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.database.presence import ServerCount
from appliance.core.errors import RateLimited
from appliance.core.sentences import Sentence
from appliance.quotas import find_limit

from .keys.daily_quotas import ALL_KEYS, TENANT_QUOTA, DailyQuota, DailyQuotas
from .keys.keys import Caller
from .keys.lineage import RateLimit

MAX_WINDOWS = 10_000


@dataclass(frozen=True)
class RateState:
    """The values of the RateLimit headers: the quota, the remaining requests, and seconds until the window resets."""

    quota: int
    window_s: int
    remaining: int
    reset_s: int

    def headers(self) -> dict[str, str]:
        """RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11."""
        return {
            "RateLimit-Policy": f'"default";q={self.quota};w={self.window_s}',
            "RateLimit": f'"default";r={self.remaining};t={self.reset_s}',
        }


class RateLimiter:
    """Fixed windows per key, in memory: a restart resets them, which costs less than a write per request."""

    def __init__(self, servers: ServerCount | None = None) -> None:
        self._servers = servers or ServerCount()
        self._windows: dict[str, tuple[float, int]] = {}
        self._spent: dict[bytes, float] = {}  # digest of a refused key: when its window ends
        self._spent_until = 0.0
        self._lock = threading.Lock()
        self.quotas = DailyQuotas()

    def count(self, caller: Caller) -> RateState:
        """Count one request on the key and each key above it; RateLimited with Retry-After at the first limit exceeded.

        Returns the state of whichever of these keys has the fewest requests left.  May read the database for a daily quota.
        """
        with self._lock:
            state = self._count_all(caller, clock.monotonic())
        tenant_id = caller.scope.tenant_id
        of_tenant = find_limit(tenant_id, TENANT_QUOTA)
        if of_tenant is not None:
            self.quotas.count(tenant_id, caller.key_id, (*caller.quotas, DailyQuota(ALL_KEYS, ALL_KEYS, of_tenant)))
        elif caller.quotas:
            self.quotas.count(tenant_id, caller.key_id, caller.quotas)
        return state

    def count_requests(self, counted: RateLimit) -> None:
        """Count one request on something other than a key, such as the provider that sends it; RateLimited with Retry-After."""
        with self._lock:
            state, is_over = self._count(counted, clock.monotonic())
        if is_over:
            raise RateLimited(
                Sentence(
                    "%(quota)s requests in %(window_s)s s are allowed here; try again in %(reset_s)s s",
                    quota=state.quota, window_s=state.window_s, reset_s=state.reset_s,
                ),
                headers={**state.headers(), "Retry-After": str(state.reset_s)},
            )

    def has_exhausted(self) -> bool:
        """Whether any window that refused a key is still open, so that `is_exhausted` is worth calling."""
        return clock.monotonic() < self._spent_until

    def is_exhausted(self, digest: bytes) -> bool:
        """Whether the key of this digest was refused in a window that is still open; does not count."""
        ends = self._spent.get(digest)
        if ends is None or clock.monotonic() < ends:
            return ends is not None
        self._spent.pop(digest, None)
        return False

    def refuse_exhausted(self, caller: Caller) -> None:
        """Raise RateLimited, counting the request, where `count` would; otherwise do not count."""
        now = clock.monotonic()
        with self._lock:
            if any(self._is_used_up(bound, now) for bound in _rate_limits(caller)):
                self._count_all(caller, now)

    def _is_used_up(self, bound: RateLimit, now: float) -> bool:
        ends, used = self._windows.get(bound.key_id, (0.0, 0))
        return now < ends and used >= self._servers.share(bound.requests)

    def _count_all(self, caller: Caller, now: float) -> RateState:
        tightest: RateState | None = None
        for bound in _rate_limits(caller):
            state, is_over = self._count(bound, now)
            if is_over:
                self._record_exhausted(caller.digest, self._windows[bound.key_id][0])
                raise _refusal(state, self._servers.count, is_own=bound.key_id == caller.key_id)
            if tightest is None or state.remaining < tightest.remaining:
                tightest = state
        if tightest is None:
            raise RuntimeError("a caller without a key")
        return tightest

    def _record_exhausted(self, digest: bytes, until: float) -> None:
        self._spent[digest] = until
        self._spent_until = max(self._spent_until, until)

    def _count(self, bound: RateLimit, now: float) -> tuple[RateState, bool]:
        ends, used = self._windows.get(bound.key_id, (0.0, 0))
        if now >= ends:
            ends, used = now + bound.window_s, 0
        used += 1
        self._windows[bound.key_id] = (ends, used)
        if len(self._windows) > MAX_WINDOWS:
            self._windows = {key: window for key, window in self._windows.items() if window[0] > now}
            self._spent = {digest: until for digest, until in self._spent.items() if until > now}
        reset, share = max(1, round(ends - now)), self._servers.share(bound.requests)
        return RateState(bound.requests, bound.window_s, max(0, share - used), reset), used > share


def _rate_limits(caller: Caller) -> tuple[RateLimit, ...]:
    """The rate limits of the key and of every key above it."""
    return (RateLimit(caller.key_id, caller.rate_requests, caller.rate_window_s), *caller.above)


def _refusal(state: RateState, servers: int, *, is_own: bool) -> RateLimited:
    whose = "this key" if is_own else "the key that issued this one (its requests count as well)"
    quota, window_s, reset_s = state.quota, state.window_s, state.reset_s
    sentence = Sentence(
        "%(whose)s can make %(quota)s requests in %(window_s)s s; try again in %(reset_s)s s",
        whose=whose, quota=quota, window_s=window_s, reset_s=reset_s,
    )  # fmt: skip
    if servers > 1:
        sentence = Sentence(
            "%(whose)s can make %(quota)s requests in %(window_s)s s, an equal share on each of %(servers)s servers; "
            "try again in %(reset_s)s s",
            whose=whose, quota=quota, window_s=window_s, servers=servers, reset_s=reset_s,
        )  # fmt: skip
    return RateLimited(sentence, headers={**state.headers(), "Retry-After": str(state.reset_s)})
