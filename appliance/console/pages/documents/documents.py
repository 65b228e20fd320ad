"""The page of a document, with its contents, its text, its shares and its reviews, which people decide here."""

from dataclasses import dataclass
from typing import Literal, cast

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, File, Page, Picture, Redirect, Visit, page
from appliance.core import clock
from appliance.core.errors import ApplianceError, NotFound, PolicyDenied, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.texts import mark, mark_error
from appliance.documents import Document, keeping
from appliance.documents.contents import Text, previews
from appliance.documents.reviews import Decision, NewReview, Review, reviews
from appliance.documents.sharing import Share, downloads
from appliance.tenants import people

from .document_list import THUMBNAIL_WIDTH, browsed, folders_above
from .sharing import SHARE_DAYS, names_of_shares

SHARES, DOWNLOADS = 10, 10
EXCERPT_BYTES = 20_000
PREVIEW_WIDTH = 640
DUE_DAYS = (("1", mark("in 1 day")), ("7", mark("in 7 days")), ("30", mark("in 30 days")), ("90", mark("in 90 days")))


@dataclass(frozen=True)
class Asked:
    """A review as this visitor sees it: `refusal` says why they do not decide; `is_own` that they sent the content."""

    review: Review
    refusal: str | None
    is_own: bool


@dataclass(frozen=True)
class MadeShare:
    """A share that has just been made, with its link."""

    share: Share
    url: str


@page("GET", "/documents/<document_id>", scope="documents.read")
def show_document(visit: Visit, document_id: str) -> Answer:
    """One document."""
    return document_page(visit, document_id)


def document_page(
    visit: Visit, document_id: str, problem: ApplianceError | None = None, *,
    of_form: Literal["review", "share", "keeping"] = "review", made: MadeShare | None = None,
) -> Page:  # fmt: skip
    """One document; with what was wrong in one of its forms, or with the link of a share that was made."""
    documents = visit.services.documents
    document = documents.get_document(visit.scope, document_id)
    revisions = documents.list_revisions(visit.scope, document_id, PageRequest(20))
    excerpt, text = _text(visit, document)
    asked = reviews.list_reviews(visit.scope, document_id, PageRequest(20))
    may_ask = visit.may("documents.review")
    values = {
        "document": document, "above": [(name, browsed(path)) for name, path in folders_above(document.folder)],
        "revisions": revisions.items, "reviews": [_asked(visit, each) for each in asked.items],
        "names": Names(visit), "problem": problem, "comment": visit.asked.field("comment"), "days": DUE_DAYS,
        "members": people.list_members(visit.scope) if may_ask else [], "chosen": visit.asked.form.get("reviewers", []),
        "note": visit.asked.field("note") if of_form == "review" else "", "text": text, "excerpt": excerpt,
        "preview": text is not None and previews.has_preview(document.media_type), **_leaving_and_staying(visit, document_id),
        "wrong": {"share": None, "keeping": None} | {of_form: problem}, "made": made, "today": clock.rfc3339(clock.now_ms())[:10],
    }  # fmt: skip
    return Page("document.html", values, problem.status if problem else 201 if made else 200)


def _leaving_and_staying(visit: Visit, document_id: str) -> dict[str, object]:
    shares = visit.services.shares.list_shares(visit.scope, document_id, visit.page(limit=SHARES))
    found = downloads.list_downloads(visit.scope, document_id, PageRequest(DOWNLOADS))
    kept = keeping.get_keeping(visit.scope, document_id)
    return {
        "shares": shares.items, "next_cursor": shares.next_cursor, "share_days": SHARE_DAYS,
        "share_names": names_of_shares(visit, document_id), "downloads": found.items,
        "more_downloads": found.next_cursor is not None, "hold": kept.hold,
        "retained": kept.retain_until if (kept.retain_until or 0) > clock.now_ms() else None,
    }  # fmt: skip


