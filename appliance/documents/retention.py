"""Retention of documents: a date until which a document cannot be deleted or moved, and legal holds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Conflict, NotFound, ValidationFailed
from appliance.core.scope import TenantScope, tenant_ids
from appliance.core.sentences import Sentence
from appliance.monitor import audit

from .folder_rules import folders_above
from .models import DocumentRow
from .sharing.delivery_models import FolderRuleRow, KeepingRow

DAY = 86_400_000
LONGEST_YEARS = 100
LONGEST_REASON = 1_000
AT_ONCE = 500


class DocumentKept(ApplianceError):
    """The document is retained or under a legal hold."""

    code, status = "document_kept", 409


@dataclass(frozen=True)
class Hold:
    """A legal hold: why, since when and by whom."""

    reason: str
    held_at: int
    held_by: str


@dataclass(frozen=True)
class Retention:
    """The retention of a document: until when it is retained (None: not), and its legal hold."""

    document_id: str
    retain_until: int | None = None
    hold: Hold | None = None


def get_retention(scope: TenantScope, document_id: str) -> Retention:
    """The retention of the document; NotFound."""
    scope.get(DocumentRow, id=document_id)
    row = scope.find(KeepingRow, document_id=document_id)
    return Retention(document_id) if row is None else _to_retention(row)


def set_retention(scope: TenantScope, document_id: str, until: int | None) -> Retention:
    """Retain the document until then, or end its retention; NotFound, ValidationFailed for a past date."""
    now = clock.now_ms()
    if until is not None and not now < until <= now + LONGEST_YEARS * 366 * DAY:
        raise ValidationFailed(
            Sentence("retain_until must be in the future, at most %(longest_years)s years ahead", longest_years=LONGEST_YEARS),
            pointer="/retain_until",
        )
    fields = {"until": clock.optional_rfc3339(until)}
    return _save(scope, document_id, {"retain_until": until}, ("document.retain", fields))


def set_hold(scope: TenantScope, document_id: str, reason: str) -> Retention:
    """Put the document under a legal hold, or change its reason; NotFound, ValidationFailed."""
    if not reason.strip() or len(reason) > LONGEST_REASON or "\0" in reason:
        raise ValidationFailed(
            Sentence("enter a reason of at most %(longest_reason)s characters", longest_reason=LONGEST_REASON), pointer="/reason"
        )
    values = {"hold_reason": reason, "held_at": clock.now_ms(), "held_by": scope.actor}
    return _save(scope, document_id, values, ("document.hold", {"reason": reason}))


def release_hold(scope: TenantScope, document_id: str) -> Retention:
    """Release the legal hold; NotFound when there is none."""
    if get_retention(scope, document_id).hold is None:
        raise NotFound(Sentence("the document %(document_id)s is not under a legal hold", document_id=repr(document_id[:80])))
    values = {"hold_reason": None, "held_at": None, "held_by": None}
    return _save(scope, document_id, values, ("document.release", {}))


def _save(scope: TenantScope, document_id: str, values: Mapping[str, Any], event: tuple[str, Mapping[str, Any]]) -> Retention:
    def save() -> Retention:
        scope.get(DocumentRow, id=document_id)
        if not scope.update(KeepingRow, **values).where(KeepingRow.document_id == document_id).execute():
            scope.insert(KeepingRow, document_id=document_id, **values)
        audit.record(scope, event[0], document_id, event[1])
        return get_retention(scope, document_id)

    return db.write(save)


def check_not_retained(scope: TenantScope, document_id: str, action: str) -> None:
    """Inside the write that deletes or moves the document: DocumentKept when it must stay. `done` is the refused action, such
    as `moved`."""
    row = scope.find(KeepingRow, document_id=document_id)
    if row is None:
        return
    if row.hold_reason is not None:
        raise DocumentKept(
            Sentence(
                "the document %(document_id)s is under a legal hold and cannot be %(done)s; see its retention",
                document_id=document_id, done=action,
            ),
            extra={"document": document_id},
        )
    if row.retain_until is not None and row.retain_until > clock.now_ms():
        raise DocumentKept(
            Sentence(
                "the document %(document_id)s is retained until %(retain_until)s and cannot be %(done)s before",
                document_id=document_id, retain_until=clock.rfc3339(row.retain_until), done=action,
            ),
            extra={"document": document_id},
        )


def check_none_retained(scope: TenantScope, document_ids: list[str], done: str) -> None:
    """Like `check_not_retained`, for many documents."""
    retained = KeepingRow.retain_until.is_null(False) & (KeepingRow.retain_until > clock.now_ms())
    query = scope.select(KeepingRow).where(KeepingRow.hold_reason.is_null(False) | retained)
    for row in query.where(KeepingRow.document_id.in_(document_ids)).limit(1):
        check_not_retained(scope, row.document_id, done)


def check_tenant_not_retained(scope: TenantScope) -> None:
    """Inside the write that deletes the tenant: DocumentKept while it has documents that must stay."""
    retained = KeepingRow.retain_until.is_null(False) & (KeepingRow.retain_until > clock.now_ms())
    query = scope.select(KeepingRow).where(KeepingRow.hold_reason.is_null(False) | retained)
    if count := query.count():
        are = "document of the tenant is" if count == 1 else "documents of the tenant are"
        raise DocumentKept(
            Sentence("%(count)s %(are)s retained or under a legal hold; release them first, or use --force", count=count, are=are)
        )


@dataclass(frozen=True)
class Overdue:
    """A document whose newest content is older than `days`, as of `version`."""

    document_id: str
    version: int
    days: int


def list_overdue() -> Iterator[tuple[TenantScope, Overdue]]:
    """Every document whose newest content is older than its nearest folder rule allows, unless it is retained."""
    for tenant_id in tenant_ids():
        scope = TenantScope(tenant_id, "system")
        rules = {
            row.folder: row.delete_after_days
            for row in scope.select(FolderRuleRow).where(FolderRuleRow.delete_after_days.is_null(False))
        }
        for folder, days in rules.items():
            for document_id, document_folder, version in _list_older(scope, folder, days):
                nearest = next(parent for parent in folders_above(document_folder) if parent in rules)
                if nearest == folder:
                    yield scope, Overdue(document_id, version, days)


def check_still_overdue(scope: TenantScope, overdue: Overdue, folder: str) -> None:
    """Inside the write that deletes the document: Conflict when its folder's rule has changed since."""
    parents = folders_above(folder)
    rules = scope.select(FolderRuleRow).where(FolderRuleRow.folder.in_(parents), FolderRuleRow.delete_after_days.is_null(False))
    nearest = max(rules, key=lambda row: len(row.folder), default=None)
    if nearest is None or nearest.delete_after_days != overdue.days:
        raise Conflict(Sentence("the folder rule of the document %(document_id)s has changed", document_id=overdue.document_id))


