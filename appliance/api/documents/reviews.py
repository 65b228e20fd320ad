"""/api/v1/documents/{id}/reviews.  There is no route to decide a review: only a signed-in person can, in the console."""

from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.routing import Answer, Body, Call, Query, View, route
from appliance.core import clock
from appliance.core.pages import DEFAULT_LIMIT, PageRequest
from appliance.documents.reviews import NewReview, Review, reviews


class AskReview(Body):
    """The `revision` to review (default: the newest), the logins of the `reviewers`, how many of them must approve (`needed`),
    and the deadline (`due`, RFC 3339)."""

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
    """A review of the content with this `sha256`; the reviewers decide at `review_url`."""

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

    The review is bound to the revision's sha256. Reviewers decide at `review_url`, signed in; an API key cannot decide, and
    people cannot review what they uploaded themselves.
    """
    body: AskReview = call.body
    due_at = None if body.due is None else clock.parse_rfc3339(body.due, pointer="/due")
    new_review = NewReview(body.reviewers, body.revision, body.needed, due_at, body.note or "")
    review = reviews.request_review(call.scope, document_id, new_review)
    return Answer(review_view(call, review), 201, {"Location": f"/api/v1/documents/{document_id}/reviews/{review.id}"})


@route(
    "GET", "/documents/{document_id}/reviews", scope="documents.read", query=ReviewListQuery, returns=ReviewView, listed=True
)  # fmt: skip
def list_reviews(call: Call, document_id: str) -> object:
    """List the reviews of a document, newest first."""
    page = PageRequest(call.query.limit, call.query.cursor)
    return reviews.list_reviews(call.scope, document_id, page).map(lambda row: review_view(call, row))


@route("GET", "/documents/{document_id}/reviews/{review_id}", scope="documents.read", returns=ReviewView)
def get_review(call: Call, document_id: str, review_id: str) -> ReviewView:
    """Show a review and the decisions so far."""
    return review_view(call, reviews.get_review(call.scope, document_id, review_id))


@route("DELETE", "/documents/{document_id}/reviews/{review_id}", scope="documents.review", returns=ReviewView)
def withdraw_review(call: Call, document_id: str, review_id: str) -> ReviewView:
    """Withdraw a review that is no longer needed; it stays in the list."""
    return review_view(call, reviews.withdraw_review(call.scope, document_id, review_id))
