"""Filters documents, and converts rows to documents."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from appliance.core.database import full_text
from appliance.core.database.id_lists import is_listed
from appliance.core.pages import Page, PageRequest, paginate, paginate_few, parse_sort
from appliance.core.scope import TenantScope

from . import candidates, metadata
from .contents import texts
from .models import DocumentRow, DocumentTag
from .naming import check_folder
from .records import Document, DocumentFilter
from .reviews import reviews

_SORTED_BY = {name: getattr(DocumentRow, name) for name in ("id", "name", "folder", "size", "created_at", "updated_at")}
_OF_ROW = [each.name for each in fields(Document) if each.name in DocumentRow._meta.fields]


def find_page(scope: TenantScope, filters: DocumentFilter, request: PageRequest) -> Page[DocumentRow]:
    """A page of the rows that match all filters; ValidationFailed, InvalidFilter.

    The search uses indexed columns only; complete rows are loaded for the page alone.
    """
    order = parse_sort(request.sort, _SORTED_BY, "-created_at")
    columns = [_SORTED_BY[name] for name in dict.fromkeys(["id", *(name for name, _ in order)])]
    matches = None if filters.search is None else texts.find_matches(scope, full_text.parse_search(filters.search), candidates.MANY)
    ids = candidates.find_candidates(scope, filters, matches)
    if ids is not None:
        # Complete rows at once: for columns that an index has, SQLite would read all of that index.
        return paginate_few(_filter(scope, filters, matches).where(is_listed("id", ids)), request, _SORTED_BY)
    page = paginate(_filter(scope, filters, matches, *columns), request, _SORTED_BY)
    rows_by_id = {row.id: row for row in scope.select(DocumentRow).where(is_listed("id", [row.id for row in page.items]))}
    return page.map(lambda row: rows_by_id[row.id])


def _filter(scope: TenantScope, filters: DocumentFilter, matches: texts.TextMatches | None, *columns: Any) -> Any:
    """A query for the given columns of the rows that match all filters; ValidationFailed, InvalidFilter."""
    query = scope.select(DocumentRow, *columns)
    if filters.name is not None:
        query = query.where(DocumentRow.name.contains(filters.name))
    if filters.folder is not None:
        query = query.where(DocumentRow.folder == check_folder(filters.folder))
    if filters.under is not None and (under := check_folder(filters.under, "/under")):
        below = (DocumentRow.folder > f"{under}/") & (DocumentRow.folder < f"{under}0")  # `0` is the character after `/`
        query = query.where((DocumentRow.folder == under) | below)
    if filters.tag is not None:
        tagged = scope.select(DocumentTag, DocumentTag.document_id).where(DocumentTag.tag == filters.tag)
        query = query.where(DocumentRow.id.in_(tagged))
    if filters.media_type is not None:
        main, _, sub = filters.media_type.partition("/")
        exact = DocumentRow.media_type == filters.media_type
        query = query.where(DocumentRow.media_type.startswith(f"{main}/") if sub == "*" else exact)
    if matches is not None:
        in_name = DocumentRow.name.contains(candidates.name_part(filters.search or ""))
        query = query.where(in_name | texts.is_matching(scope, matches, DocumentRow.sha256))
    return metadata.filter_by_metadata(scope, query, DocumentRow.id, filters.metadata)


def to_documents(scope: TenantScope, rows: Iterable[DocumentRow]) -> list[Document]:
    """Documents of the rows, with their tags and the states of their reviews and texts."""
    rows = list(rows)
    tags: dict[str, list[str]] = {row.id: [] for row in rows}
    for each in scope.select(DocumentTag).where(is_listed("document_id", list(tags))).order_by(DocumentTag.tag):
        tags[each.document_id].append(each.tag)
    reviews_by_id = reviews.summarize(scope, rows)
    text_states = texts.states(scope, [row.sha256 for row in rows])
    return [
        Document(
            **{name: row.__data__[name] for name in _OF_ROW},
            tags=tuple(sorted(tags[row.id])),
            review=reviews_by_id[row.id].review,
            approved_revision=reviews_by_id[row.id].approved_revision,
            text_state=text_states.get(row.sha256, "none"),
        )
        for row in rows
    ]
