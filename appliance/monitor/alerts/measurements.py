"""Evaluates conditions: whether one holds now, and a sentence that says so."""

from collections.abc import Callable
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.core.texts import mark_error
from appliance.monitor.analytics import Summary, read_total
from appliance.monitor.tally import MINUTE

from .conditions import Condition, format_duration
from .quota_checks import QuotaReader, check_quota, check_quotas

ENOUGH_FOR_A_RATE = 10
_MAX_LISTED = 5


@dataclass(frozen=True)
class DataSources:
    """Data from other parts of the appliance, per tenant; times are epoch milliseconds.

    `last_execution` is when the newest execution of a process was created, `failing` lists integrations that are not responding,
    `expiring` the names of what expires before a time, `quota_state` reads what is used of a quota, `disk_used` is the percentage
    of the appliance's disk in use.
    """

    queue_age_ms: Callable[[TenantScope], int]
    last_execution: Callable[[TenantScope, str], int | None]
    failing_integrations: Callable[[TenantScope], list[str]]
    expiring: Callable[[TenantScope, int], list[str]]
    quota_state: QuotaReader
    disk_used: Callable[[], float]


@dataclass(frozen=True)
class Finding:
    """Whether a condition holds now; `text` is a sentence without a full stop."""

    holds: bool
    text: str


# English here, translated where it is shown.
_WAITED = mark_error("the oldest execution has waited %(time)s, at most %(allowed)s allowed")
_ALL_RESPONDING = mark_error("all integrations are responding")
_ONE_NOT_RESPONDING = mark_error("%(integration)s is not responding; calls to it are paused")
_NOT_RESPONDING = mark_error("%(integrations)s are not responding; calls to them are paused")
_DISK = mark_error("%(percent)s %% of the appliance's disk is in use, at most %(allowed)s %% allowed")
_EXPIRING = mark_error("within %(window)s these expire: %(names)s")
_ONE_EXPIRING = mark_error("within %(window)s this expires: %(name)s")
_NONE_EXPIRING = mark_error("nothing expires within %(window)s")
_LATE = mark_error("%(process)s was last started %(time)s; it is expected every %(window)s")
_NEVER = mark_error("%(process)s was never started; it is expected every %(window)s")
_AND_MORE = mark_error("%(names)s and %(count)s more")
_FAILURES = {
    "": mark_error("%(count)s failures within %(window)s, at most %(allowed)s allowed"),
    "process": mark_error("%(count)s failures of %(process)s within %(window)s, at most %(allowed)s allowed"),
    "group": mark_error("%(count)s failures of the group %(failure)s within %(window)s, at most %(allowed)s allowed"),
}
_ONE_FAILURE = {
    "": mark_error("1 failure within %(window)s, at most %(allowed)s allowed"),
    "process": mark_error("1 failure of %(process)s within %(window)s, at most %(allowed)s allowed"),
    "group": mark_error("1 failure of the group %(failure)s within %(window)s, at most %(allowed)s allowed"),
}
_RATE = {
    "": mark_error("%(percent)s %% of %(count)s executions failed within %(window)s, at most %(allowed)s %% allowed"),
    "process": mark_error(
        "%(percent)s %% of %(count)s executions of %(process)s failed within %(window)s, at most %(allowed)s %% allowed"
    ),
}
_NONE_ENDED = {
    "": mark_error("no execution ended within %(window)s"),
    "process": mark_error("no execution of %(process)s ended within %(window)s"),
}
_SLOW = {
    "": mark_error("one in twenty executions took %(time)s or longer within %(window)s, at most %(allowed)s allowed"),
    "process": mark_error(
        "one in twenty executions of %(process)s took %(time)s or longer within %(window)s, at most %(allowed)s allowed"
    ),
}


