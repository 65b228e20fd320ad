"""What holds for a folder and all below it: whether only what was approved may leave, and when documents are deleted."""

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
SHARING = "documents.share"  # the scope of those who decide what leaves
LOOKED_UP_AT_ONCE = 500


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
        raise ValidationFailed(
            Sentence("delete_after_days is between 1 and %(longest_days)s", longest_days=LONGEST_DAYS), pointer="/delete_after_days"
        )
    values = {"review": rule.review, "delete_after_days": rule.delete_after_days}

    def put() -> FolderRule:
        told = {**values, "updated_at": clock.now_ms(), "updated_by": scope.actor}
        if not scope.update(FolderRuleRow, **told).where(FolderRuleRow.folder == folder).execute():
            if scope.select(FolderRuleRow).count() >= MOST_RULES:
                raise Conflict(
                    Sentence("a tenant has at most %(most_rules)s folder rules; give one to a folder above", most_rules=MOST_RULES)
                )
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
            raise NotFound(Sentence("there is no rule of the folder %(plain)s here", plain=repr(plain[:80])))
        audit.record(scope, "folder_rule.delete", f"/{plain}")

    db.write(delete)


def demands_review(scope: TenantScope, folder: str) -> bool:
    """Whether only approved revisions of the documents in this folder may leave."""
    above = scope.select(FolderRuleRow).where(FolderRuleRow.folder.in_(folders_above(folder)), FolderRuleRow.review == "required")
    return bool(above.exists())


def refuse_freeing(scope: TenantScope, moves: Iterable[tuple[str, str, str]]) -> None:
    """Inside the write that moves documents (document, from, to): ScopeMissing when one that is public or shared would leave
    the folders that demand a review, and what nobody has approved would be delivered; unless who moves it may share."""
    if SHARING in scope.scopes:
        return
    moves = list(moves)
    demanding = {folder: demands_review(scope, folder) for folder in {folder for _, *both in moves for folder in both}}
    freed = [document_id for document_id, source, target in moves if demanding[source] and not demanding[target]]
    for begin in range(0, len(freed), LOOKED_UP_AT_ONCE):
        some = freed[begin : begin + LOOKED_UP_AT_ONCE]
        public = scope.select(PublicationRow, PublicationRow.document_id).where(PublicationRow.document_id.in_(some))
        live = scope.select(ShareRow, ShareRow.document_id).where(
            ShareRow.document_id.in_(some), ShareRow.revoked_at.is_null(), ShareRow.expires_at > clock.now_ms()
        )
        found = next((row.document_id for query in (public, live) for row in query.limit(1)), None)
        if found is not None:
            raise ScopeMissing(
                Sentence(
                    "the document %(found)s is public or shared, and where it is going nobody demands a review: this "
                    "needs the scope %(sharing)s; or end its publication and its shares first",
                    found=found, sharing=SHARING,
                ),
                extra={"scope": SHARING, "document": found},
            )


def folders_above(folder: str) -> list[str]:
    """The folder itself and every folder above it, down to the root."""
    parts = folder.split("/") if folder else []
    return ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]


def _rule(row: FolderRuleRow) -> FolderRule:
    review: Review = "required" if row.review == "required" else "none"
    return FolderRule(row.folder, review, row.delete_after_days, row.updated_at, row.updated_by)
