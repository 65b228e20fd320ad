"""Stored previews: which contents have one, and why others have none."""

from collections.abc import Iterable
from dataclasses import dataclass

from peewee import BigIntegerField, CompositeKey, IntegerField, TextField

from appliance.core.database import db
from appliance.core.database.db import TenantModel
from appliance.core.database.id_lists import is_listed
from appliance.core.database.sentence_fields import SentenceField, dump_sentence
from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.documents.models import DocumentRevision


class PreviewRow(TenantModel):
    """The preview of page `page` of `content` is the blob `sha256`; or there is none, with `refusal` (a code) and `reason`."""

    label = "preview"
    content = TextField()
    page = IntegerField()
    width = IntegerField()
    sha256 = TextField(null=True)
    size = BigIntegerField()
    refusal = TextField(null=True)
    reason = SentenceField(null=True)

    class Meta:
        primary_key = CompositeKey("tenant_id", "content", "page", "width")
        table_name = "document_preview"


@dataclass(frozen=True)
class PreviewKey:
    """A page of a content, at a width."""

    content: str
    page: int
    width: int


@dataclass(frozen=True)
class PreviewResult:
    """The result of rendering: a blob, or the code and sentence of a refusal."""

    sha256: str | None = None
    size: int = 0
    refusal: str | None = None
    reason: str | None = None


def find(scope: TenantScope, frame: PreviewKey) -> PreviewResult | None:
    """The stored result; None when it was never rendered."""
    row = scope.find(PreviewRow, content=frame.content, page=frame.page, width=frame.width)
    return None if row is None else PreviewResult(row.sha256, row.size, row.refusal, row.reason)


def list_refused(scope: TenantScope, contents: Iterable[str], width: int) -> set[str]:
    """The contents whose first page is known not to render at this width."""
    rows = scope.select(PreviewRow).where(
        is_listed("content", sorted(set(contents))), PreviewRow.page == 1, PreviewRow.width == width, PreviewRow.sha256.is_null()
    )
    return {row.content for row in rows}


def save(scope: TenantScope, key: PreviewKey, result: PreviewResult) -> None:
    """Inside a write that holds the blob; an earlier result stays. NotFound when the last document was deleted in the meantime."""
    if not scope.select(DocumentRevision).where(DocumentRevision.sha256 == key.content).exists():
        raise NotFound("the document was deleted while its preview was rendered")
    db.execute(
        "INSERT INTO document_preview (tenant_id, content, page, width, sha256, size, refusal, reason) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant_id, content, page, width) DO NOTHING",
        (
            scope.tenant_id, key.content, key.page, key.width,
            result.sha256, result.size, result.refusal, dump_sentence(result.reason),
        ),
    )  # fmt: skip


def forget_unused(scope: TenantScope, contents: Iterable[str]) -> None:
    """Inside the write that deleted a document: delete the previews of contents that no revision uses."""
    for content in contents:
        if not scope.select(DocumentRevision).where(DocumentRevision.sha256 == content).exists():
            scope.delete(PreviewRow).where(PreviewRow.content == content).execute()


def forget_all(scope: TenantScope) -> None:
    """Inside the write that deletes the tenant: delete all its previews."""
    scope.delete(PreviewRow).execute()
