"""The pages of the audit trails, of the tenant and of the appliance: search, verify and export them."""

import json
from datetime import UTC, date, datetime, timedelta
from urllib.parse import urlencode

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Download, Page, Redirect, Visit, page
from appliance.console.pages.settings.appliance import require_administrator
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.scope import APPLIANCE, TenantScope
from appliance.monitor import AuditFilter, ChainStatus, audit
from appliance.monitor.forwarding import REJECTION_DAYS, acknowledge_rejections, list_rejections
from appliance.monitor.signed_trails import sign_export
from appliance.tenants import appliance_scope

MOST_EXPORTED, MOST_SHOWN = 50_000, 5
ARGUMENTS = ("text", "actor", "action", "subject", "since", "until")


@page("GET", "/audit", scope="logs.read")
def list_entries(visit: Visit) -> Answer:
    """The entries of the audit trail, newest first."""
    return _page(visit, visit.scope)


@page("GET", "/appliance/audit", scope=None)
def list_appliance_entries(visit: Visit) -> Answer:
    """The entries of the appliance's own trail, newest first, for administrators."""
    require_administrator(visit)
    return _page(visit, appliance_scope())


@page("POST", "/appliance/audit/acknowledge", scope=None)
def acknowledge(visit: Visit) -> Answer:
    """Acknowledge what a collector has refused of a trail, as it was shown."""
    require_administrator(visit)
    field, scope = visit.request.field, appliance_scope(visit.scope.actor)
    total = field("total")
    try:
        number = int(total) if total.isascii() and total.isdigit() and len(total) < 16 else 0
        acknowledge_rejections(field("trail"), field("destination"), number, scope=scope)
    except ApplianceError as error:
        return _page(visit, appliance_scope(), problem=error)
    return Redirect("/console/appliance/audit")


def _page(
    visit: Visit, scope: TenantScope, verification: ChainStatus | None = None, problem: ApplianceError | None = None
) -> Page:  # fmt: skip
    args = _read_args(visit)
    try:
        filters = _filter(args)
    except ApplianceError as error:
        filters, problem = AuditFilter(), error
    result = audit.list_entries(scope, filters, visit.page())
    is_of_appliance = scope.tenant_id == APPLIANCE
    values = {
        "rows": [(row, _short_fields(row.fields)) for row in result.items], "next_cursor": result.next_cursor,
        "names": Names(visit, scope), "args": args, "problem": problem, "is_of_appliance": is_of_appliance,
        "here": "/console/appliance/audit" if is_of_appliance else "/console/audit",
        "query": urlencode({name: value for name, value in args.items() if value}),
        "narrowed": any(args[name] for name in ("actor", "action", "subject")), "verdict": verification, "most": MOST_EXPORTED,
        "rejections": list_rejections() if is_of_appliance else [], "rejection_days": REJECTION_DAYS, "appliance": APPLIANCE,
    }  # fmt: skip
    return Page("audit.html", values, problem.status if problem else 200)


def _short_fields(fields: str | None) -> list[tuple[str, str]]:
    """The first few fields of an entry, each as (name, text)."""
    members = json.loads(fields) if fields else {}
    items = list(members.items())[:MOST_SHOWN] if isinstance(members, dict) else []
    return [(name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) for name, value in items]


def _read_args(visit: Visit) -> dict[str, str]:
    return {name: visit.request.args.get(name, "").strip()[:200] for name in ARGUMENTS}


def _filter(args: dict[str, str]) -> AuditFilter:
    since, until = _day(args, "since"), _day(args, "until")
    return AuditFilter(
        args["actor"] or None, args["action"] or None, args["subject"] or None, since,
        None if until is None else until + 86_400_000, args["text"] or None,
    )  # fmt: skip


def _day(args: dict[str, str], name: str) -> int | None:
    """The start of a day in UTC, in epoch ms; None when the argument is empty."""
    if not args[name]:
        return None
    try:
        day = date.fromisoformat(args[name])
    except ValueError as error:
        raise ValidationFailed("enter a date such as 2026-01-31", pointer=f"/{name}") from error
    begins = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return (begins - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@page("POST", "/audit/verify", scope="logs.read")
def verify_chain(visit: Visit) -> Answer:
    """Verify the hash chain of the trail and show the result."""
    return _page(visit, visit.scope, audit.verify(visit.scope))


@page("POST", "/appliance/audit/verify", scope=None)
def verify_appliance_chain(visit: Visit) -> Answer:
    """Verify the hash chain of the appliance's trail and show the result."""
    require_administrator(visit)
    return _page(visit, appliance_scope(), audit.verify(appliance_scope()))


@page("GET", "/audit/export", scope="logs.read")
def export_entries(visit: Visit) -> Answer:
    """The filtered entries with their hashes as NDJSON, at most `MOST_EXPORTED`, and their signature."""
    return _export(visit, visit.scope, visit.scope.tenant_id)


@page("GET", "/appliance/audit/export", scope=None)
def export_appliance_entries(visit: Visit) -> Answer:
    """The same of the appliance's trail."""
    require_administrator(visit)
    return _export(visit, appliance_scope(), "appliance")


def _export(visit: Visit, scope: TenantScope, name: str) -> Download:
    filters, key = _filter(_read_args(visit)), visit.services.monitor.audit_keys.current()
    lines = audit.export_entries(scope, filters, MOST_EXPORTED)
    signed = sign_export(key, scope.tenant_id, lines, is_filtered=filters.leaves_gaps)
    return Download(f"audit-{name}.ndjson", "".join(signed).encode(), "application/x-ndjson; charset=utf-8")
