"""The time range of a Monitor page, from its URL: a period up to now (`span`), or `since` and `until`."""

from dataclasses import dataclass

from appliance.core import clock
from appliance.core.errors import InvalidRequest, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.core.texts import mark

from .routing import Visit

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
# By their names in the URL: the label, and the length in milliseconds.
SPANS = {
    "15m": (mark("15 minutes"), 15 * MINUTE), "1h": (mark("hour"), HOUR), "24h": (mark("24 hours"), DAY),
    "7d": (mark("7 days"), 7 * DAY), "30d": (mark("30 days"), 30 * DAY),
}  # fmt: skip


@dataclass(frozen=True)
class TimeRange:
    """A range [since, until) in epoch ms; `span` is empty when the times were chosen individually."""

    span: str
    since: int
    until: int

    @property
    def query(self) -> str:
        """The range as a URL's query; individual times to the minute."""
        if self.span:
            return f"span={self.span}"
        return f"since={clock.rfc3339(self.since)[:16]}&until={clock.rfc3339(self.until)[:16]}"


def parse_time_range(visit: Visit, usual: str) -> TimeRange:
    """The time range that the URL requests; `usual` is the default span."""
    args, now = visit.request.args, clock.now_ms()
    if args.get("since"):
        return TimeRange("", _time(args["since"]), _time(args["until"]) if args.get("until") else now + 1)
    span = args.get("span") or usual
    if span not in SPANS:
        raise InvalidRequest(Sentence(
            "%(span)s is not a valid time range; use one of %(spans)s", span=repr(span[:40]), spans=", ".join(SPANS)
        ))
    return TimeRange(span, now - SPANS[span][1], now + 1)


def _time(text: str) -> int:
    """Parse the value of a datetime field (`2027-01-31T14:00`) as UTC."""
    try:
        return max(0, clock.parse_rfc3339(f"{text[:16]}:00Z"))
    except ValidationFailed as error:
        raise InvalidRequest(Sentence(
            "%(text)s is not a valid time; use the format 2027-01-31T14:00", text=repr(text[:40])
        )) from error