def _text(visit: Visit, document: Document) -> tuple[str, Text | None]:
    """The beginning of the text; nothing of what a scanner holds back."""
    try:
        text = visit.services.documents.open_text(visit.scope, document.id)
    except ApplianceError:
        return "", None
    beginning = b""
    for piece in text.pieces or ():
        beginning += piece
        if len(beginning) >= EXCERPT_BYTES:
            break
    return beginning[:EXCERPT_BYTES].decode("utf8", "ignore"), text


def _asked(visit: Visit, review: Review) -> Asked:
    try:
        own = reviews.check_reviewer(visit.scope, visit.person, review)
    except PolicyDenied as error:
        return Asked(review, error.message, is_own=False)
    voted = any(vote.login == visit.person.login for vote in review.votes)
    return Asked(review, mark_error("you have decided already; the others have not") if voted else None, own)


@page("POST", "/documents/<document_id>/reviews", scope="documents.review")
def request_review(visit: Visit, document_id: str) -> Answer:
    """Ask the chosen members to review the newest revision, or the one that the page showed."""
    asked = visit.asked
    try:
        days = asked.field("days")
        if days not in dict(DUE_DAYS):
            raise ValidationFailed("choose until when the review is wanted", pointer="/due")
        wanted = NewReview(
            asked.form.get("reviewers", []), number_of(asked.field("revision")), number_of(asked.field("needed")),
            clock.now_ms() + int(days) * 86_400_000, asked.field("note").replace("\r\n", "\n"),
        )  # fmt: skip
        reviews.request_review(visit.scope, document_id, wanted)
    except NotFound:
        raise
    except ApplianceError as refusal:
        return document_page(visit, document_id, refusal)
    return Redirect(f"/console/documents/{document_id}")


def number_of(text: str) -> int:
    """A number that a form of ours sends; ValidationFailed."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValidationFailed("this form is not one of this page; open the document and send it again")
    return int(text)


@page("POST", "/documents/<document_id>/reviews/<review_id>", scope="documents.read")
def decide_review(visit: Visit, document_id: str, review_id: str) -> Answer:
    """Approve or reject in the visitor's own name."""
    comment = visit.asked.field("comment").replace("\r\n", "\n")
    try:
        decision = cast(Decision, visit.asked.field("decision"))
        reviews.decide_review(visit.scope, visit.person, document_id, review_id, decision, comment)
    except NotFound:
        raise
    except ApplianceError as refusal:
        return document_page(visit, document_id, refusal)
    return Redirect(f"/console/documents/{document_id}")


@page("POST", "/documents/<document_id>/reviews/<review_id>/withdraw", scope="documents.review")
def withdraw_review(visit: Visit, document_id: str, review_id: str) -> Answer:
    """Ask for a review no longer."""
    try:
        reviews.withdraw_review(visit.scope, document_id, review_id)
    except NotFound:
        raise
    except ApplianceError as refusal:
        return document_page(visit, document_id, refusal)
    return Redirect(f"/console/documents/{document_id}")


@page("GET", "/documents/<document_id>/content", scope="documents.read")
def download_document(visit: Visit, document_id: str) -> Answer:
    """A content to be saved, never shown: the newest, or the `revision` asked for."""
    revision = visit.asked.args.get("revision")
    content = visit.services.documents.open_content(visit.scope, document_id, None if revision is None else number_of(revision))
    return File(content.name, content.media_type, content.pieces(0, content.size), content.size)


@page("GET", "/documents/<document_id>/preview", scope="documents.read")
def show_preview(visit: Visit, document_id: str) -> Answer:
    """The first page of the `revision` asked for, as a picture on the page of its document, or smaller in the list."""
    visit.services.documents.get_document(visit.scope, document_id)  # what is not there is so whatever else is asked
    args = visit.asked.args
    revision, width = number_of(args.get("revision", "")), number_of(args.get("width", str(PREVIEW_WIDTH)))
    if width not in (PREVIEW_WIDTH, THUMBNAIL_WIDTH):
        raise ValidationFailed("pictures are not shown at this width; open the document")
    found = visit.services.previews.get_preview(visit.scope, document_id, 1, width, revision)
    return Picture(previews.MEDIA_TYPE, found.data)
