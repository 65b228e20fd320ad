"""What is found when a condition is looked at: whether it holds, and the sentence that says so."""

from collections.abc import Callable
from dataclasses import dataclass

from appliance.core import clock, db
from appliance.core.scope import TenantScope
from appliance.monitor.analytics import Summary, read_total
from appliance.monitor.tally import MINUTE

from .conditions import Condition, shown_duration

ENOUGH_FOR_A_RATE = 10
_NAMED = 5


@dataclass(frozen=True)
class Facts:
    """What other parts of the appliance know; each is asked for one tenant, times are epoch milliseconds.

    `last_execution` is when the newest execution of a process was created, `failing` the integrations that do not answer,
    `expiring` what ends before a time, each as it is called, `disk_used` how many percent of the appliance's disk are in use.
    """

    queue_age_ms: Callable[[TenantScope], int]
    last_execution: Callable[[TenantScope, str], int | None]
    failing: Callable[[TenantScope], list[str]]
    expiring: Callable[[TenantScope, int], list[str]]
    disk_used: Callable[[], float]


@dataclass(frozen=True)
class Finding:
    """Whether a condition holds now; `text` is a sentence without its full stop."""

    holds: bool
    text: str


def measure(scope: TenantScope, condition: Condition, facts: Facts, armed_at: int) -> Finding:
    """Look at a condition; what happened before `armed_at` counts for nothing where something is missed."""
    if condition.kind in ("failures", "failure_rate", "duration"):
        return _counted(scope, condition)
    if condition.kind == "queue_age":
        age, most = facts.queue_age_ms(scope), condition.longer_than_ms or 0
        return Finding(age > most, f"the oldest execution has waited {_rough(age)}, at most {shown_duration(most)} allowed")
    if condition.kind == "integration_failing":
        found = [slug for slug in facts.failing(scope) if condition.integration in (None, slug)]
        silent = (
            f"{_listed(found)} {'do' if len(found) > 1 else 'does'} not answer and {'are' if len(found) > 1 else 'is'} left alone"
        )
        return Finding(bool(found), silent if found else "every foreign system answers")
    if condition.kind == "disk_full":
        used, above = facts.disk_used(), condition.above or 0
        return Finding(used > above, f"{used:.1f} % of the appliance's disk are in use, at most {above:g} % allowed")
    if condition.kind == "no_execution":
        return _missed(scope, condition, facts, armed_at)
    window = condition.window_ms or 0
    ending = facts.expiring(scope, clock.now_ms() + window)
    told = f"within {shown_duration(window)} {'expire' if len(ending) > 1 else 'expires'} {_listed(ending)}"
    return Finding(bool(ending), told if ending else f"nothing expires within {shown_duration(window)}")


def _counted(scope: TenantScope, condition: Condition) -> Finding:
    window = condition.window_ms or 0
    since = (clock.now_ms() - window) // MINUTE * MINUTE
    within, of = f"within {shown_duration(window)}", f" of {condition.process}" if condition.process else ""
    if condition.kind == "failures" and condition.failure is not None:
        count, above = _occurrences(scope, condition.failure, since), condition.above or 0
        return Finding(count > above, f"{_failures(count)} of the group {condition.failure} {within}, at most {above:g} allowed")
    total: Summary = read_total(scope, "execution", condition.process, since)
    if condition.kind == "failures":
        count, above = total.failures, condition.above or 0
        return Finding(count > above, f"{_failures(count)}{of} {within}, at most {above:g} allowed")
    if condition.kind == "failure_rate":
        rate = 100 * total.failures / total.count if total.count else 0.0
        enough = total.count >= (condition.at_least or ENOUGH_FOR_A_RATE)
        told = f"{rate:.1f} % of {total.count} executions{of} failed {within}, at most {condition.above or 0:g} % allowed"
        return Finding(enough and rate > (condition.above or 0), told)
    slow, most = total.percentile(0.95), condition.longer_than_ms or 0
    if slow is None:
        return Finding(False, f"no execution{of} ended {within}")
    return Finding(
        slow > most, f"one in twenty executions{of} took {_rough(slow)} or longer {within}, at most {shown_duration(most)} allowed"
    )


def _occurrences(scope: TenantScope, failure_id: str, since: int) -> int:
    ((count,),) = db.rows(
        "SELECT COUNT(*) FROM failure_occurrence WHERE tenant_id = ? AND failure_id = ? AND at >= ?",
        (scope.tenant_id, failure_id, since),
    )
    return int(count)


def _missed(scope: TenantScope, condition: Condition, facts: Facts, armed_at: int) -> Finding:
    process, window = condition.process or "", condition.window_ms or 0
    last = facts.last_execution(scope, process)
    silent = clock.now_ms() - max(last or 0, armed_at)
    began = f"{process} was last started {clock.rfc3339(last)}" if last else f"{process} was never started"
    return Finding(silent > window, f"{began}; it is expected every {shown_duration(window)}")


def _failures(count: int) -> str:
    return "1 failure" if count == 1 else f"{count} failures"


def _rough(ms: float) -> str:
    """A measured duration, to three digits."""
    for unit, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if ms >= unit:
            return f"{ms / unit:.3g} {name}"
    return f"{ms:.0f} ms"


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