def _list_older(scope: TenantScope, folder: str, days: int) -> Iterator[tuple[str, str, int]]:
    """(document, folder, version) of old documents in a folder and below; `0` is the character after `/`."""
    now, last = clock.now_ms(), ""
    below = "d.folder = ? OR (d.folder > ? AND d.folder < ?)" if folder else "d.folder = ? OR d.folder > ? OR d.folder < ?"
    while True:
        rows = db.rows(
            "SELECT d.id, d.folder, d.version FROM document d "  # noqa: S608  constants only
            "JOIN document_revision r ON r.tenant_id = d.tenant_id AND r.document_id = d.id AND r.number = d.revision "
            "LEFT JOIN document_keeping k ON k.tenant_id = d.tenant_id AND k.document_id = d.id "
            f"WHERE d.tenant_id = ? AND d.id > ? AND ({below}) AND r.created_at < ? AND k.hold_reason IS NULL "
            f"AND (k.retain_until IS NULL OR k.retain_until <= ?) ORDER BY d.id LIMIT {AT_ONCE}",
            (scope.tenant_id, last, folder, f"{folder}/" if folder else "", f"{folder}0" if folder else "", now - days * DAY, now),
        )
        yield from ((str(document_id), str(its_folder), int(version)) for document_id, its_folder, version in rows)
        if len(rows) < AT_ONCE:
            return
        last = str(rows[-1][0])


def _to_retention(row: KeepingRow) -> Retention:
    hold = None if row.hold_reason is None else Hold(row.hold_reason, row.held_at, row.held_by)
    return Retention(row.document_id, row.retain_until, hold)
