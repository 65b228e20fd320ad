"""What holds for a folder and all below it: whether only what was approved may leave, and when documents are deleted."""

from dataclasses import dataclass
from typing import Literal

from appliance.core import clock, db
from appliance.core.errors import Conflict, NotFound, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.monitor import audit

from .delivery_models import FolderRuleRow
from .naming import check_folder

Review = Literal["none", "required"]
MOST_RULES = 500
LONGEST_DAYS = 36_500


@dataclass(frozen=True)
class FolderRule:
    """`review: required` holds for every folder below; `delete_after_days` unless one of those says another number."""

    folder: str
    review: Review = "none"
    delete_after_days: int | None = None
    updated_at: int = 0
    updated_by: str = ""


def put_rule(scope: TenantScope, rule: FolderRule) -> FolderRule:
    """Set the rule of a folder, which need not hold anything yet; ValidationFailed, Conflict."""
    folder = check_folder(rule.folder)
    if rule.delete_after_days is not None and not 1 <= rule.delete_after_days <= LONGEST_DAYS:
        raise ValidationFailed(f"delete_after_days is between 1 and {LONGEST_DAYS}", pointer="/delete_after_days")
    values = {"review": rule.review, "delete_after_days": rule.delete_after_days}

    def put() -> FolderRule:
        told = {**values, "updated_at": clock.now_ms(), "updated_by": scope.actor}
        if not scope.update(FolderRuleRow, **told).where(FolderRuleRow.folder == folder).execute():
            if scope.select(FolderRuleRow).count() >= MOST_RULES:
                raise Conflict(f"a tenant has at most {MOST_RULES} folder rules; give one to a folder above")
            scope.insert(FolderRuleRow, folder=folder, **told)
        audit.record(scope, "folder_rule.set", f"/{folder}", values)
        return _rule(scope.get(FolderRuleRow, folder=folder))

    return db.write(put)


def list_rules(scope: TenantScope) -> list[FolderRule]:
    """Every rule, by folder."""
    return [_rule(row) for row in scope.select(FolderRuleRow).order_by(FolderRuleRow.folder)]


def delete_rule(scope: TenantScope, folder: str) -> None:
    """Take the rule of a folder away; NotFound."""
    plain = check_folder(folder)

    def delete() -> None:
        if not scope.delete(FolderRuleRow).where(FolderRuleRow.folder == plain).execute():
            raise NotFound(f"there is no rule of the folder {plain[:80]!r} here")
        audit.record(scope, "folder_rule.delete", f"/{plain}")

    db.write(delete)


def demands_review(scope: TenantScope, folder: str) -> bool:
    """Whether only approved revisions of the documents in this folder may leave."""
    above = scope.select(FolderRuleRow).where(FolderRuleRow.folder.in_(folders_above(folder)), FolderRuleRow.review == "required")
    return bool(above.exists())


def folders_above(folder: str) -> list[str]:
    """The folder itself and every folder above it, down to the root."""
    parts = folder.split("/") if folder else []
    return ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]


def _rule(row: FolderRuleRow) -> FolderRule:
    review: Review = "required" if row.review == "required" else "none"
    return FolderRule(row.folder, review, row.delete_after_days, row.updated_at, row.updated_by)