def measure(scope: TenantScope, condition: Condition, facts: DataSources, armed_at: int) -> Finding:
    """Evaluate a condition; for a missing execution, only the time since `armed_at` counts."""
    if condition.kind in ("failures", "failure_rate", "duration"):
        return _check_counters(scope, condition)
    if condition.kind == "queue_age":
        age, most = facts.queue_age_ms(scope), condition.longer_than_ms or 0
        return Finding(age > most, _WAITED % {"time": _format_measured(age), "allowed": format_duration(most)})
    if condition.kind == "integration_failing":
        return _check_integrations([slug for slug in facts.failing_integrations(scope) if condition.integration in (None, slug)])
    if condition.kind == "quota":
        above = condition.above or 0
        if condition.quota is None:
            return Finding(*check_quotas(scope, above, facts.quota_state))
        return Finding(*check_quota(scope, condition.quota, above, facts.quota_state))
    if condition.kind == "disk_full":
        used, above = facts.disk_used(), condition.above or 0
        return Finding(used > above, _DISK % {"percent": round(used, 1), "allowed": float(above)})
    if condition.kind == "no_execution":
        return _check_last_execution(scope, condition, facts, armed_at)
    window = condition.window_ms or 0
    expiring = facts.expiring(scope, clock.now_ms() + window)
    template = _NONE_EXPIRING if not expiring else _ONE_EXPIRING if len(expiring) == 1 else _EXPIRING
    return Finding(
        bool(expiring),
        template % {"window": format_duration(window), "name": _join_names(expiring), "names": _join_names(expiring)},
    )


def _check_integrations(slugs: list[str]) -> Finding:
    template = _ALL_RESPONDING if not slugs else _ONE_NOT_RESPONDING if len(slugs) == 1 else _NOT_RESPONDING
    return Finding(bool(slugs), template % {"integration": _join_names(slugs), "integrations": _join_names(slugs)})


def _check_counters(scope: TenantScope, condition: Condition) -> Finding:
    since = (clock.now_ms() - (condition.window_ms or 0)) // MINUTE * MINUTE
    about, above = "process" if condition.process else "", condition.above or 0
    values: dict[str, object] = {
        "window": format_duration(condition.window_ms or 0), "process": condition.process, "failure": condition.failure,
        "allowed": float(above),
    }  # fmt: skip
    if condition.kind == "failures" and condition.failure is not None:
        return _check_failures(_occurrences(scope, condition.failure, since), above, "group", values)
    total: Summary = read_total(scope, "execution", condition.process, since)
    if condition.kind == "failures":
        return _check_failures(total.failures, above, about, values)
    if condition.kind == "failure_rate":
        rate = 100 * total.failures / total.count if total.count else 0.0
        enough = total.count >= (condition.at_least or ENOUGH_FOR_A_RATE)
        return Finding(enough and rate > above, _RATE[about] % {**values, "percent": round(rate, 1), "count": total.count})
    slow, most = total.percentile(0.95), condition.longer_than_ms or 0
    if slow is None:
        return Finding(False, _NONE_ENDED[about] % values)
    return Finding(slow > most, _SLOW[about] % {**values, "time": _format_measured(slow), "allowed": format_duration(most)})


def _check_failures(count: int, above: float, about: str, values: dict[str, object]) -> Finding:
    templates = _ONE_FAILURE if count == 1 else _FAILURES
    return Finding(count > above, templates[about] % {**values, "count": count})


def _occurrences(scope: TenantScope, failure_id: str, since: int) -> int:
    ((count,),) = db.rows(
        "SELECT COUNT(*) FROM failure_occurrence WHERE tenant_id = ? AND failure_id = ? AND at >= ?",
        (scope.tenant_id, failure_id, since),
    )
    return int(count)


def _check_last_execution(scope: TenantScope, condition: Condition, facts: DataSources, armed_at: int) -> Finding:
    process, window = condition.process or "", condition.window_ms or 0
    last = facts.last_execution(scope, process)
    silent = clock.now_ms() - max(last or 0, armed_at)
    values = {"process": process, "time": clock.rfc3339(last) if last else "", "window": format_duration(window)}
    return Finding(silent > window, (_LATE if last else _NEVER) % values)


def _format_measured(ms: float) -> str:
    """A measured duration, to three significant digits."""
    for unit, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if ms >= unit:
            return Sentence("%(number)s %(unit)s", number=float(f"{ms / unit:.3g}"), unit=name)
    return f"{ms:.0f} ms"


def _join_names(names: list[str]) -> str:
    more, listed = len(names) - _MAX_LISTED, Sentence.joined(names[:_MAX_LISTED])
    return _AND_MORE % {"names": listed, "count": more} if more > 0 else listed
