"""Decides the next state of a domain from the result of a probe. Pure functions; the caller stores the changes."""

from dataclasses import dataclass
from typing import Any, cast

from appliance.core.texts import mark_error

from .models import DomainRow
from .probing import ProbeResult
from .records import DomainSettings, State

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
VERIFY_WITHIN_MS = 30 * DAY  # an unverified claim expires after this time
GRACE_MS = 7 * DAY  # how long a verified domain may fail its checks before it is released
_NOT_VERIFIED = mark_error("It was not verified within 30 days.")
_NOT_VERIFIED_BECAUSE = mark_error("It was not verified within 30 days. %(error)s")
_RELEASED = mark_error("Released after 7 days: %(error)s")
ALERT_AFTER_MS = HOUR  # how long name servers may not respond before an alert


@dataclass(frozen=True)
class Transition:
    """The columns to change, and what else follows: names become held, names are released, an alert, or a recovery."""

    changes: dict[str, Any]
    acquires: bool = False
    releases: bool = False
    alerts: bool = False
    recovers: bool = False


def state_of_verified(settings: DomainSettings, row: DomainRow, *, leads_here: bool | None) -> State:
    """The state of a domain whose ownership is verified: `verified` until it points here, then the state of its certificate, or
    `active` where none is needed. A domain beyond `verified` keeps its state, unless its first probe shows that it points
    elsewhere."""
    if leads_here is False and row.leads_here is None:
        return "verified"
    if row.state == "active" or (row.certificate_state is not None and row.state != "verified"):
        return cast(State, row.state)
    if leads_here is False:
        return "verified"
    if row.certificate_state in ("active", "failed"):
        return cast(State, row.certificate_state)
    return "cert_pending" if settings.certificates else "active"


def decide(settings: DomainSettings, row: DomainRow, result: ProbeResult, now: int, *, is_held: bool) -> Transition:
    """Decide what the result of a probe means for a domain."""
    return _decide_held(settings, row, result, now) if is_held else _decide_claim(settings, row, result, now)


def _decide_claim(settings: DomainSettings, row: DomainRow, result: ProbeResult, now: int) -> Transition:
    if result.proven:
        state = state_of_verified(settings, row, leads_here=result.leads_here)
        error = result.error if result.leads_here is False else None
        next_check = _schedule(row, MINUTE if state == "verified" else HOUR, now, HOUR)
        changes = {"state": state, "verified_at": now, "error": error, "failing_since": None, "told_at": None, **next_check}
        return Transition(changes | {"leads_here": result.leads_here}, acquires=True)
    if row.state == "failed":
        return Transition({"error": result.error, "next_check_at": None})
    if now - row.created_at > VERIFY_WITHIN_MS:
        error = _NOT_VERIFIED_BECAUSE % {"error": result.error} if result.error else _NOT_VERIFIED
        return Transition({"state": "failed", "error": error, "next_check_at": None})
    return Transition({"error": result.error, "leads_here": result.leads_here, **_schedule(row, MINUTE, now, HOUR)})


def _decide_held(settings: DomainSettings, row: DomainRow, result: ProbeResult, now: int) -> Transition:
    state = state_of_verified(settings, row, leads_here=result.leads_here)
    changes: dict[str, Any] = {
        "leads_here": row.leads_here if result.leads_here is None and result.has_temporary_failure else result.leads_here
    }
    is_new = row.state == "verified" or row.leads_here is None  # it has never pointed here
    is_failing = result.proven is False or (result.leads_here is False and not is_new)
    if not is_failing and not result.has_temporary_failure:
        error = result.error if result.leads_here is False else None
        next_check = _schedule(row, MINUTE, now, HOUR) if state == "verified" else {"tries": 0, "next_check_at": now + 6 * HOUR}
        changes |= {"state": state, "error": error, "failing_since": None, "told_at": None, **next_check}
        return Transition(changes, recovers=row.told_at is not None)
    since = row.failing_since or now
    changes |= {"error": result.error, "failing_since": since, **_schedule(row, 5 * MINUTE, now, 6 * HOUR)}
    if is_failing and now - since >= GRACE_MS:
        error = _RELEASED % {"error": result.error}
        released = {"state": "failed", "error": error, "next_check_at": None, "verified_at": None, "certificate_state": None}
        return Transition(changes | released, releases=True)
    alerts = row.told_at is None and (is_failing or now - since >= ALERT_AFTER_MS)
    return Transition(changes | ({"told_at": now} if alerts else {}), alerts=alerts)


def _schedule(row: DomainRow, first: int, now: int, longest: int) -> dict[str, int]:
    """The time of the next probe, with a pause that doubles each time."""
    return {"tries": row.tries + 1, "next_check_at": now + min(first << min(row.tries, 20), longest)}
