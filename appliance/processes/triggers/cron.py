"""When a schedule is due: five-field cron expressions in a time zone, by the rules of Debian's cron.

A time of day that a change of the clocks leaves out is due right after the gap, one that comes twice is due the first time;
expressions whose minute or hour begins with a star go by the time that passes.  Zones are those of the `tzdata` package, so
that a due time does not depend on the machine.
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
# Looked at backwards, each about ten times the one before: what is due often is found in the nearest.
_WINDOWS = [_MINUTE * minutes for minutes in (60, 600, 7_200, 86_400, 1_051_200)]


class CronInvalid(ValueError):
    """The expression or the zone is none; the message says which part."""


@cache
def zone_names() -> frozenset[str]:
    """Every name of the IANA database that ships with the appliance."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("utf8").split())


@cache
def time_zone(name: str) -> ZoneInfo:
    """The zone by its IANA name; CronInvalid."""
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
        """CronInvalid unless it is due some day."""
        zone = time_zone(self.timezone)
        if len(self.expression) > MAX_TEXT or len(self.expression.split()) != FIELDS:
            raise CronInvalid("a cron expression has five fields: minute, hour, day of month, month, day of week")
        try:
            found = CronSim(self.expression, _at(clock.now_ms(), zone))
        except CronSimError as error:
            raise CronInvalid(f"{self.expression!r} is not a cron expression: {str(error).lower()}") from error
        if next(found, None) is None:
            raise CronInvalid(f"{self.expression!r} is due on no day of the next fifty years")

    def due_after(self, moment: int) -> Iterator[int]:
        """Every due time after `moment`, in order and each once."""
        last = moment
        for found in CronSim(self.expression, _at(moment, time_zone(self.timezone))):
            due = (found.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
            if due > last:  # two times of day meet after a gap, and the first of a repeated hour may lie behind
                last = due
                yield due

    def next_after(self, moment: int) -> int | None:
        """The first due time after `moment`."""
        return next(self.due_after(moment), None)

    def latest(self, after: int, until: int, most: int) -> list[int]:
        """The last `most` due times after `after` and up to `until`, in order."""
        found: list[int] = []
        for window in _WINDOWS:
            begin = max(after, until - window)
            found = []
            for due in self.due_after(begin):
                if due > until:
                    break
                found.append(due)
            if len(found) >= most or begin == after:
                break
        return found[-most:]


def _at(moment: int, zone: ZoneInfo) -> datetime:
    return (_EPOCH + timedelta(milliseconds=moment)).astimezone(zone)
