"""What an alert looks at, written as data: one kind, what it is about, and how much is too much."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from appliance.core.errors import Detail, ValidationFailed

Kind = Literal["failures", "failure_rate", "duration", "queue_age", "integration_failing", "no_execution", "expiring", "disk_full"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MINUTE, DAY = 60_000, 86_400_000
LONGEST_WINDOW = 30 * DAY
LONGEST_AHEAD = 365 * DAY
_MOST = 1_000_000_000

# By kind: members it needs, and members it may have beside them.
MEMBERS: Mapping[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "failures": (("above", "window_ms"), ("process", "failure")),
    "failure_rate": (("above", "window_ms"), ("process", "at_least")),
    "duration": (("longer_than_ms", "window_ms"), ("process",)),
    "queue_age": (("longer_than_ms",), ()),
    "integration_failing": ((), ("integration",)),
    "no_execution": (("process", "window_ms"), ()),
    "expiring": (("window_ms",), ()),
    "disk_full": (("above",), ()),
}
WRITTEN = {"window_ms": "window", "longer_than_ms": "longer_than"}


@dataclass(frozen=True)
class Condition:
    """Durations in milliseconds.  `above` is a count of failures, or a percentage: of executions for a rate, of the disk in use.

    `window_ms` is the time looked back at; for `expiring` the time looked ahead.
    """

    kind: Kind
    process: str | None = None
    failure: str | None = None
    integration: str | None = None
    above: float | None = None
    longer_than_ms: int | None = None
    window_ms: int | None = None
    at_least: int | None = None

    def members(self) -> dict[str, Any]:
        """What is said, without what is not."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def check_condition(condition: Condition) -> Condition:
    """The condition itself; ValidationFailed lists everything that is wrong with it."""
    if condition.kind not in KINDS:
        raise ValidationFailed(f"kind must be one of {', '.join(KINDS)}", pointer="/condition/kind")
    needed, allowed = MEMBERS[condition.kind]
    said = condition.members().keys() - {"kind"}
    wrong = [(name, f"{condition.kind} needs {_written(name)}") for name in needed if name not in said]
    wrong += [(name, f"{condition.kind} does not know {_written(name)}") for name in sorted(said - {*needed, *allowed})]
    wrong += _out_of_bounds(condition)
    if condition.process and condition.failure:
        wrong.append(("process", "a group of failures belongs to a process already; leave one of them out"))
    if wrong:
        details = [Detail(f"/condition/{_written(name)}", "validation_failed", told) for name, told in wrong]
        raise ValidationFailed("; ".join(told for _, told in wrong), details=details)
    return condition


def _out_of_bounds(condition: Condition) -> list[tuple[str, str]]:
    wrong = []
    most = 99.99 if condition.kind in ("failure_rate", "disk_full") else _MOST
    if condition.above is not None and not 0 <= condition.above <= most:
        wrong.append(("above", f"above must be between 0 and {most:g}"))
    if condition.longer_than_ms is not None and not 1 <= condition.longer_than_ms <= LONGEST_WINDOW:
        wrong.append(("longer_than_ms", "longer_than must be between 1ms and 30d"))
    longest = LONGEST_AHEAD if condition.kind == "expiring" else LONGEST_WINDOW
    if condition.window_ms is not None and not MINUTE <= condition.window_ms <= longest:
        wrong.append(("window_ms", f"window must be between 1m and {longest // DAY}d"))
    if condition.at_least is not None and not 1 <= condition.at_least <= _MOST:
        wrong.append(("at_least", f"at_least must be between 1 and {_MOST}"))
    return wrong


def _written(name: str) -> str:
    return WRITTEN.get(name, name)


def shown_duration(ms: float) -> str:
    """`90s`, `15m`, `48h`, `30d`: a duration in the largest unit that is a whole number."""
    whole = int(ms)
    for unit, name in ((DAY, "d"), (3_600_000, "h"), (MINUTE, "m"), (1000, "s")):
        if whole and whole % unit == 0:
            return f"{whole // unit}{name}"
    return f"{whole}ms"


def describe(condition: Condition) -> str:
    """The condition as a sentence without its full stop."""
    at, over = condition.window_ms or 0, condition.longer_than_ms or 0
    of = f" of {condition.process}" if condition.process else ""
    failed = f" of the group {condition.failure}" if condition.failure else of
    above, window, longer = condition.above or 0, shown_duration(at), shown_duration(over)
    return {
        "failures": f"more than {above:g} {'failure' if above == 1 else 'failures'}{failed} within {window}",
        "failure_rate": f"more than {above:g} % of executions{of} failed within {window}",
        "duration": f"one in twenty executions{of} took longer than {longer}, within {window}",
        "queue_age": f"an execution waits for its turn longer than {longer}",
        "integration_failing": f"{condition.integration or 'an integration'} does not answer",
        "no_execution": f"no execution{of} was started for {window}",
        "expiring": f"an API key or a certificate expires within {window}",
        "disk_full": f"more than {above:g} % of the appliance's disk are in use",
    }[condition.kind]
