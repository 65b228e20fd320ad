"""/api/v1/documents/{id}/reviews.  There is no route to decide a review: only a signed-in person can, in the console."""

from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.fields import CreatedAt, Cursor, Limit
from appliance.api.frame.routing import Answer, Body, Call, Query, View, route
from appliance.core import clock
from appliance.core.errors import Conflict
from appliance.core.pages import DEFAULT_LIMIT, PageRequest
from appliance.documents.reviews import NewReview, Review, reviews

from .document_views import DocumentId, RevisionNumber, Sha256


class AskReview(Body):
    """The `revision` to review (default: the newest), the logins of the `reviewers`, how many of them must approve (`needed`),
    and the deadline (`due`, RFC 3339)."""

    reviewers: Annotated[
        list[str], Field(description="Logins of 1 to 20 members of the tenant, none of whom contributed to the revision.")
    ]
    revision: RevisionNumber | None = None
    needed: Annotated[
        int, Field(ge=1, le=2**31 - 1, description="How many reviewers must approve, at most as many as are named.")
    ] = 1
    due: Annotated[
        str | None, Field(description="When the review expires: RFC 3339 time at most 365 days ahead; after 30 days if left out.")
    ] = None
    note: Annotated[str | None, Field(description="What the reviewers should know, at most 1,000 characters.")] = None


class ReviewListQuery(Query):
    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor = None


class VoteView(View):
    reviewer: Annotated[str, Field(description="Login of the person who decided.")]
    decision: Annotated[Literal["approve", "reject"], Field(description="Whether this person approves the content.")]
    comment: Annotated[str, Field(description="The person's reasons, at most 1,000 characters; empty if none were given.")]
    at: Annotated[str, Field(description="When the person decided, RFC 3339 in UTC with milliseconds.")]


class ReviewView(View):
    """A review of the content with this `sha256`; the reviewers decide at `review_url`."""

    id: Annotated[str, Field(description="Identifies the review; `rev_…`.")]
    document_id: DocumentId
    revision: Annotated[int, Field(description="Number of the revision under review.")]
    sha256: Sha256
    status: Annotated[
        Literal["pending", "approved", "rejected", "expired", "withdrawn"],
        Field(
            description="`pending` until enough reviewers approve, so many reject that they cannot, `due` passes (`expired`), or "
            "the "
            "request is taken back (`withdrawn`)."
        ),
    ]
    needed: Annotated[int, Field(description="How many approvals make the review `approved`.")]
    reviewers: Annotated[list[str], Field(description="Logins of the people who are asked to decide.")]
    decisions: Annotated[list[VoteView], Field(description="What the reviewers have decided so far, each once.")]
    note: Annotated[str, Field(description="What the reviewers were told, at most 1,000 characters; empty if nothing was.")]
    due: Annotated[str, Field(description="When the review expires without enough decisions, RFC 3339 in UTC.")]
    requested_by: Annotated[str, Field(description="Who asked for the review: `user:…` or `key:…`.")]
    created_at: CreatedAt
    closed_at: Annotated[str | None, Field(description="When the review ended, RFC 3339 in UTC; absent while `pending`.")] = None
    review_url: Annotated[str, Field(description="Page of the console where the reviewers sign in and decide.")]


def review_view(call: Call, row: Review) -> ReviewView:
    base = call.services.config.tenant_url(call.scope.tenant_id)
    votes = [VoteView(reviewer=v.login, decision=v.decision, comment=v.comment, at=clock.rfc3339(v.at)) for v in row.votes]
    return ReviewView(
        id=row.id, document_id=row.document_id, revision=row.revision, sha256=row.sha256, status=row.status, needed=row.needed,
        reviewers=[each.login for each in row.reviewers], decisions=votes, note=row.note, due=clock.rfc3339(row.due_at),
        requested_by=row.requested_by, created_at=clock.rfc3339(row.created_at),
        closed_at=clock.optional_rfc3339(row.closed_at), review_url=f"{base}/console/documents/{row.document_id}",
    )  # fmt: skip


@route(
    "POST", "/documents/{document_id}/reviews", scope="documents.review", body=AskReview, returns=ReviewView, status=201,
    errors=(Conflict,),
)  # fmt: skip
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
    """List the reviews of a document, newest first.

    Reviews that have ended stay in the list, with their decisions.
    """
    page = PageRequest(call.query.limit, call.query.cursor)
    return reviews.list_reviews(call.scope, document_id, page).map(lambda row: review_view(call, row))


@route("GET", "/documents/{document_id}/reviews/{review_id}", scope="documents.read", returns=ReviewView)
def get_review(call: Call, document_id: str, review_id: str) -> ReviewView:
    """Show a review and the decisions so far.

    Its `status` stays `pending` until enough reviewers have approved or too many have rejected, or the time is over.
    """
    return review_view(call, reviews.get_review(call.scope, document_id, review_id))


@route("DELETE", "/documents/{document_id}/reviews/{review_id}", scope="documents.review", returns=ReviewView, errors=(Conflict,))
def withdraw_review(call: Call, document_id: str, review_id: str) -> ReviewView:
    """Withdraw a review.

    It ends without a decision and stays in the list.
    """
    return review_view(call, reviews.withdraw_review(call.scope, document_id, review_id))
