"""The time that a page of the Monitor looks at, as its address says it: the last hours, or from one time to another."""

from dataclasses import dataclass

from appliance.core import clock
from appliance.core.errors import InvalidRequest, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.core.texts import mark

from .routing import Visit

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
# By their names in the address: what they are called, and how far back they reach.
SPANS = {
    "15m": (mark("15 minutes"), 15 * MINUTE), "1h": (mark("hour"), HOUR), "24h": (mark("24 hours"), DAY),
    "7d": (mark("7 days"), 7 * DAY), "30d": (mark("30 days"), 30 * DAY),
}  # fmt: skip


@dataclass(frozen=True)
class Range:
    """What is shown: [since, until) in epoch ms; `span` is empty when somebody chose the times."""

    span: str
    since: int
    until: int


def range_of(visit: Visit, usual: str) -> Range:
    """The time that the address asks for; `usual` is that of an address which says nothing."""
    args, now = visit.asked.args, clock.now_ms()
    if args.get("since"):
        return Range("", _time(args["since"]), _time(args["until"]) if args.get("until") else now + 1)
    span = args.get("span") or usual
    if span not in SPANS:
        raise InvalidRequest("choose the time on the page")
    return Range(span, now - SPANS[span][1], now + 1)


def _time(text: str) -> int:
    """A time as a field for it sends one, in UTC."""
    try:
        return max(0, clock.parse_rfc3339(f"{text[:16]}:00Z"))
    except ValidationFailed as error:
        raise InvalidRequest(Sentence("%(text)s is not a time; write it like 2027-01-31T14:00", text=repr(text[:40]))) from error
