"""Where a domain stands after a look at it; decisions alone, pure, what they change is the caller's to write."""

from dataclasses import dataclass
from typing import Any, cast

from appliance.core.texts import mark_error

from .looking import Look
from .models import DomainRow
from .records import Settings, State

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
PROVE_WITHIN_MS = 30 * DAY  # a claim that nobody proves is given up
GRACE_MS = 7 * DAY  # how long a domain may be gone from the DNS
_NOT_PROVEN = mark_error("It was not proven within 30 days. %(error)s")
_GIVEN_UP = mark_error("Given up after 7 days: %(error)s")
PATIENCE_MS = HOUR  # how long servers may not answer before somebody is told


@dataclass(frozen=True)
class Verdict:
    """What follows: columns to change; whether its names become held, are given up; whether to tell that it fails or is well."""

    changes: dict[str, Any]
    holds: bool = False
    gives_up: bool = False
    tells: bool = False
    recovers: bool = False


def state_of_proven(settings: Settings, row: DomainRow, *, leads_here: bool | None) -> State:
    """The state of a domain whose ownership is proven: verified until it leads here, then on to its certificate, or active
    where none is needed.  What has got further stays there, unless it turns out at the first look that it leads elsewhere."""
    if leads_here is False and row.leads_here is None:
        return "verified"
    if row.state == "active" or (row.certificate_state is not None and row.state != "verified"):
        return cast(State, row.state)
    if leads_here is False:
        return "verified"
    if row.certificate_state in ("active", "failed"):
        return cast(State, row.certificate_state)
    return "cert_pending" if settings.certificates else "active"


def judge(settings: Settings, row: DomainRow, look: Look, now: int, *, held: bool) -> Verdict:
    """What a look means for a domain."""
    return _judge_held(settings, row, look, now) if held else _judge_claim(settings, row, look, now)


def _judge_claim(settings: Settings, row: DomainRow, look: Look, now: int) -> Verdict:
    if look.proven:
        state = state_of_proven(settings, row, leads_here=look.leads_here)
        error = look.error if look.leads_here is False else None
        after = _after(row, MINUTE if state == "verified" else HOUR, now, HOUR)
        changes = {"state": state, "verified_at": now, "error": error, "failing_since": None, "told_at": None, **after}
        return Verdict(changes | {"leads_here": look.leads_here}, holds=True)
    if row.state == "failed":
        return Verdict({"error": look.error, "next_check_at": None})
    if now - row.created_at > PROVE_WITHIN_MS:
        error = (_NOT_PROVEN % {"error": look.error or ""}).strip()
        return Verdict({"state": "failed", "error": error, "next_check_at": None})
    return Verdict({"error": look.error, "leads_here": look.leads_here, **_after(row, MINUTE, now, HOUR)})


def _judge_held(settings: Settings, row: DomainRow, look: Look, now: int) -> Verdict:
    state = state_of_proven(settings, row, leads_here=look.leads_here)
    changes: dict[str, Any] = {"leads_here": row.leads_here if look.leads_here is None and look.passing else look.leads_here}
    waits = row.state == "verified" or row.leads_here is None  # it has not been seen to lead here yet
    lost = look.proven is False or (look.leads_here is False and not waits)
    if not lost and not look.passing:
        error = look.error if look.leads_here is False else None
        after = _after(row, MINUTE, now, HOUR) if state == "verified" else {"tries": 0, "next_check_at": now + 6 * HOUR}
        changes |= {"state": state, "error": error, "failing_since": None, "told_at": None, **after}
        return Verdict(changes, recovers=row.told_at is not None)
    since = row.failing_since or now
    changes |= {"error": look.error, "failing_since": since, **_after(row, 5 * MINUTE, now, 6 * HOUR)}
    if lost and now - since >= GRACE_MS:
        error = _GIVEN_UP % {"error": look.error}
        gone = {"state": "failed", "error": error, "next_check_at": None, "verified_at": None, "certificate_state": None}
        return Verdict(changes | gone, gives_up=True)
    tells = row.told_at is None and (lost or now - since >= PATIENCE_MS)
    return Verdict(changes | ({"told_at": now} if tells else {}), tells=tells)


def _after(row: DomainRow, first: int, now: int, most: int) -> dict[str, int]:
    """The next look, each time twice as far away."""
    return {"tries": row.tries + 1, "next_check_at": now + min(first << min(row.tries, 20), most)}
