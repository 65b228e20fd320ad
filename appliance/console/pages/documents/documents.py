"""The page of a document: its revisions, text, shares and reviews, which reviewers decide here."""

from dataclasses import dataclass
from typing import Literal, cast

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, File, Page, Picture, Redirect, RemoteFile, Visit, page
from appliance.core import clock
from appliance.core.errors import ApplianceError, NotFound, PolicyDenied, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.sentences import Sentence
from appliance.core.texts import mark, mark_error
from appliance.documents import Document, retention
from appliance.documents.contents import Text, previews
from appliance.documents.reviews import Decision, NewReview, Review, reviews
from appliance.documents.sharing import Share, downloads
from appliance.tenants import people

from .document_list import THUMBNAIL_WIDTH, folder_url, folders_above
from .sharing import SHARE_DAYS, names_of_shares

SHARES, DOWNLOADS = 10, 10
EXCERPT_BYTES = 20_000
PREVIEW_WIDTH = 640
DUE_DAYS = (("1", mark("in 1 day")), ("7", mark("in 7 days")), ("30", mark("in 30 days")), ("90", mark("in 90 days")))


@dataclass(frozen=True)
class ReviewView:
    """A review for this visitor: `refusal` says why they cannot decide it; `is_own` that they uploaded the content."""

    review: Review
    refusal: str | None
    is_own: bool


@dataclass(frozen=True)
class NewShareLink:
    """A share that has just been created, with its link, which is shown only once."""

    share: Share
    url: str


@page("GET", "/documents/<document_id>", scope="documents.read")
def show_document(visit: Visit, document_id: str) -> Answer:
    """One document."""
    return document_page(visit, document_id)


def document_page(
    visit: Visit, document_id: str, problem: ApplianceError | None = None, *,
    of_form: Literal["review", "share", "keeping"] = "review", new_link: NewShareLink | None = None,
) -> Page:  # fmt: skip
    """One document; optionally with the error of one of its forms, or with the link of a new share."""
    documents = visit.services.documents.files
    document = documents.get_document(visit.scope, document_id)
    revisions = documents.list_revisions(visit.scope, document_id, PageRequest(20))
    excerpt, text = _text(visit, document)
    review_page = reviews.list_reviews(visit.scope, document_id, PageRequest(20))
    may_ask = visit.may("documents.review")
    values = {
        "document": document, "above": [(name, folder_url(path)) for name, path in folders_above(document.folder)],
        "revisions": revisions.items, "reviews": [_to_review_view(visit, each) for each in review_page.items],
        "names": Names(visit), "problem": problem, "comment": visit.request.field("comment"), "days": DUE_DAYS,
        "members": people.list_members(visit.scope) if may_ask else [], "chosen": visit.request.form.get("reviewers", []),
        "note": visit.request.field("note") if of_form == "review" else "", "text": text, "excerpt": excerpt,
        "preview": text is not None and previews.has_preview(document.media_type), **_sharing_and_retention(visit, document_id),
        "wrong": {"share": None, "keeping": None} | {of_form: problem}, "new_link": new_link,
        "today": clock.rfc3339(clock.now_ms())[:10],
    }  # fmt: skip
    return Page("document.html", values, problem.status if problem else 201 if new_link else 200)


def _sharing_and_retention(visit: Visit, document_id: str) -> dict[str, object]:
    shares = visit.services.documents.shares.list_shares(visit.scope, document_id, visit.page(limit=SHARES))
    download_page = downloads.list_downloads(visit.scope, document_id, PageRequest(DOWNLOADS))
    retained = retention.get_retention(visit.scope, document_id)
    return {
        "shares": shares.items, "next_cursor": shares.next_cursor, "share_days": SHARE_DAYS,
        "share_names": names_of_shares(visit, document_id), "downloads": download_page.items,
        "more_downloads": download_page.next_cursor is not None, "hold": retained.hold,
        "retained": retained.retain_until if (retained.retain_until or 0) > clock.now_ms() else None,
    }  # fmt: skip


def _text(visit: Visit, document: Document) -> tuple[str, Text | None]:
    """The beginning of the document's text and the text itself; empty when it cannot be read, such as during a virus scan."""
    try:
        text = visit.services.documents.files.open_text(visit.scope, document.id)
    except ApplianceError:
        return "", None
    beginning = b""
    for piece in text.pieces or ():
        beginning += piece
        if len(beginning) >= EXCERPT_BYTES:
            break
    return beginning[:EXCERPT_BYTES].decode("utf8", "ignore"), text


