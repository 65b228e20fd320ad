"""The audit trail: searched, verified and exported."""

import json
from datetime import UTC, date, datetime, timedelta
from urllib.parse import urlencode

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Download, Page, Visit, page
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.monitor import AuditFilter, Verdict, audit

MOST_EXPORTED, MOST_SHOWN = 50_000, 5
ARGUMENTS = ("text", "actor", "action", "subject", "since", "until")


@page("GET", "/audit", scope="logs.read")
def list_entries(visit: Visit) -> Answer:
    """Who did what, newest first."""
    return _page(visit)


def _page(visit: Visit, verdict: Verdict | None = None) -> Page:
    args, problem = _asked_for(visit), None
    try:
        wanted = _filter(args)
    except ApplianceError as error:
        wanted, problem = AuditFilter(), error
    found = audit.list_entries(visit.scope, wanted, visit.page())
    values = {
        "rows": [(row, _particulars(row.fields)) for row in found.items], "next_cursor": found.next_cursor,
        "names": Names(visit), "args": args, "problem": problem,
        "kept": urlencode({name: value for name, value in args.items() if value}),
        "narrowed": any(args[name] for name in ("actor", "action", "subject")), "verdict": verdict, "most": MOST_EXPORTED,
    }  # fmt: skip
    return Page("audit.html", values, problem.status if problem else 200)


def _particulars(fields: str | None) -> list[tuple[str, str]]:
    """The first few members of what was noted, each as short text."""
    noted = json.loads(fields) if fields else {}
    told = list(noted.items())[:MOST_SHOWN] if isinstance(noted, dict) else []
    return [(name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) for name, value in told]


def _asked_for(visit: Visit) -> dict[str, str]:
    return {name: visit.asked.args.get(name, "").strip()[:200] for name in ARGUMENTS}


def _filter(args: dict[str, str]) -> AuditFilter:
    since, until = _day(args, "since"), _day(args, "until")
    return AuditFilter(
        args["actor"] or None, args["action"] or None, args["subject"] or None, since,
        None if until is None else until + 86_400_000, args["text"] or None,
    )  # fmt: skip


def _day(args: dict[str, str], name: str) -> int | None:
    """The beginning of a day in UTC, in epoch milliseconds."""
    if not args[name]:
        return None
    try:
        day = date.fromisoformat(args[name])
    except ValueError as error:
        raise ValidationFailed("write a day like 2026-01-31", pointer=f"/{name}") from error
    begins = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return (begins - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@page("POST", "/audit/verify", scope="logs.read")
def verify_chain(visit: Visit) -> Answer:
    """Recompute every hash of the trail."""
    return _page(visit, audit.verify(visit.scope))


@page("GET", "/audit/export", scope="logs.read")
def export_entries(visit: Visit) -> Answer:
    """What the page shows, with the hashes, as lines of JSON."""
    lines = audit.export_entries(visit.scope, _filter(_asked_for(visit)), MOST_EXPORTED)
    return Download(f"audit-{visit.scope.tenant_id}.ndjson", "".join(lines).encode(), "application/x-ndjson; charset=utf-8")
