"""Rows of documents as documents, and which of them a list shows."""

from collections.abc import Iterable
from typing import Any

from appliance.core import full_text
from appliance.core.scope import TenantScope

from . import metadata, reviews, texts
from .models import DocumentRow, DocumentTag
from .naming import check_folder
from .records import Document, Wanted


def chosen(scope: TenantScope, wanted: Wanted) -> Any:
    """The query of the rows that fulfil every wish; ValidationFailed, InvalidFilter."""
    query = scope.select(DocumentRow)
    if wanted.name is not None:
        query = query.where(DocumentRow.name.contains(wanted.name))
    if wanted.folder is not None:
        query = query.where(DocumentRow.folder == check_folder(wanted.folder))
    if wanted.tag is not None:
        tagged = scope.select(DocumentTag, DocumentTag.document_id).where(DocumentTag.tag == wanted.tag)
        query = query.where(DocumentRow.id.in_(tagged))
    if wanted.media_type is not None:
        main, _, sub = wanted.media_type.partition("/")
        exact = DocumentRow.media_type == wanted.media_type
        query = query.where(DocumentRow.media_type.startswith(f"{main}/") if sub == "*" else exact)
    if wanted.search is not None:
        in_text = DocumentRow.sha256.in_(texts.found_in(scope, full_text.search_words(wanted.search)))
        query = query.where(in_text | DocumentRow.name.contains(wanted.search.replace("\0", "").strip()))
    return metadata.having(scope, query, DocumentRow.id, wanted.metadata)


def shown(scope: TenantScope, rows: Iterable[DocumentRow]) -> list[Document]:
    """The rows with their tags and what is known of their newest contents."""
    rows = list(rows)
    tags: dict[str, list[str]] = {row.id: [] for row in rows}
    for each in scope.select(DocumentTag).where(DocumentTag.document_id.in_(list(tags))).order_by(DocumentTag.tag):
        tags[each.document_id].append(each.tag)
    standing = reviews.standings(scope, rows)
    read = texts.states(scope, [row.sha256 for row in rows])
    return [
        Document(
            row.id, row.name, row.folder, tuple(sorted(tags[row.id])), row.media_type, row.size, row.sha256, row.revision,
            row.version, row.created_at, row.created_by, row.updated_at, row.metadata, standing[row.id].review,
            standing[row.id].approved_revision, read.get(row.sha256, "none"),
        )
        for row in rows
    ]  # fmt: skip
