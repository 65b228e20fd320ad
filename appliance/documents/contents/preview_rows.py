"""The previews that are kept: which contents have one, and why a content has none."""

from collections.abc import Iterable
from dataclasses import dataclass

from peewee import BigIntegerField, CompositeKey, IntegerField, TextField

from appliance.core.database import db
from appliance.core.database.db import TenantModel
from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.documents.models import DocumentRevision


class PreviewRow(TenantModel):
    """The blob `sha256` shows page `page` of `content`; or nothing does, because of `refusal`, a code, for this `reason`."""

    label = "preview"
    content = TextField()
    page = IntegerField()
    width = IntegerField()
    sha256 = TextField(null=True)
    size = BigIntegerField()
    refusal = TextField(null=True)
    reason = TextField(null=True)

    class Meta:
        primary_key = CompositeKey("tenant_id", "content", "page", "width")
        table_name = "document_preview"


@dataclass(frozen=True)
class Frame:
    """What is shown: a page of a content, at a width."""

    content: str
    page: int
    width: int


@dataclass(frozen=True)
class Outcome:
    """What came of painting it: a blob, or the code and the sentence of a refusal."""

    sha256: str | None = None
    size: int = 0
    refusal: str | None = None
    reason: str | None = None


def find(scope: TenantScope, frame: Frame) -> Outcome | None:
    """What is kept; None when it was never painted."""
    row = scope.find(PreviewRow, content=frame.content, page=frame.page, width=frame.width)
    return None if row is None else Outcome(row.sha256, row.size, row.refusal, row.reason)


def refused(scope: TenantScope, contents: Iterable[str], width: int) -> set[str]:
    """Those of the contents whose first page cannot be painted at this width, as far as it has been tried."""
    rows = scope.select(PreviewRow).where(
        PreviewRow.content.in_(list(contents)), PreviewRow.page == 1, PreviewRow.width == width, PreviewRow.sha256.is_null()
    )
    return {row.content for row in rows}


def keep(scope: TenantScope, frame: Frame, outcome: Outcome) -> None:
    """Inside a write that holds the blob; what was kept first stays.  NotFound when the last document was deleted meanwhile."""
    if not scope.select(DocumentRevision).where(DocumentRevision.sha256 == frame.content).exists():
        raise NotFound("the document was deleted while its preview was made")
    db.execute(
        "INSERT INTO document_preview (tenant_id, content, page, width, sha256, size, refusal, reason) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant_id, content, page, width) DO NOTHING",
        (
            scope.tenant_id, frame.content, frame.page, frame.width,
            outcome.sha256, outcome.size, outcome.refusal, outcome.reason,
        ),
    )  # fmt: skip


def forget_unused(scope: TenantScope, contents: Iterable[str]) -> None:
    """Inside the write that has deleted a document: the previews of contents that no revision has any more."""
    for content in contents:
        if not scope.select(DocumentRevision).where(DocumentRevision.sha256 == content).exists():
            scope.delete(PreviewRow).where(PreviewRow.content == content).execute()


def forget_all(scope: TenantScope) -> None:
    """Inside the write that deletes the tenant."""
    scope.delete(PreviewRow).execute()
