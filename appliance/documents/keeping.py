"""What keeps a document from being deleted or moved: a day until which it is retained, and a legal hold."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Conflict, NotFound, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit, tenant_ids

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
class Keeping:
    """Until when a document stays (None: no such day), and the hold it is under."""

    document_id: str
    retain_until: int | None = None
    hold: Hold | None = None


def get_keeping(scope: TenantScope, document_id: str) -> Keeping:
    """What keeps the document; NotFound."""
    scope.get(DocumentRow, id=document_id)
    row = scope.find(KeepingRow, document_id=document_id)
    return Keeping(document_id) if row is None else _keeping(row)


def set_retention(scope: TenantScope, document_id: str, until: int | None) -> Keeping:
    """Retain the document until then, or no longer; NotFound, ValidationFailed for a day that is past."""
    now = clock.now_ms()
    if until is not None and not now < until <= now + LONGEST_YEARS * 366 * DAY:
        raise ValidationFailed(
            Sentence("retain_until lies in the future, at most %(longest_years)s years ahead", longest_years=LONGEST_YEARS),
            pointer="/retain_until",
        )
    told = {"until": clock.optional_rfc3339(until)}
    return _put(scope, document_id, {"retain_until": until}, ("document.retain", told))


def set_hold(scope: TenantScope, document_id: str, reason: str) -> Keeping:
    """Put the document under a legal hold, or change its reason; NotFound, ValidationFailed."""
    if not reason.strip() or len(reason) > LONGEST_REASON or "\0" in reason:
        raise ValidationFailed(
            Sentence("say why, in at most %(longest_reason)s characters", longest_reason=LONGEST_REASON), pointer="/reason"
        )
    values = {"hold_reason": reason, "held_at": clock.now_ms(), "held_by": scope.actor}
    return _put(scope, document_id, values, ("document.hold", {"reason": reason}))


def release_hold(scope: TenantScope, document_id: str) -> Keeping:
    """End the legal hold; NotFound when there is none."""
    if get_keeping(scope, document_id).hold is None:
        raise NotFound(Sentence("the document %(document_id)s is under no legal hold", document_id=repr(document_id[:80])))
    values = {"hold_reason": None, "held_at": None, "held_by": None}
    return _put(scope, document_id, values, ("document.release", {}))


def _put(scope: TenantScope, document_id: str, values: Mapping[str, Any], told: tuple[str, Mapping[str, Any]]) -> Keeping:
    def put() -> Keeping:
        scope.get(DocumentRow, id=document_id)
        if not scope.update(KeepingRow, **values).where(KeepingRow.document_id == document_id).execute():
            scope.insert(KeepingRow, document_id=document_id, **values)
        audit.record(scope, told[0], document_id, told[1])
        return get_keeping(scope, document_id)

    return db.write(put)


def refuse_kept(scope: TenantScope, document_id: str, done: str) -> None:
    """Inside the write that would end or move the document: DocumentKept when it must stay.  `done` is what cannot be done."""
    row = scope.find(KeepingRow, document_id=document_id)
    if row is None:
        return
    if row.hold_reason is not None:
        raise DocumentKept(
            Sentence(
                "the document %(document_id)s is under a legal hold and cannot be %(done)s; see its retention",
                document_id=document_id, done=done,
            ),
            extra={"document": document_id},
        )
    if row.retain_until is not None and row.retain_until > clock.now_ms():
        raise DocumentKept(
            Sentence(
                "the document %(document_id)s is retained until %(retain_until)s and cannot be %(done)s before",
                document_id=document_id, retain_until=clock.rfc3339(row.retain_until), done=done,
            ),
            extra={"document": document_id},
        )


def refuse_any_kept(scope: TenantScope, document_ids: list[str], done: str) -> None:
    """As `refuse_kept`, for many at once."""
    retained = KeepingRow.retain_until.is_null(False) & (KeepingRow.retain_until > clock.now_ms())
    kept = scope.select(KeepingRow).where(KeepingRow.hold_reason.is_null(False) | retained)
    for row in kept.where(KeepingRow.document_id.in_(document_ids)).limit(1):
        refuse_kept(scope, row.document_id, done)


def refuse_tenant_with_kept(scope: TenantScope) -> None:
    """Inside the write that deletes the tenant: DocumentKept while a document of it must stay."""
    retained = KeepingRow.retain_until.is_null(False) & (KeepingRow.retain_until > clock.now_ms())
    kept = scope.select(KeepingRow).where(KeepingRow.hold_reason.is_null(False) | retained)
    if count := kept.count():
        are = "document of the tenant is" if count == 1 else "documents of the tenant are"
        raise DocumentKept(
            Sentence("%(count)s %(are)s retained or under a legal hold; release what is kept, or use --force", count=count, are=are)
        )


@dataclass(frozen=True)
class Overdue:
    """A document whose newest content was older than `days` when it was at `version`."""

    document_id: str
    version: int
    days: int


def overdue_documents() -> Iterator[tuple[TenantScope, Overdue]]:
    """Every document whose newest content is older than the nearest rule of its folders allows, and which nothing keeps."""
    for tenant_id in tenant_ids():
        scope = TenantScope(tenant_id, "system")
        rules = {
            row.folder: row.delete_after_days
            for row in scope.select(FolderRuleRow).where(FolderRuleRow.delete_after_days.is_null(False))
        }
        for folder, days in rules.items():
            for document_id, its_folder, version in _older(scope, folder, days):
                nearest = next(above for above in folders_above(its_folder) if above in rules)
                if nearest == folder:
                    yield scope, Overdue(document_id, version, days)


def refuse_unruled(scope: TenantScope, overdue: Overdue, folder: str) -> None:
    """Inside the write that deletes what was overdue: Conflict unless the rule of its folder is what it was then."""
    above = folders_above(folder)
    ruled = scope.select(FolderRuleRow).where(FolderRuleRow.folder.in_(above), FolderRuleRow.delete_after_days.is_null(False))
    nearest = max(ruled, key=lambda row: len(row.folder), default=None)
    if nearest is None or nearest.delete_after_days != overdue.days:
        raise Conflict(Sentence("the rule over the document %(document_id)s has changed", document_id=overdue.document_id))


def _older(scope: TenantScope, folder: str, days: int) -> Iterator[tuple[str, str, int]]:
    """(document, folder, version) at and below a folder; `0` is the character after `/`."""
    now, last = clock.now_ms(), ""
    below = "d.folder = ? OR (d.folder > ? AND d.folder < ?)" if folder else "d.folder = ? OR d.folder > ? OR d.folder < ?"
    while True:
        found = db.rows(
            "SELECT d.id, d.folder, d.version FROM document d "  # noqa: S608  ours
            "JOIN document_revision r ON r.tenant_id = d.tenant_id AND r.document_id = d.id AND r.number = d.revision "
            "LEFT JOIN document_keeping k ON k.tenant_id = d.tenant_id AND k.document_id = d.id "
            f"WHERE d.tenant_id = ? AND d.id > ? AND ({below}) AND r.created_at < ? AND k.hold_reason IS NULL "
            f"AND (k.retain_until IS NULL OR k.retain_until <= ?) ORDER BY d.id LIMIT {AT_ONCE}",
            (scope.tenant_id, last, folder, f"{folder}/" if folder else "", f"{folder}0" if folder else "", now - days * DAY, now),
        )
        yield from ((str(document_id), str(its_folder), int(version)) for document_id, its_folder, version in found)
        if len(found) < AT_ONCE:
            return
        last = str(found[-1][0])


def _keeping(row: KeepingRow) -> Keeping:
    hold = None if row.hold_reason is None else Hold(row.hold_reason, row.held_at, row.held_by)
    return Keeping(row.document_id, row.retain_until, hold)
