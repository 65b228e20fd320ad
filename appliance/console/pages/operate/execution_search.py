"""The search of the list of executions, parsed from the URL, so that a search can be bookmarked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import get_args
from urllib.parse import urlencode

from appliance.core import clock
from appliance.core.errors import ApplianceError, Detail, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.core.texts import mark
from appliance.processes.executions import ExecutionFilter, StartedBy

STATES = ("running", "queued", "waiting", "scheduled", "succeeded", "failed", "cancelled", "timed_out", "expired")
HOUR, DAY = 3_600_000, 86_400_000
SPANS: Mapping[str, tuple[str, int]] = {
    "1h": (mark("The last hour"), HOUR), "24h": (mark("The last 24 hours"), DAY), "7d": (mark("The last 7 days"), 7 * DAY),
    "30d": (mark("The last 30 days"), 30 * DAY),
}  # fmt: skip
DURATIONS: Mapping[str, str] = {
    "1s": mark("1 second"), "10s": mark("10 seconds"), "1m": mark("1 minute"), "10m": mark("10 minutes"), "1h": mark("1 hour"),
}  # fmt: skip
BYS: Mapping[StartedBy, str] = {
    "user": mark("a person"), "key": mark("an API key"), "trigger": mark("a trigger"), "webapp": mark("a visitor of a WebApp"),
    "run": mark("an agent"), "execution": mark("another execution"),
}  # fmt: skip
_TEXTS = ("text", "state", "process", "version", "label", "step", "took", "by", "span", "since", "until")
_RARE = ("version", "label", "step", "took", "by", "since", "until")
_LONGEST = 200


@dataclass(frozen=True)
class Search:
    """The search parameters by their names in the URL, and the filter they represent."""

    args: Mapping[str, str]
    filters: ExecutionFilter

    @property
    def params(self) -> dict[str, str]:
        """The parameters that are not empty."""
        return {name: value for name, value in self.args.items() if value}

    @property
    def is_narrowed(self) -> bool:
        return bool(self.params)

    @property
    def is_rare(self) -> bool:
        """Whether a filter under "More" is used."""
        return any(self.args[name] for name in _RARE)

    def address(self, **changes: str) -> str:
        """The URL of this search with changes."""
        params = {name: value for name, value in {**self.args, **changes}.items() if value}
        return f"/console/executions?{urlencode(params)}" if params else "/console/executions"


def parse_search(params: Mapping[str, str]) -> tuple[Search, ApplianceError | None]:
    """The search and its error, if any; invalid parameters are ignored by the filter."""
    args = {name: params.get(name, "").strip()[:_LONGEST] for name in _TEXTS}
    details: list[Detail] = []
    values = dict(_values(args, details))
    since, until = values.get("since"), values.get("until")
    if args["span"] in SPANS and since is None:
        since = clock.now_ms() - SPANS[args["span"]][1]
    filters = ExecutionFilter(
        args["process"] or None, args["state"] if args["state"] in STATES else None, args["label"] or None, None, since, until,
        version=values.get("version"), text=args["text"] or None, step=args["step"] or None, took_ms=values.get("took"),
        by=next((each for each in get_args(StartedBy) if each == args["by"]), None),
    )  # fmt: skip
    problem = ValidationFailed(details[0].message, details=details) if details else None
    return Search(args, filters), problem


def _values(args: Mapping[str, str], details: list[Detail]) -> Iterator[tuple[str, int]]:
    """The parameters that are numbers or times, parsed; errors are appended to `details`."""
    choices = {"state": STATES, "span": SPANS, "by": BYS}
    for name, choices_of_name in choices.items():
        if args[name] and args[name] not in choices_of_name:
            details.append(
                Detail(
                    f"/{name}",
                    "invalid",
                    Sentence(
                        "%(args)s is not a valid value of %(name)s; choose one from the list", args=repr(args[name][:40]), name=name
                    ),
                )
            )
    for name, read in (("version", _version), ("took", clock.parse_duration), ("since", _time), ("until", _time)):
        if args[name]:
            try:
                yield name, read(args[name])
            except ValidationFailed as error:
                details.append(Detail(f"/{name}", "invalid", error.message))


def _version(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) < 10**9):
        raise ValidationFailed(Sentence("%(text)s is not a version number; enter one such as 3", text=repr(text[:40])))
    return int(text)


def _time(text: str) -> int:
    """Parse a date, or the value of a datetime field, as UTC; returns epoch ms."""
    day, _, hour = text[:16].partition("T")
    try:
        return max(0, clock.parse_rfc3339(f"{day}T{hour or '00:00'}:00Z"))
    except ValidationFailed as error:
        raise ValidationFailed(Sentence(
            "%(text)s is not a valid time; use the format 2027-01-31T14:00", text=repr(text[:40])
        )) from error
