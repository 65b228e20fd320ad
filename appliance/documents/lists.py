"""Rows of documents as documents, and which of them a list shows."""

from collections.abc import Iterable
from typing import Any

from appliance.core.database import full_text
from appliance.core.pages import Page, PageRequest, paginate, parse_sort
from appliance.core.scope import TenantScope

from . import metadata
from .contents import texts
from .models import DocumentRow, DocumentTag
from .naming import check_folder
from .records import Document, Wanted
from .reviews import reviews

_SORTED_BY = {name: getattr(DocumentRow, name) for name in ("id", "name", "folder", "size", "created_at", "updated_at")}


def page_of(scope: TenantScope, wanted: Wanted, request: PageRequest) -> Page[DocumentRow]:
    """A page of the rows that fulfil every wish; ValidationFailed, InvalidFilter.

    What is looked through is what an index has; whole rows are read of this page alone.
    """
    order = parse_sort(request.sort, _SORTED_BY, "-created_at")
    columns = [_SORTED_BY[name] for name in dict.fromkeys(["id", *(name for name, _ in order)])]
    page = paginate(chosen(scope, wanted, *columns), request, _SORTED_BY)
    whole = {row.id: row for row in scope.select(DocumentRow).where(DocumentRow.id.in_([row.id for row in page.items]))}
    return page.map(lambda row: whole[row.id])


def chosen(scope: TenantScope, wanted: Wanted, *columns: Any) -> Any:
    """The query of the rows, of these columns of them, that fulfil every wish; ValidationFailed, InvalidFilter."""
    query = scope.select(DocumentRow, *columns)
    if wanted.name is not None:
        query = query.where(DocumentRow.name.contains(wanted.name))
    if wanted.folder is not None:
        query = query.where(DocumentRow.folder == check_folder(wanted.folder))
    if wanted.under is not None and (under := check_folder(wanted.under, "/under")):
        below = (DocumentRow.folder > f"{under}/") & (DocumentRow.folder < f"{under}0")  # `0` is the character after `/`
        query = query.where((DocumentRow.folder == under) | below)
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
