"""When a certificate is renewed, and when a failed order is retried."""

import hashlib
from collections.abc import Sequence

HOUR, DAY = 3_600_000, 86_400_000
MOST_TRIES = 5  # orders started for one host within a day
LONGEST_PAUSE = 7 * DAY
_PAUSES = (10 * 60_000, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR)


def renewal_time(host: str, not_before: int, not_after: int) -> int:
    """When to renew: after two thirds of the lifetime, up to a twentieth earlier depending on the host, to spread the load."""
    life = not_after - not_before
    return not_before + life * 2 // 3 - int(_host_fraction(host) * life / 20)


def next_attempt_time(host: str, failures: int, attempts: Sequence[int], now: int, retry_after: int = 0) -> int:
    """When to retry an order after its `failures`-th failure: with growing pauses, not before `retry_after` (milliseconds), and
    at most MOST_TRIES times within a day (`attempts` are the times of the last ones)."""
    pause = _PAUSES[min(max(failures, 1), len(_PAUSES)) - 1]
    at = now + max(pause + int(pause * _host_fraction(host) / 4), min(retry_after, LONGEST_PAUSE))
    return max(at, earliest_attempt_time(attempts))


def earliest_attempt_time(attempts: Sequence[int]) -> int:
    """The earliest time at which one more attempt stays within MOST_TRIES a day."""
    return sorted(attempts)[-MOST_TRIES] + DAY if len(attempts) >= MOST_TRIES else 0


def _host_fraction(host: str) -> float:
    """A number from 0 up to 1 that is constant for a host."""
    return int.from_bytes(hashlib.sha256(host.encode()).digest()[:4], "big") / 2**32