def _to_review_view(visit: Visit, review: Review) -> ReviewView:
    try:
        own = reviews.check_reviewer(visit.scope, visit.person, review)
    except PolicyDenied as error:
        return ReviewView(review, error.message, is_own=False)
    voted = any(vote.login == visit.person.login for vote in review.votes)
    return ReviewView(review, mark_error("you have already decided; the other reviewers have not") if voted else None, own)


@page("POST", "/documents/<document_id>/reviews", scope="documents.review")
def request_review(visit: Visit, document_id: str) -> Answer:
    """Ask the chosen members to review the newest revision, or the one that the page showed."""
    request = visit.request
    try:
        days = request.field("days")
        if days not in dict(DUE_DAYS):
            raise ValidationFailed("choose a due date for the review", pointer="/due")
        new_review = NewReview(
            request.form.get("reviewers", []), parse_number(request.field("revision")), parse_number(request.field("needed")),
            clock.now_ms() + int(days) * 86_400_000, request.field("note").replace("\r\n", "\n"),
        )  # fmt: skip
        reviews.request_review(visit.scope, document_id, new_review)
    except NotFound:
        raise
    except ApplianceError as refusal:
        return document_page(visit, document_id, refusal)
    return Redirect(f"/console/documents/{document_id}")


def parse_number(text: str) -> int:
    """Parse a number from one of our forms; ValidationFailed when it is not one."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValidationFailed(Sentence("%(text)s is not a number; open the document and try again", text=repr(text[:20])))
    return int(text)


@page("POST", "/documents/<document_id>/reviews/<review_id>", scope="documents.read")
def decide_review(visit: Visit, document_id: str, review_id: str) -> Answer:
    """Approve or reject as the signed-in visitor."""
    comment = visit.request.field("comment").replace("\r\n", "\n")
    try:
        decision = cast(Decision, visit.request.field("decision"))
        reviews.decide_review(visit.scope, visit.person, document_id, review_id, decision, comment)
    except NotFound:
        raise
    except ApplianceError as refusal:
        return document_page(visit, document_id, refusal)
    return Redirect(f"/console/documents/{document_id}")


@page("POST", "/documents/<document_id>/reviews/<review_id>/withdraw", scope="documents.review")
def withdraw_review(visit: Visit, document_id: str, review_id: str) -> Answer:
    """Withdraw a review request."""
    try:
        reviews.withdraw_review(visit.scope, document_id, review_id)
    except NotFound:
        raise
    except ApplianceError as refusal:
        return document_page(visit, document_id, refusal)
    return Redirect(f"/console/documents/{document_id}")


@page("GET", "/documents/<document_id>/content", scope="documents.read")
def download_document(visit: Visit, document_id: str) -> Answer:
    """Download the newest revision, or the one that `revision` names; always as an attachment, and from the bucket if that is
    allowed."""
    revision = visit.request.args.get("revision")
    number = None if revision is None else parse_number(revision)
    content = visit.services.documents.files.open_content(visit.scope, document_id, number)
    if (address := content.address()) is not None:
        return RemoteFile(address)
    return File(content.name, content.media_type, content.pieces(0, content.size), content.size)


@page("GET", "/documents/<document_id>/preview", scope="documents.read")
def show_preview(visit: Visit, document_id: str) -> Answer:
    """The first page of a `revision` as a picture, at preview or thumbnail width."""
    visit.services.documents.files.get_document(visit.scope, document_id)  # 404 for an unknown document takes precedence over 422.
    args = visit.request.args
    revision, width = parse_number(args.get("revision", "")), parse_number(args.get("width", str(PREVIEW_WIDTH)))
    if width not in (PREVIEW_WIDTH, THUMBNAIL_WIDTH):
        raise ValidationFailed(Sentence(
            "previews are not available at width %(width)s; use %(usual)s or %(small)s",
            width=width, usual=PREVIEW_WIDTH, small=THUMBNAIL_WIDTH,
        ))
    preview = visit.services.documents.previews.get_preview(visit.scope, document_id, 1, width, revision)
    return Picture(previews.MEDIA_TYPE, preview.data)
