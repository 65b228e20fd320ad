"""When a certificate is renewed, and when a failed order is tried again."""

import hashlib
from collections.abc import Sequence

HOUR, DAY = 3_600_000, 86_400_000
MOST_TRIES = 5  # orders begun for one host in a day, whatever happens
LONGEST_PAUSE = 7 * DAY
_PAUSES = (10 * 60_000, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR)


def renewal_time(host: str, not_before: int, not_after: int) -> int:
    """After two thirds of its life, for some hosts a little earlier, so that they do not all come at once."""
    life = not_after - not_before
    return not_before + life * 2 // 3 - int(_share(host) * life / 20)


def next_try(host: str, failures: int, tries: Sequence[int], now: int, retry_after: int = 0) -> int:
    """When an order that failed for the `failures`th time is begun anew: later each time, not before the authority wishes it
    (`retry_after` milliseconds), and at most MOST_TRIES times in any day (`tries` are the times of the last ones)."""
    pause = _PAUSES[min(max(failures, 1), len(_PAUSES)) - 1]
    at = now + max(pause + int(pause * _share(host) / 4), min(retry_after, LONGEST_PAUSE))
    return max(at, earliest_try(tries))


def earliest_try(tries: Sequence[int]) -> int:
    """The time from which on one more try stays within MOST_TRIES a day."""
    return sorted(tries)[-MOST_TRIES] + DAY if len(tries) >= MOST_TRIES else 0


def _share(host: str) -> float:
    """From 0 up to 1, always the same for a host."""
    return int.from_bytes(hashlib.sha256(host.encode()).digest()[:4], "big") / 2**32
