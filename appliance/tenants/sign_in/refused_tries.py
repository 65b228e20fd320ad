"""Which of many refused tries are worth an entry in an audit trail: the first, the tenth, the hundredth … of a day.

So whoever tries again and again cannot fill a trail, and the last entry says how often it was, to a power of ten.
"""

from .attempts import DAY_SECONDS
from .counts import Count, Counts, Key


class RefusedTries:
    """Counts refused tries by key."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def count(self, key: Key) -> int:
        """Count a try; returns its number within the day if it is a power of ten, otherwise 0."""
        numbers: list[int] = []
        self._counts.change((key,), lambda counts, now: numbers.append(_add(counts[0], now)))
        return numbers[-1] if str(numbers[-1]).strip("0") == "1" else 0


def _add(count: Count, now: float) -> int:
    count.used += 1
    count.ends = count.ends or now + DAY_SECONDS
    return count.used
