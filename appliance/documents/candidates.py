"""Finds the few documents among which all matches of a filter are, through an index."""

from collections.abc import Iterator, Sequence

from appliance.core.database import db
from appliance.core.database.id_lists import is_listed
from appliance.core.database.substrings import SubstringIndex
from appliance.core.scope import TenantScope

from .contents.texts import TextMatches
from .folder_keys import KEY, end_key, start_key
from .models import DocumentRevision
from .naming import check_folder
from .records import DocumentFilter

NAMES = SubstringIndex("document", "number", "name")
MANY = 1_000
"""Fewer candidates are sorted.  With that many, a scan from the newest document finds enough matches soon."""


def find_candidates(scope: TenantScope, filters: DocumentFilter, texts: TextMatches | None) -> Sequence[str] | None:
    """The ids of the documents that may match, or None if there may be many; `texts` are the matches of the filter's search."""
    return next((ids for ids in _find_by_index(scope, filters, texts) if ids is not None and len(ids) < MANY), None)


def _find_by_index(
    scope: TenantScope, filters: DocumentFilter, texts: TextMatches | None
) -> Iterator[Sequence[str] | None]:
    """What each index that serves the filter finds; each is read when the one before found too many."""
    if filters.name:
        yield _with_name(scope, filters.name)
    if texts is not None and texts.contents is not None:
        by_name = _with_name(scope, name_part(filters.search or ""))
        yield by_name if by_name is None else [*by_name, *_with_contents(scope, texts.contents)]
    if filters.under is not None and (under := check_folder(filters.under, "/under")):
        yield _ids(scope, f"{KEY} >= ? AND {KEY} < ?", (start_key(under), end_key(under)))
    if filters.media_type is not None:
        main, _, sub = filters.media_type.partition("/")
        if sub == "*":
            first, end = f"{main.lower()}/", f"{main.lower()}0"  # `0` is the character after `/`
            yield _ids(scope, "media_type >= ? AND media_type < ?", (first, end))


def _with_contents(scope: TenantScope, contents: Sequence[str]) -> Sequence[str]:
    """The documents of up to `MANY` revisions that have one of these contents, each once for each revision."""
    query = scope.select(DocumentRevision, DocumentRevision.document_id).where(is_listed("sha256", contents))
    return [row.document_id for row in query.limit(MANY)]


def name_part(search: str) -> str:
    """What a search looks for in names."""
    return search.replace("\0", "").strip()


def _ids(scope: TenantScope, condition: str, params: tuple[str, str]) -> Sequence[str]:
    """The ids of up to `MANY` documents with a condition on the columns of an index."""
    sql = f"SELECT id FROM document WHERE tenant_id = ? AND {condition} LIMIT ?"  # noqa: S608  constants only
    return [str(id_) for (id_,) in db.rows(sql, (scope.tenant_id, *params, MANY))]


def _with_name(scope: TenantScope, part: str) -> Sequence[str] | None:
    """The ids of documents that may have the text in their name; None without an index, or if there may be many."""
    numbers = NAMES.find_numbers(part, MANY)
    if numbers is None or len(numbers) >= MANY:
        return None
    places = ", ".join("?" * len(numbers)) or "NULL"
    # Without an index of the tenant, which SQLite prefers to that of the numbers.
    sql = f"SELECT id FROM document WHERE COALESCE(tenant_id, '') = ? AND number IN ({places})"  # noqa: S608  places only
    return [str(id_) for (id_,) in db.rows(sql, (scope.tenant_id, *numbers))]
