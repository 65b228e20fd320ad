"""Whether the wall clock was set: what is due at a time of it comes sooner or later then."""

import logging

from appliance.core import clock

log = logging.getLogger(__name__)
JUMP_MS = 5_000
"""By less the clock is set all the time, as time servers do it."""


class ClockWatch:
    """Compares the wall clock with the time since the machine began, as often as `look` is called."""

    def __init__(self) -> None:
        self._apart = clock.now_ms() - clock.since_boot_ms()

    def look(self) -> int:
        """Milliseconds by which the clock has jumped since the last look, ahead or (negative) back; 0 for less than 5 s."""
        apart = clock.now_ms() - clock.since_boot_ms()
        by, self._apart = apart - self._apart, apart
        if abs(by) < JUMP_MS:
            return 0
        what = ("ahead", "sooner") if by > 0 else ("back", "later")
        log.warning("the clock was set %s by %d s: what waits for its time comes so much %s", what[0], abs(by) // 1000, what[1])
        return by
