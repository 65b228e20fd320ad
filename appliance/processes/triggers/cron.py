"""Due times of schedules: five-field cron expressions in a time zone, by the rules of Debian's cron.

A time of day skipped by a daylight saving change is due right after the gap, one that occurs twice is due the first time;
expressions whose minute or hour starts with a star follow elapsed time.  Zones come from the `tzdata` package, so that due
times do not depend on the machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from appliance.core import clock

FIELDS = 5
MAX_TEXT = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = 60_000
# Searched backwards in growing windows: frequent due times are found in the first one.
_SEARCH_WINDOWS = [_MINUTE * minutes for minutes in (60, 600, 7_200, 86_400, 1_051_200)]


class CronInvalid(ValueError):
    """The expression or the time zone is invalid; the message says which part."""


@cache
def zone_names() -> frozenset[str]:
    """Every zone name of the bundled IANA database."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("utf8").split())


@cache
def time_zone(name: str) -> ZoneInfo:
    """The time zone with this IANA name; raises CronInvalid."""
    if name not in zone_names():
        raise CronInvalid(f"{name[:60]!r} is not a time zone; write it like Europe/Berlin or UTC")
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


@dataclass(frozen=True)
class Cron:
    """A schedule; all times are milliseconds since the epoch."""

    expression: str
    timezone: str = "UTC"

    def check(self) -> None:
        """Raises CronInvalid when the expression or zone is invalid, or the schedule is never due."""
        zone = time_zone(self.timezone)
        if len(self.expression) > MAX_TEXT or len(self.expression.split()) != FIELDS:
            raise CronInvalid("a cron expression has five fields: minute, hour, day of month, month, day of week")
        try:
            times = CronSim(self.expression, _at(clock.now_ms(), zone))
        except CronSimError as error:
            raise CronInvalid(f"{self.expression!r} is not a cron expression: {str(error).lower()}") from error
        if next(times, None) is None:
            raise CronInvalid(f"{self.expression!r} has no due time in the next fifty years")

    def due_after(self, moment: int) -> Iterator[int]:
        """Every due time after `moment`, in order and each once."""
        last = moment
        for moment_due in CronSim(self.expression, _at(moment, time_zone(self.timezone))):
            due = (moment_due.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
            if due > last:  # after a gap two times coincide, and in a repeated hour a time may be in the past
                last = due
                yield due

    def next_after(self, moment: int) -> int | None:
        """The first due time after `moment`."""
        return next(self.due_after(moment), None)

    def latest(self, after: int, until: int, most: int) -> list[int]:
        """The last `most` due times after `after` and up to `until`, in order."""
        times: list[int] = []
        for window in _SEARCH_WINDOWS:
            begin = max(after, until - window)
            times = []
            for due in self.due_after(begin):
                if due > until:
                    break
                times.append(due)
            if len(times) >= most or begin == after:
                break
        return times[-most:]


def _at(moment: int, zone: ZoneInfo) -> datetime:
    return (_EPOCH + timedelta(milliseconds=moment)).astimezone(zone)
