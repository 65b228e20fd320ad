"""/api/v1/appliance/health and /audit: how the appliance is, and who did what with it."""

from typing import Annotated, Literal

from pydantic import Field

from appliance import __version__, migrations
from appliance.api.frame.routing import Call, View, route
from appliance.api.monitor.log_views import AuditView, VerdictView
from appliance.api.monitor.logs import AuditQuery, audit_view, parse_moment, verdict_view
from appliance.core import clock
from appliance.core.errors import ValidationFailed
from appliance.core.pages import Page
from appliance.monitor import audit
from appliance.monitor.forwarding import TrailRejections, list_rejections
from appliance.processes.scheduling import backlog
from appliance.tenants import service


class HealthFindingView(View):
    check: Annotated[str, Field(description="The check, such as `storage`, `backups`, `certificates` or `queue`.")]
    level: Annotated[
        Literal["ok", "note", "fail"],
        Field(description="`ok`, `note` for what should be known, or `fail` for what needs somebody."),
    ]
    text: Annotated[str, Field(description="What was found and what to do, in a sentence.")]


class HealthView(View):
    """How the appliance is."""

    status: Annotated[Literal["ok", "failing"], Field(description="`failing` if a finding has the level `fail`.")]
    version: Annotated[str, Field(description="The release that runs.")]
    schema_number: Annotated[int, Field(description="Number of the newest migration that the database has.")]
    pending_migrations: Annotated[int, Field(description="How many migrations of this release the database lacks.")]
    tenants: Annotated[int, Field(description="How many tenants there are.")]
    queue_depth: Annotated[int, Field(description="How many messages wait in the queue.")]
    queue_age_ms: Annotated[
        int, Field(description="For how long the oldest execution has waited that may run, in milliseconds; 0 if none waits.")
    ]
    disk_free_bytes: Annotated[int, Field(description="Free bytes of the disk with the data folder.")]
    checked_at: Annotated[str, Field(description="When the findings were made, at most a minute ago; RFC 3339 in UTC.")]
    findings: Annotated[
        list[HealthFindingView], Field(description="What `gos doctor` says, without its tests of the sandbox and of contents.")
    ]


class RejectionsView(View):
    """What a destination has refused of one audit trail, and nobody has acknowledged."""

    tenant_id: Annotated[str, Field(description="Whose trail it is; `@appliance` for that of the appliance.")]
    destination: Annotated[str, Field(description="The setting in `audit` that names the destination: `otlp`.")]
    records: Annotated[int, Field(description="How many records were refused.")]
    first_seq: Annotated[int, Field(description="Number of the first entry among which they are.")]
    last_seq: Annotated[int, Field(description="Number of the last entry among which they are.")]
    refused_at: Annotated[str, Field(description="When the last of them was refused, RFC 3339 in UTC.")]
    reason: Annotated[str, Field(description="What the destination said about the last of them; may be empty.")]
    since: Annotated[
        str | None, Field(description="Time of the oldest of these entries, RFC 3339 in UTC; absent if retention has deleted them.")
    ] = None
    until: Annotated[
        str | None, Field(description="Time of the newest of these entries, RFC 3339 in UTC; absent if retention has deleted them.")
    ] = None


@route("GET", "/appliance/health", scope="appliance.read", returns=HealthView, atomic=False)
def get_health(call: Call) -> HealthView:
    """Show how the appliance is.

    The figures are those of now; the findings are made at most once a minute, because they ask other systems.
    """
    report, services = call.services.health.check(), call.services
    findings = [HealthFindingView(check=each.check, level=each.level, text=each.text) for each in report.findings]
    tenants = service.list_tenants()
    return HealthView(
        status="failing" if any(each.level == "fail" for each in findings) else "ok", version=__version__,
        schema_number=migrations.last_number(), pending_migrations=migrations.pending(), tenants=len(tenants),
        queue_depth=services.queue.depth(),
        queue_age_ms=max((backlog.oldest_wait_ms(service.system_scope(each.id)) for each in tenants), default=0),
        disk_free_bytes=services.monitor.disk.read().free, checked_at=clock.rfc3339(report.checked_at), findings=findings,
    )  # fmt: skip


@route(
    "GET", "/appliance/audit", scope="appliance.read", returns=AuditView, listed=True, query=AuditQuery, errors=(ValidationFailed,)
)  # fmt: skip
def list_appliance_audit(call: Call) -> Page[AuditView]:
    """List the audit trail of the appliance.

    Operations on tenants, users and backups by whatever way, sign-ins with unknown logins, and keys that were not accepted.
    Newest first.
    """
    query: AuditQuery = call.query
    since, until = parse_moment(query.since, "since"), parse_moment(query.until, "until")
    filters = audit.AuditFilter(query.actor, query.action, query.subject, since, until)
    return audit.list_entries(call.scope, filters, query.page).map(audit_view)


@route("GET", "/appliance/audit/rejections", scope="appliance.read", returns=RejectionsView, listed=True)
def list_audit_rejections(_: Call) -> Page[RejectionsView]:
    """List records that collectors have refused.

    Records of audit trails that were refused for good, as `gos doctor` reports them, until an administrator acknowledges them in
    the console or by `gos audit rejections --acknowledge`.
    """
    return Page([_rejections_view(each) for each in list_rejections()])


def _rejections_view(each: TrailRejections) -> RejectionsView:
    return RejectionsView(
        tenant_id=each.tenant_id, destination=each.destination, records=each.count, first_seq=each.first_seq,
        last_seq=each.last_seq, refused_at=clock.rfc3339(each.at), reason=each.reason,
        since=clock.optional_rfc3339(each.entries_from), until=clock.optional_rfc3339(each.entries_until),
    )  # fmt: skip


@route("GET", "/appliance/audit/verify", scope="appliance.read", returns=VerdictView)
def verify_appliance_audit(call: Call) -> VerdictView:
    """Verify the audit trail of the appliance.

    Recomputes its hashes, to show that no entry was changed, removed or inserted.
    """
    return verdict_view(audit.verify(call.scope))
