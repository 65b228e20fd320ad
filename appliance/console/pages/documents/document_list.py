"""The list of documents: a folder with what is directly in it, or what was found in it and below, or everywhere."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Visit, page
from appliance.core.database import full_text
from appliance.core.errors import ApplianceError
from appliance.core.texts import mark
from appliance.documents import Document, Order, Wanted, browsing, check_folder
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
class Look:
    """What the address asks for; a folder is browsed unless something is looked for or all below it is wanted."""

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
    def is_found(self) -> bool:
        """Whether it shows what was found, newest first, whatever folder it is in."""
        return self.is_narrowed or self.below

    @property
    def words(self) -> list[str]:
        return list(dict.fromkeys(word for _, _, word in full_text.words_in(self.search)))

    @property
    def order(self) -> Order:
        return "-created_at" if self.newest else "name"

    @property
    def wanted(self) -> Wanted:
        """By words where there are any, but not too many; else what was typed may still be a part of a name."""
        wanted = Wanted(under=None if self.everywhere else self.folder, media_type=self.kind or None)
        by_words = 1 <= len(self.words) <= full_text.MOST_WORDS
        return replace(wanted, search=self.search) if by_words else replace(wanted, name=self.search or None)

    @property
    def kept(self) -> str:
        parts = {
            "folder": self.folder, "search": self.search, "kind": self.kind, "in": "all" if self.everywhere else "",
            "below": "1" if self.below else "", "order": "newest" if self.newest else "",
        }  # fmt: skip
        return urlencode({name: value for name, value in parts.items() if value})

    def address(self, **changes: Any) -> str:
        """The address with these changes; what is usual is left out."""
        kept = replace(self, **changes).kept
        return f"{BASE}?{kept}" if kept else BASE

    def browse(self, folder: str) -> str:
        """The address that browses a folder, in the order chosen."""
        return Look(folder, newest=self.newest).address()


@page("GET", "/documents", scope="documents.read")
def list_documents(visit: Visit) -> Answer:
    """A folder of the tenant's documents, or what was found, and what waits for this visitor's review."""
    return list_page(visit)


def list_page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    """The list; with what was wrong with files that were sent."""
    look = _look(visit)
    values = {
        "look": look, "crumbs_above": [(name, look.browse(path)) for name, path in folders_above(look.folder)],
        "names": Names(visit), "width": THUMBNAIL_WIDTH, "problem": problem, "kinds": KINDS,
        "sent": {name: visit.asked.field(name) for name in ("folder", "tags")}, "is_sent": problem is not None,
        "most": visit.services.config.limits.upload_mb, "counted": browsing.COUNTED,
        **(_found(visit, look) if look.is_found else _shelf(visit, look)),
    }  # fmt: skip
    return Page("documents.html", values, problem.status if problem else 200)


def folders_above(folder: str) -> Sequence[tuple[str, str]]:
    """The name and the path of each folder that this one is in, the outermost first, then its own."""
    parts = folder.split("/") if folder else []
    return [(name, "/".join(parts[: number + 1])) for number, name in enumerate(parts)]


def browsed(folder: str) -> str:
    """The address that browses a folder, as others lead to it."""
    return Look(folder).address()


def _look(visit: Visit) -> Look:
    args = visit.asked.args
    return Look(
        check_folder(args.get("folder", "")), args.get("search", "").strip()[:SEARCHED_CHARACTERS],
        args.get("kind", "") if args.get("kind") in dict(KINDS) else "", args.get("in") == "all", "below" in args,
        args.get("order") == "newest",
    )  # fmt: skip


def _shelf(visit: Visit, look: Look) -> dict[str, Any]:
    shelf = visit.services.documents.list_shelf(visit.scope, look.folder, look.order, visit.page())
    is_first = not look.folder and not visit.asked.args.get("cursor")
    return {
        "folders": shelf.folders, "total": shelf.total, "next_cursor": shelf.next_cursor, "snippets": {},
        "mine": _mine(visit) if is_first else [], **_rows(visit, shelf.documents),
    }  # fmt: skip


def _found(visit: Visit, look: Look) -> dict[str, Any]:
    """The total is told where one page holds all; to count what was found is to find it twice."""
    found = visit.services.documents.list_documents(visit.scope, look.wanted, visit.page())
    is_all = found.next_cursor is None and not visit.asked.args.get("cursor")
    words = look.words
    return {
        "folders": [], "total": len(found.items) if is_all else None, "next_cursor": found.next_cursor, "mine": [],
        "snippets": texts.snippets(visit.scope, [row.sha256 for row in found.items], words) if words else {},
        **_rows(visit, found.items),
    }  # fmt: skip


def _rows(visit: Visit, documents: Sequence[Document]) -> dict[str, Any]:
    return {"rows": documents, "pictured": previews.documents_with_preview(visit.scope, documents, THUMBNAIL_WIDTH)}


def _mine(visit: Visit) -> list[tuple[Review, str]]:
    """The reviews that wait for this visitor, each with the name of its document."""
    documents = visit.services.documents
    waiting = reviews.waiting_for(visit.scope, visit.person.user_id)
    return [(each, documents.get_document(visit.scope, each.document_id).name) for each in waiting]
