"""Shares on the page of a document: made, their link shown once, revoked; and who has downloaded what."""

from appliance.console.frame.routing import Answer, Download, Page, Redirect, Visit, page
from appliance.core import clock
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.documents.sharing import NewShare, Wanted, downloads

from .documents import MadeShare, document_page, number_of
from .sharing import SHARE_DAYS, names_of_shares


@page("POST", "/documents/<document_id>/shares", scope="documents.share")
def create_share(visit: Visit, document_id: str) -> Answer:
    """Make a link, and show it this once."""
    try:
        share, token = visit.services.shares.create_share(visit.scope, document_id, _new_share(visit))
    except NotFound:
        raise
    except ApplianceError as refusal:
        return document_page(visit, document_id, refusal, of_form="share")
    url = f"{visit.services.config.cdn_url(visit.scope.tenant_id)}/s/{token}"
    return document_page(visit, document_id, of_form="share", made=MadeShare(share, url))


def _new_share(visit: Visit) -> NewShare:
    field = visit.asked.field
    days, most = field("days"), field("max_downloads").strip()
    if days not in dict(SHARE_DAYS):
        raise ValidationFailed("choose when the link ends", pointer="/expires_at")
    if most and not (most.isascii() and most.isdigit() and len(most) < 10):
        raise ValidationFailed("this is a whole number, or empty", pointer="/max_downloads")
    return NewShare(
        revision=_wanted(field("revision")), expires_at=clock.now_ms() + int(days) * 86_400_000,
        password=field("password") or None, max_downloads=int(most) if most else None,
        note=field("note").replace("\r\n", "\n").strip(),
    )  # fmt: skip


def _wanted(text: str) -> Wanted:
    if text == "latest":
        return "latest"
    return "latest_approved" if text == "latest_approved" else number_of(text)


@page("POST", "/documents/<document_id>/shares/<share_id>/revoke", scope="documents.share")
def revoke_share(visit: Visit, document_id: str, share_id: str) -> Answer:
    """End a share at once."""
    visit.services.shares.revoke_share(visit.scope, document_id, share_id)
    return Redirect(f"/console/documents/{document_id}#shares-title")


@page("GET", "/documents/<document_id>/downloads", scope="documents.read")
def list_downloads(visit: Visit, document_id: str) -> Answer:
    """Who has downloaded a document, newest first."""
    found = downloads.list_downloads(visit.scope, document_id, visit.page())
    values = {
        "document": visit.services.documents.get_document(visit.scope, document_id), "downloads": found.items,
        "next_cursor": found.next_cursor, "share_names": names_of_shares(visit, document_id),
    }  # fmt: skip
    return Page("document_downloads.html", values)


@page("GET", "/documents/<document_id>/downloads/export", scope="documents.read")
def export_downloads(visit: Visit, document_id: str) -> Answer:
    """The same as CSV, oldest first."""
    data = "".join(downloads.export_downloads(visit.scope, document_id)).encode()
    return Download(f"downloads-{document_id}.csv", data, "text/csv; charset=utf-8")
