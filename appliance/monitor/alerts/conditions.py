"""Alert conditions as data: a kind, what it applies to, and a threshold."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from appliance.core.errors import Detail, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.core.texts import mark_error
from appliance.quotas import KINDS as QUOTAS

Kind = Literal[
    "failures", "failure_rate", "duration", "queue_age", "integration_failing", "no_execution", "expiring", "quota", "disk_full"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
MINUTE, DAY = 60_000, 86_400_000
MAX_WINDOW = 30 * DAY
MAX_AHEAD = 365 * DAY
_MAX_COUNT = 1_000_000_000

# By kind: required members, and optional ones.
MEMBERS: Mapping[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "failures": (("above", "window_ms"), ("process", "failure")),
    "failure_rate": (("above", "window_ms"), ("process", "at_least")),
    "duration": (("longer_than_ms", "window_ms"), ("process",)),
    "queue_age": (("longer_than_ms",), ()),
    "integration_failing": ((), ("integration",)),
    "no_execution": (("process", "window_ms"), ()),
    "expiring": (("window_ms",), ()),
    "quota": (("above",), ("quota",)),
    "disk_full": (("above",), ()),
}
EXTERNAL_NAMES = {"window_ms": "window", "longer_than_ms": "longer_than"}


@dataclass(frozen=True)
class Condition:
    """A condition; durations in ms.  `above` is a number of failures, or a percentage of executions, a quota or disk space.

    `window_ms` is the period before now; for `expiring` the period ahead.
    """

    kind: Kind
    process: str | None = None
    failure: str | None = None
    integration: str | None = None
    quota: str | None = None
    above: float | None = None
    longer_than_ms: int | None = None
    window_ms: int | None = None
    at_least: int | None = None

    def members(self) -> dict[str, Any]:
        """The members that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def validate_condition(condition: Condition) -> Condition:
    """Validate a condition and return it; ValidationFailed lists every error."""
    if condition.kind not in KINDS:
        raise ValidationFailed(Sentence("kind must be one of %(kinds)s", kinds=', '.join(KINDS)), pointer="/condition/kind")
    needed, allowed = MEMBERS[condition.kind]
    members = condition.members().keys() - {"kind"}
    errors = [(name, f"{condition.kind} needs {_external_name(name)}") for name in needed if name not in members]
    errors += [(name, f"{condition.kind} does not have {_external_name(name)}") for name in sorted(members - {*needed, *allowed})]
    errors += _out_of_bounds(condition)
    if condition.process and condition.failure:
        errors.append(("process", "a failure group already belongs to a process; omit one of the two"))
    if errors:
        details = [Detail(f"/condition/{_external_name(name)}", "validation_failed", message) for name, message in errors]
        raise ValidationFailed(Sentence.joined((message for _, message in errors), "; "), details=details)
    return condition


def _out_of_bounds(condition: Condition) -> list[tuple[str, str]]:
    wrong = []
    most = 99.99 if condition.kind in ("failure_rate", "quota", "disk_full") else _MAX_COUNT
    if condition.quota is not None and condition.quota not in QUOTAS:
        wrong.append(("quota", f"quota must be one of {', '.join(QUOTAS)}"))
    if condition.above is not None and not 0 <= condition.above <= most:
        wrong.append(("above", f"above must be between 0 and {most:g}"))
    if condition.longer_than_ms is not None and not 1 <= condition.longer_than_ms <= MAX_WINDOW:
        wrong.append(("longer_than_ms", "longer_than must be between 1ms and 30d"))
    longest = MAX_AHEAD if condition.kind == "expiring" else MAX_WINDOW
    if condition.window_ms is not None and not MINUTE <= condition.window_ms <= longest:
        wrong.append(("window_ms", f"window must be between 1m and {longest // DAY}d"))
    if condition.at_least is not None and not 1 <= condition.at_least <= _MAX_COUNT:
        wrong.append(("at_least", f"at_least must be between 1 and {_MAX_COUNT}"))
    return wrong


def _external_name(name: str) -> str:
    return EXTERNAL_NAMES.get(name, name)


def format_duration(ms: float) -> str:
    """`90s`, `15m`, `48h`, `30d`: a duration in the largest unit that is a whole number."""
    whole = int(ms)
    for unit, name in ((DAY, "d"), (3_600_000, "h"), (MINUTE, "m"), (1000, "s")):
        if whole and whole % unit == 0:
            return f"{whole // unit}{name}"
    return f"{whole}ms"


# Texts by kind and subject; English here, translated where they are shown.
_SENTENCES: Mapping[str, str] = {
    "failures": mark_error("more than %(count)s failures within %(window)s"),
    "failures of one": mark_error("more than 1 failure within %(window)s"),
    "failures of a process": mark_error("more than %(count)s failures of %(process)s within %(window)s"),
    "failures of one of a process": mark_error("more than 1 failure of %(process)s within %(window)s"),
    "failures of a group": mark_error("more than %(count)s failures of the group %(failure)s within %(window)s"),
    "failures of one of a group": mark_error("more than 1 failure of the group %(failure)s within %(window)s"),
    "failure_rate": mark_error("more than %(percent)s %% of executions failed within %(window)s"),
    "failure_rate of a process": mark_error("more than %(percent)s %% of executions of %(process)s failed within %(window)s"),
    "duration": mark_error("one in twenty executions took longer than %(longer)s, within %(window)s"),
    "duration of a process": mark_error("one in twenty executions of %(process)s took longer than %(longer)s, within %(window)s"),
    "queue_age": mark_error("an execution has been queued for longer than %(longer)s"),
    "integration_failing": mark_error("an integration is not responding"),
    "integration_failing of one": mark_error("%(integration)s is not responding"),
    "no_execution of a process": mark_error("no execution of %(process)s was started for %(window)s"),
    "expiring": mark_error("an API key or a certificate expires within %(window)s"),
    "quota": mark_error("more than %(percent)s %% of a quota is in use"),
    "quota of one": mark_error("more than %(percent)s %% of the quota %(quota)s is in use"),
    "disk_full": mark_error("more than %(percent)s %% of the appliance's disk is in use"),
}


def describe(condition: Condition) -> str:
    """The condition as a sentence without a full stop."""
    above = condition.above or 0
    name: str = condition.kind
    if name == "failures" and above == 1:
        name += " of one"
    if condition.failure:
        name += " of a group"
    elif condition.process:
        name += " of a process"
    elif condition.integration or condition.quota:
        name += " of one"
    return _SENTENCES[name] % {
        "count": float(above), "percent": float(above), "process": condition.process, "failure": condition.failure,
        "integration": condition.integration, "quota": condition.quota, "window": format_duration(condition.window_ms or 0),
        "longer": format_duration(condition.longer_than_ms or 0),
    }  # fmt: skip
