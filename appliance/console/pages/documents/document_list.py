"""The list of documents: one folder with its direct content, or search results from a folder and below, or from everywhere."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Visit, page
from appliance.core.database import full_text
from appliance.core.errors import ApplianceError
from appliance.core.texts import mark
from appliance.documents import Document, DocumentFilter, Order, browsing, check_folder
from appliance.documents.contents import previews, texts
from appliance.documents.reviews import Review, reviews

BASE = "/console/documents"
THUMBNAIL_WIDTH = 160
SEARCHED_CHARACTERS = 200
KINDS = (
    ("application/pdf", "PDF"), ("image/*", mark("Images")), ("text/*", mark("Text")), ("application/json", "JSON"),
    ("audio/*", mark("Audio")), ("video/*", mark("Videos")), ("application/*", mark("Application files")),
)  # fmt: skip


@dataclass(frozen=True)
class DocumentListQuery:
    """The state of the list in its URL; it browses a folder unless there is a search, a type filter or `below`."""

    folder: str = ""
    search: str = ""
    kind: str = ""
    everywhere: bool = False
    below: bool = False
    newest: bool = False

    @property
    def is_narrowed(self) -> bool:
        return bool(self.search or self.kind)

    @property
    def is_search(self) -> bool:
        """Whether it lists search results, newest first, instead of browsing a folder."""
        return self.is_narrowed or self.below

    @property
    def words(self) -> list[str]:
        return list(dict.fromkeys(word for _, _, word in full_text.iterate_words(self.search)))

    @property
    def order(self) -> Order:
        return "-created_at" if self.newest else "name"

    @property
    def filters(self) -> DocumentFilter:
        """The filter of the search: full text for up to `MAX_SEARCH_WORDS` words, otherwise a part of the document's name."""
        filters = DocumentFilter(under=None if self.everywhere else self.folder, media_type=self.kind or None)
        by_words = 1 <= len(self.words) <= full_text.MAX_SEARCH_WORDS
        return replace(filters, search=self.search) if by_words else replace(filters, name=self.search or None)

    @property
    def query_string(self) -> str:
        parts = {
            "folder": self.folder, "search": self.search, "kind": self.kind, "in": "all" if self.everywhere else "",
            "below": "1" if self.below else "", "order": "newest" if self.newest else "",
        }  # fmt: skip
        return urlencode({name: value for name, value in parts.items() if value})

    def address(self, **changes: Any) -> str:
        """The URL with these changes; defaults are omitted."""
        query_string = (replace(self, **changes) if changes else self).query_string
        return f"{BASE}?{query_string}" if query_string else BASE

    def browse(self, folder: str) -> str:
        """The URL that browses a folder, in the current order."""
        return DocumentListQuery(folder, newest=self.newest).address()


@page("GET", "/documents", scope="documents.read")
def list_documents(visit: Visit) -> Answer:
    """A folder of the tenant's documents or search results, and the reviews that wait for this visitor."""
    return list_page(visit)


def list_page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    """The list, with the error of an upload if there was one."""
    query = _parse_query(visit)
    values = {
        "look": query, "crumbs_above": [(name, query.browse(path)) for name, path in folders_above(query.folder)],
        "names": Names(visit), "width": THUMBNAIL_WIDTH, "problem": problem, "kinds": KINDS,
        "sent": {name: visit.request.field(name) for name in ("folder", "tags")}, "is_sent": problem is not None,
        "most": visit.services.config.limits.upload_mb, "counted": browsing.MAX_COUNT,
        **(_search_values(visit, query) if query.is_search else _folder_values(visit, query)),
    }  # fmt: skip
    return Page("documents.html", values, problem.status if problem else 200)


def folders_above(folder: str) -> Sequence[tuple[str, str]]:
    """The (name, path) of each parent folder, outermost first, then of the folder itself."""
    parts = folder.split("/") if folder else []
    return [(name, "/".join(parts[: number + 1])) for number, name in enumerate(parts)]


def folder_url(folder: str) -> str:
    """The URL that browses a folder, for links from other pages."""
    return DocumentListQuery(folder).address()


def _parse_query(visit: Visit) -> DocumentListQuery:
    args = visit.request.args
    return DocumentListQuery(
        check_folder(args.get("folder", "")), args.get("search", "").strip()[:SEARCHED_CHARACTERS],
        args.get("kind", "") if args.get("kind") in dict(KINDS) else "", args.get("in") == "all", "below" in args,
        args.get("order") == "newest",
    )  # fmt: skip


def _folder_values(visit: Visit, query: DocumentListQuery) -> dict[str, Any]:
    folder = visit.services.documents.files.list_folder_contents(visit.scope, query.folder, query.order, visit.page())
    is_first = not query.folder and not visit.request.args.get("cursor")
    return {
        "folders": folder.folders, "total": folder.total, "next_cursor": folder.next_cursor, "snippets": {},
        "mine": _mine(visit) if is_first else [], **_rows(visit, folder.documents),
    }  # fmt: skip


def _search_values(visit: Visit, query: DocumentListQuery) -> dict[str, Any]:
    """The search results; the total is known only if they fit on one page, because counting would repeat the search."""
    result = visit.services.documents.files.list_documents(visit.scope, query.filters, visit.page())
    is_all = result.next_cursor is None and not visit.request.args.get("cursor")
    words = query.words
    return {
        "folders": [], "total": len(result.items) if is_all else None, "next_cursor": result.next_cursor, "mine": [],
        "snippets": texts.snippets(visit.scope, [row.sha256 for row in result.items], words) if words else {},
        **_rows(visit, result.items),
    }  # fmt: skip


def _rows(visit: Visit, documents: Sequence[Document]) -> dict[str, Any]:
    return {"rows": documents, "pictured": previews.documents_with_preview(visit.scope, documents, THUMBNAIL_WIDTH)}


def _mine(visit: Visit) -> list[tuple[Review, str]]:
    """The reviews that wait for this visitor, each with the name of its document."""
    documents = visit.services.documents.files
    waiting = reviews.list_waiting(visit.scope, visit.person.user_id)
    return [(each, documents.get_document(visit.scope, each.document_id).name) for each in waiting]
