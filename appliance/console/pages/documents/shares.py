"""Shares of a document: create one and show its link once, revoke it, and the log of downloads."""

from appliance.console.frame.routing import Answer, Download, Page, Redirect, Visit, page
from appliance.core import clock
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.documents.sharing import NewShare, RevisionChoice, downloads

from .documents import NewShareLink, document_page, parse_number
from .sharing import SHARE_DAYS, names_of_shares


@page("POST", "/documents/<document_id>/shares", scope="documents.share")
def create_share(visit: Visit, document_id: str) -> Answer:
    """Create a share, and show its link; it cannot be shown again."""
    try:
        share, token = visit.services.documents.shares.create_share(visit.scope, document_id, _new_share(visit))
    except NotFound:
        raise
    except ApplianceError as refusal:
        return document_page(visit, document_id, refusal, of_form="share")
    url = f"{visit.services.config.cdn_url(visit.scope.tenant_id)}/s/{token}"
    return document_page(visit, document_id, of_form="share", new_link=NewShareLink(share, url))


def _new_share(visit: Visit) -> NewShare:
    field = visit.request.field
    days, most = field("days"), field("max_downloads").strip()
    if days not in dict(SHARE_DAYS):
        raise ValidationFailed("choose when the link expires", pointer="/expires_at")
    if most and not (most.isascii() and most.isdigit() and len(most) < 10):
        raise ValidationFailed("enter a whole number, or leave the field empty", pointer="/max_downloads")
    return NewShare(
        revision=_parse_revision(field("revision")), expires_at=clock.now_ms() + int(days) * 86_400_000,
        password=field("password") or None, max_downloads=int(most) if most else None,
        note=field("note").replace("\r\n", "\n").strip(),
    )  # fmt: skip


def _parse_revision(text: str) -> RevisionChoice:
    if text == "latest":
        return "latest"
    return "latest_approved" if text == "latest_approved" else parse_number(text)


@page("POST", "/documents/<document_id>/shares/<share_id>/revoke", scope="documents.share")
def revoke_share(visit: Visit, document_id: str, share_id: str) -> Answer:
    """Revoke a share immediately."""
    visit.services.documents.shares.revoke_share(visit.scope, document_id, share_id)
    return Redirect(f"/console/documents/{document_id}#shares-title")


@page("GET", "/documents/<document_id>/downloads", scope="documents.read")
def list_downloads(visit: Visit, document_id: str) -> Answer:
    """The downloads of a document, newest first."""
    result = downloads.list_downloads(visit.scope, document_id, visit.page())
    values = {
        "document": visit.services.documents.files.get_document(visit.scope, document_id), "downloads": result.items,
        "next_cursor": result.next_cursor, "share_names": names_of_shares(visit, document_id),
    }  # fmt: skip
    return Page("document_downloads.html", values)


@page("GET", "/documents/<document_id>/downloads/export", scope="documents.read")
def export_downloads(visit: Visit, document_id: str) -> Answer:
    """The downloads of a document as CSV, oldest first."""
    data = "".join(downloads.export_downloads(visit.scope, document_id)).encode()
    return Download(f"downloads-{document_id}.csv", data, "text/csv; charset=utf-8")
