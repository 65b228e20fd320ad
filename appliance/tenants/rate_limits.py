"""The rate limit of API keys: fixed windows in memory, where a request counts on the key and on every key it descends from."""

import threading
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.errors import RateLimited

from .keys import Caller, RateBound

MOST_WINDOWS = 10_000


@dataclass(frozen=True)
class RateState:
    """What the RateLimit headers say: the quota, what is left of it and seconds until it is whole again."""

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
    """Fixed windows per key, in memory: a restart forgives, which costs less than a write per request."""

    def __init__(self) -> None:
        self._windows: dict[str, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def count(self, caller: Caller) -> RateState:
        """Count one request on the key, then on each key above it; RateLimited with Retry-After at the first that is used up.

        The state is that of the key, or of the key above it that has the fewest requests left.
        """
        now = clock.monotonic()
        tightest: RateState | None = None
        with self._lock:
            for bound in (RateBound(caller.key_id, caller.rate_requests, caller.rate_window_s), *caller.above):
                state, is_over = self._count(bound, now)
                if is_over:
                    raise _refusal(state, is_own=bound.key_id == caller.key_id)
                if tightest is None or state.remaining < tightest.remaining:
                    tightest = state
        if tightest is None:
            raise RuntimeError("a caller without a key")
        return tightest

    def _count(self, bound: RateBound, now: float) -> tuple[RateState, bool]:
        ends, used = self._windows.get(bound.key_id, (0.0, 0))
        if now >= ends:
            ends, used = now + bound.window_s, 0
        used += 1
        self._windows[bound.key_id] = (ends, used)
        if len(self._windows) > MOST_WINDOWS:
            self._windows = {key: window for key, window in self._windows.items() if window[0] > now}
        reset = max(1, round(ends - now))
        return RateState(bound.requests, bound.window_s, max(0, bound.requests - used), reset), used > bound.requests


def _refusal(state: RateState, *, is_own: bool) -> RateLimited:
    whose = "this key" if is_own else "the key that issued this one, on which its requests count too,"
    return RateLimited(
        f"{whose} may make {state.quota} requests in {state.window_s} s; try again in {state.reset_s} s",
        headers={**state.headers(), "Retry-After": str(state.reset_s)},
    )
