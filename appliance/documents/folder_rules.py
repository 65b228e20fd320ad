"""Rules for a folder and everything below it: whether documents need approval before delivery, and when they are deleted."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, ScopeMissing, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit

from .naming import check_folder
from .sharing.delivery_models import FolderRuleRow, PublicationRow, ShareRow

Review = Literal["none", "required"]
MOST_RULES = 500
LONGEST_DAYS = 36_500
SHARING = "documents.share"  # the scope needed to decide what is delivered
BATCH_SIZE = 500


@dataclass(frozen=True)
class FolderRule:
    """The rule of a folder. `review: required` applies to every folder below; `delete_after_days` unless a folder below
    overrides it."""

    folder: str
    review: Review = "none"
    delete_after_days: int | None = None
    updated_at: int = 0
    updated_by: str = ""


def put_rule(scope: TenantScope, rule: FolderRule) -> FolderRule:
    """Set the rule of a folder, which may be empty; ValidationFailed, Conflict."""
    folder = check_folder(rule.folder)
    if rule.delete_after_days is not None and not 1 <= rule.delete_after_days <= LONGEST_DAYS:
        raise ValidationFailed(
            Sentence("delete_after_days is between 1 and %(longest_days)s", longest_days=LONGEST_DAYS), pointer="/delete_after_days"
        )
    values = {"review": rule.review, "delete_after_days": rule.delete_after_days}

    def save() -> FolderRule:
        fields = {**values, "updated_at": clock.now_ms(), "updated_by": scope.actor}
        if not scope.update(FolderRuleRow, **fields).where(FolderRuleRow.folder == folder).execute():
            if scope.select(FolderRuleRow).count() >= MOST_RULES:
                raise Conflict(
                    Sentence("a tenant has at most %(most_rules)s folder rules; give one to a folder above", most_rules=MOST_RULES)
                )
            scope.insert(FolderRuleRow, folder=folder, **fields)
        audit.record(scope, "folder_rule.set", f"/{folder}", values)
        return _to_rule(scope.get(FolderRuleRow, folder=folder))

    return db.write(save)


def list_rules(scope: TenantScope) -> list[FolderRule]:
    """Every rule, sorted by folder."""
    return [_to_rule(row) for row in scope.select(FolderRuleRow).order_by(FolderRuleRow.folder)]


def delete_rule(scope: TenantScope, folder: str) -> None:
    """Delete the rule of a folder; NotFound."""
    plain = check_folder(folder)

    def delete() -> None:
        if not scope.delete(FolderRuleRow).where(FolderRuleRow.folder == plain).execute():
            raise NotFound(Sentence("the folder %(plain)s has no rule", plain=repr(plain[:80])))
        audit.record(scope, "folder_rule.delete", f"/{plain}")

    db.write(delete)


def requires_review(scope: TenantScope, folder: str) -> bool:
    """Whether documents in this folder need an approved revision for delivery."""
    rows = scope.select(FolderRuleRow).where(FolderRuleRow.folder.in_(folders_above(folder)), FolderRuleRow.review == "required")
    return bool(rows.exists())


def check_moves(scope: TenantScope, moves: Iterable[tuple[str, str, str]]) -> None:
    """Inside the write that moves documents (document, from, to): ScopeMissing when a public or shared document would leave the
    folders that require a review, so that unapproved content would be delivered. Actors who may share can do that."""
    if SHARING in scope.scopes:
        return
    moves = list(moves)
    requires = {folder: requires_review(scope, folder) for folder in {folder for _, *both in moves for folder in both}}
    released = [document_id for document_id, source, target in moves if requires[source] and not requires[target]]
    for begin in range(0, len(released), BATCH_SIZE):
        batch = released[begin : begin + BATCH_SIZE]
        public = scope.select(PublicationRow, PublicationRow.document_id).where(PublicationRow.document_id.in_(batch))
        live = scope.select(ShareRow, ShareRow.document_id).where(
            ShareRow.document_id.in_(batch), ShareRow.revoked_at.is_null(), ShareRow.expires_at > clock.now_ms()
        )
        exposed = next((row.document_id for query in (public, live) for row in query.limit(1)), None)
        if exposed is not None:
            raise ScopeMissing(
                Sentence(
                    "the document %(found)s is public or shared, and its new folder requires no review: this "
                    "needs the scope %(sharing)s; alternatively, first unpublish it and revoke its shares",
                    found=exposed, sharing=SHARING,
                ),
                extra={"scope": SHARING, "document": exposed},
            )


def folders_above(folder: str) -> list[str]:
    """The folder and all its parents, up to the root."""
    parts = folder.split("/") if folder else []
    return ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]


def _to_rule(row: FolderRuleRow) -> FolderRule:
    review: Review = "required" if row.review == "required" else "none"
    return FolderRule(row.folder, review, row.delete_after_days, row.updated_at, row.updated_by)
