"""Call records: lists, single records, settling of unknown outcomes, and retention."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from appliance.connectors.contract import Effect
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, ValidationFailed
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.integrations.models import CallRow, IntegrationRow
from appliance.integrations.records import Origin, Outcome, Status
from appliance.monitor import audit, delete_in_chunks

OUTCOMES: tuple[Outcome, ...] = ("done", "not_done", "unknown")
STATUSES: tuple[Status, ...] = ("queued", "running", "waiting", "succeeded", "failed")
PURGE_CHUNK = 500


@dataclass(frozen=True)
class CallRecord:
    """A recorded call; `ahead` is the number of the tenant's queued calls before it, None unless queued.

    `error` is `{class, message, details, retry_after?}`; times are epoch milliseconds.
    """

    id: str
    integration: str
    connector: str
    action: str
    effect: Effect
    status: Status
    outcome: Outcome | None
    input: Any
    output: Any
    error: dict[str, Any] | None
    key: str | None
    sent_key: str
    origin: Origin | None
    actor: str
    tries: int
    retry_of: str | None
    retried_as: str | None
    traffic: dict[str, Any] | None
    created_at: int
    started_at: int | None
    finished_at: int | None
    ahead: int | None = None


@dataclass(frozen=True)
class CallFilter:
    """Criteria of a list of calls; times in epoch ms, `before` is exclusive."""

    status: str | None = None
    action: str | None = None
    execution_id: str | None = None
    integration: str | None = None
    outcome: str | None = None
    after: int | None = None
    before: int | None = None


def list_calls(scope: TenantScope, slug: str, filters: CallFilter, page: PageRequest) -> Page[CallRecord]:
    """The calls of an integration, newest first; NotFound if there is no such integration."""
    scope.get(IntegrationRow, id=slug)
    return search_calls(scope, replace(filters, integration=slug), page)


def search_calls(scope: TenantScope, filters: CallFilter, page: PageRequest) -> Page[CallRecord]:
    """The calls of all integrations, newest first; ValidationFailed for an unknown status or outcome."""
    for name, value, allowed in (("status", filters.status, STATUSES), ("outcome", filters.outcome, OUTCOMES)):
        if value is not None and value not in allowed:
            raise ValidationFailed(
                Sentence("%(name)s must be one of %(known)s", name=name, known=", ".join(allowed)), pointer=f"/{name}"
            )
    query = scope.narrow(scope.select(CallRow), "integration", CallRow.integration_id)
    equal = {
        CallRow.status: filters.status, CallRow.action: filters.action, CallRow.execution_id: filters.execution_id,
        CallRow.integration_id: filters.integration, CallRow.outcome: filters.outcome,
    }  # fmt: skip
    for field, value in equal.items():
        if value is not None:
            query = query.where(field == value)
    if filters.after is not None:
        query = query.where(CallRow.created_at >= filters.after)
    if filters.before is not None:
        query = query.where(CallRow.created_at < filters.before)
    result = paginate(query, page, {"created_at": CallRow.created_at, "id": CallRow.id})
    return result.map(lambda row: _record(scope, row))


def get_call(scope: TenantScope, slug: str, call_id: str) -> CallRecord:
    """One call of an integration; NotFound."""
    return _record(scope, _row(scope, slug, call_id))


def settle_call(scope: TenantScope, slug: str, call_id: str, *, done: bool, output: Any) -> CallRecord:
    """Settle a call of unknown outcome by a person's decision: it happened (with this output), or it did not.

    Conflict if the call does not wait for a decision.
    """

    def settle() -> None:
        row = _row(scope, slug, call_id)
        if row.status != "waiting":
            raise Conflict(
                Sentence(
                    "the call %(call_id)s is %(status)s; only a call of unknown outcome can be settled",
                    call_id=call_id,
                    status=row.status,
                )
            )
        changes: dict[str, Any] = {"outcome": "not_done", "status": "failed"}
        if done:
            changes = {"outcome": "done", "status": "succeeded", "output": output, "output_kept": 1, "error": None}
        scope.update(CallRow, finished_at=clock.now_ms(), **changes).where(CallRow.id == call_id).execute()
        audit.record(scope, "call.settle", call_id, {"integration": slug, "outcome": changes["outcome"]})

    db.write(settle)
    return get_call(scope, slug, call_id)


def purge_calls(older_than_ms: int) -> int:
    """Delete finished calls of every tenant, except those of unknown outcome that are not settled; returns their number."""
    oldest = (
        "SELECT tenant_id, id FROM integration_call WHERE finished_at < ? AND status IN ('succeeded', 'failed') "
        "ORDER BY finished_at LIMIT ?"
    )
    sql = f"DELETE FROM integration_call WHERE (tenant_id, id) IN ({oldest})"  # noqa: S608  names of our own
    return delete_in_chunks(partial(db.execute, sql, (clock.now_ms() - older_than_ms, PURGE_CHUNK)))


def _row(scope: TenantScope, slug: str, call_id: str) -> CallRow:
    row = scope.find(CallRow, id=call_id, integration_id=slug)
    if row is None:
        scope.get(IntegrationRow, id=slug)
        raise NotFound(Sentence("there is no call %(call_id)s of this integration", call_id=repr(call_id[:80])))
    return row


def _record(scope: TenantScope, row: CallRow) -> CallRecord:
    origin = None
    if row.execution_id is not None:
        origin = Origin(row.execution_id, row.path or "", row.iteration or "", row.attempt or 1, row.host_call)
    return CallRecord(
        id=row.id, integration=row.integration_id, connector=row.connector, action=row.action, effect=cast(Effect, row.effect),
        status=cast(Status, row.status), outcome=cast(Outcome | None, row.outcome),
        input=row.input, output=row.output, error=row.error,
        key=row.idempotency_key, sent_key=row.sent_key, origin=origin, actor=row.actor, tries=row.tries,
        retry_of=row.retry_of, retried_as=_retried_as(scope, row), traffic=row.traffic,
        created_at=row.created_at, started_at=row.started_at, finished_at=row.finished_at,
        ahead=_ahead(scope, row) if row.status == "queued" else None,
    )  # fmt: skip


def _retried_as(scope: TenantScope, row: CallRow) -> str | None:
    if row.status != "failed":
        return None
    following = scope.find(CallRow, retry_of=row.id)
    return None if following is None else str(following.id)


def _ahead(scope: TenantScope, row: CallRow) -> int:
    return int(scope.select(CallRow).where((CallRow.status == "queued") & (CallRow.id < row.id)).count())
