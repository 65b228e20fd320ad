"""/api/v1/documents/{id}/reviews.  Deciding has no route: only a signed-in person decides, in the console."""

from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.routing import Answer, Body, Call, Query, View, route
from appliance.core import clock
from appliance.core.pages import DEFAULT_LIMIT, PageRequest
from appliance.documents.reviews import NewReview, Review, reviews


class AskReview(Body):
    """Which revision (the newest unless told), by whom (logins), how many of them must approve, and until when (RFC 3339)."""

    reviewers: list[str]
    revision: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    needed: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    due: str | None = None
    note: str | None = None


class ReviewListQuery(Query):
    limit: int = DEFAULT_LIMIT
    cursor: str | None = None


class VoteView(View):
    reviewer: str
    decision: Literal["approve", "reject"]
    comment: str
    at: str


class ReviewView(View):
    """A review of one content, which its `sha256` names; `review_url` is where the reviewers decide."""

    id: str
    document_id: str
    revision: int
    sha256: str
    status: Literal["pending", "approved", "rejected", "expired", "withdrawn"]
    needed: int
    reviewers: list[str]
    decisions: list[VoteView]
    note: str
    due: str
    requested_by: str
    created_at: str
    closed_at: str | None = None
    review_url: str


def review_view(call: Call, row: Review) -> ReviewView:
    base = call.services.config.tenant_url(call.scope.tenant_id)
    votes = [VoteView(reviewer=v.login, decision=v.decision, comment=v.comment, at=clock.rfc3339(v.at)) for v in row.votes]
    return ReviewView(
        id=row.id, document_id=row.document_id, revision=row.revision, sha256=row.sha256, status=row.status, needed=row.needed,
        reviewers=[each.login for each in row.reviewers], decisions=votes, note=row.note, due=clock.rfc3339(row.due_at),
        requested_by=row.requested_by, created_at=clock.rfc3339(row.created_at),
        closed_at=clock.optional_rfc3339(row.closed_at), review_url=f"{base}/console/documents/{row.document_id}",
    )  # fmt: skip


@route("POST", "/documents/{document_id}/reviews", scope="documents.review", body=AskReview, returns=ReviewView, status=201)
def request_review(call: Call, document_id: str) -> Answer:
    """Ask people to review a revision.

    The review is bound to the revision's sha256. Its reviewers decide at `review_url`, signed in; an API key never does,
    and nobody decides about what they have sent themselves.
    """
    body: AskReview = call.body
    due_at = None if body.due is None else clock.parse_rfc3339(body.due, pointer="/due")
    wanted = NewReview(body.reviewers, body.revision, body.needed, due_at, body.note or "")
    made = reviews.request_review(call.scope, document_id, wanted)
    return Answer(review_view(call, made), 201, {"Location": f"/api/v1/documents/{document_id}/reviews/{made.id}"})


@route(
    "GET", "/documents/{document_id}/reviews", scope="documents.read", query=ReviewListQuery, returns=ReviewView, listed=True
)  # fmt: skip
def list_reviews(call: Call, document_id: str) -> object:
    """List the reviews of a document, newest first."""
    page = PageRequest(call.query.limit, call.query.cursor)
    return reviews.list_reviews(call.scope, document_id, page).map(lambda row: review_view(call, row))


@route("GET", "/documents/{document_id}/reviews/{review_id}", scope="documents.read", returns=ReviewView)
def get_review(call: Call, document_id: str, review_id: str) -> ReviewView:
    """Show a review and what was said so far."""
    return review_view(call, reviews.get_review(call.scope, document_id, review_id))


@route("DELETE", "/documents/{document_id}/reviews/{review_id}", scope="documents.review", returns=ReviewView)
def withdraw_review(call: Call, document_id: str, review_id: str) -> ReviewView:
    """Withdraw a review that is no longer wanted; it stays to be read."""
    return review_view(call, reviews.withdraw_review(call.scope, document_id, review_id))
