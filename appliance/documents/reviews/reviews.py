"""Reviews: a content is approved or rejected by a required number of named reviewers.

A review is bound to the sha256 of the revision: other contents are not approved by it, but the same content in a later revision
is. Requesting a review needs a scope; deciding does not, only a named reviewer who is signed in can.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.database.id_lists import is_listed
from appliance.core.errors import Conflict, PolicyDenied, ValidationFailed
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.documents.models import DocumentRevision, DocumentRow
from appliance.documents.naming import check_comment
from appliance.monitor import audit, webhooks
from appliance.tenants import SignedIn, people, starters
from appliance.tenants import service as tenants
from appliance.tenants.keys import lineage

from .review_models import ReviewRow, VoteRow

Status = Literal["pending", "approved", "rejected", "expired", "withdrawn"]
Decision = Literal["approve", "reject"]
ReviewState = Literal["none", "pending", "approved", "rejected"]
MOST_REVIEWERS = 20
DEFAULT_DAYS = 30
LONGEST_DAYS = 365
_DAY = 86_400_000
_STATUS_OF_DECISION: dict[Decision, Status] = {"approve": "approved", "reject": "rejected"}


@dataclass(frozen=True)
class NewReview:
    """A review to request: of which revision (None: the newest), by whom (logins), and how many approvals it needs."""

    reviewers: Sequence[str]
    revision: int | None = None
    needed: int = 1
    due_at: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Vote:
    """The decision of one reviewer; times in milliseconds."""

    login: str
    decision: Decision
    comment: str
    at: int


@dataclass(frozen=True)
class Reviewer:
    user_id: str
    login: str


@dataclass(frozen=True)
class Review:
    """A review and its votes. An overdue one has the status expired even before that is stored."""

    id: str
    document_id: str
    revision: int
    sha256: str
    needed: int
    reviewers: tuple[Reviewer, ...]
    note: str
    status: Status
    due_at: int
    requested_by: str
    created_at: int
    closed_at: int | None
    votes: tuple[Vote, ...]


@dataclass(frozen=True)
class ReviewSummary:
    """The review state of a document's newest content, and its newest approved revision."""

    review: ReviewState = "none"
    approved_revision: int | None = None


def request_review(scope: TenantScope, document_id: str, new: NewReview) -> Review:
    """Request a review of one revision. NotFound, ValidationFailed, Conflict while a review of the same content is open."""
    note, now = check_comment(new.note, "/note"), clock.now_ms()
    due_at = now + DEFAULT_DAYS * _DAY if new.due_at is None else new.due_at
    if not now < due_at <= now + LONGEST_DAYS * _DAY:
        raise ValidationFailed(
            Sentence("a review is due within %(longest_days)s days from now", longest_days=LONGEST_DAYS), pointer="/due"
        )

    def insert() -> Review:
        row = scope.get(DocumentRow, id=document_id)
        number = row.revision if new.revision is None else new.revision
        revision = scope.find(DocumentRevision, document_id=document_id, number=number)
        if revision is None:
            raise ValidationFailed(
                Sentence("the document has no revision %(number)s; it has %(revision)s", number=number, revision=row.revision),
                pointer="/revision",
            )
        reviewers = _find_reviewers(scope, new.reviewers, _contributors(scope, revision))
        if not 1 <= new.needed <= len(reviewers):
            raise ValidationFailed(
                Sentence("needed must be between 1 and %(reviewers)s, the number of reviewers", reviewers=len(reviewers)),
                pointer="/needed",
            )
        is_same_content = (ReviewRow.document_id == document_id) & (ReviewRow.sha256 == revision.sha256)
        if scope.select(ReviewRow).where(is_same_content, ReviewRow.status == "pending", ReviewRow.due_at > now).exists():
            raise Conflict("this content is already under review; wait for the decision, or withdraw that review")
        review_id = ids.new("rev")
        scope.insert(
            ReviewRow, id=review_id, document_id=document_id, revision=number, sha256=revision.sha256, needed=new.needed,
            reviewers=[[each.user_id, each.login] for each in reviewers], note=note, status="pending", due_at=due_at,
            requested_by=scope.actor, created_at=now, closed_at=None,
        )  # fmt: skip
        review = get_review(scope, document_id, review_id)
        audit.record(scope, "review.request", document_id, _audit_data(review))
        return review

    return db.write(insert)


def _find_reviewers(scope: TenantScope, logins: Sequence[str], contributors: frozenset[str]) -> list[Reviewer]:
    if not 1 <= len(logins) <= MOST_REVIEWERS:
        raise ValidationFailed(
            Sentence("choose 1 to %(most_reviewers)s reviewers by their logins", most_reviewers=MOST_REVIEWERS),
            pointer="/reviewers",
        )
    members = {member.login: Reviewer(member.user_id, member.login) for member in people.list_members(scope)}
    reviewers: dict[str, Reviewer] = {}
    for index, login in enumerate(logins):
        reviewer = members.get(login.strip().lower())
        if reviewer is None:
            raise ValidationFailed(
                Sentence("%(login)s is not a member of this tenant", login=repr(login[:80])), pointer=f"/reviewers/{index}"
            )
        if reviewer.user_id in contributors and not _may_review_own(scope):
            raise ValidationFailed(
                Sentence("%(login)s uploaded this content and cannot review it", login=reviewer.login),
                pointer=f"/reviewers/{index}",
            )
        reviewers[reviewer.user_id] = reviewer
    return list(reviewers.values())


def _may_review_own(scope: TenantScope) -> bool:
    return bool(tenants.get_tenant(scope.tenant_id).kind == "sandbox")


def _contributors(scope: TenantScope, revision: DocumentRevision) -> frozenset[str]:
    """The user ids of the people behind a revision: who uploaded it, created or adopted the API key used, or started the
    execution that did."""
    actor = str(revision.created_by)
    while actor.startswith("execution:"):
        actor = starters.find_starter(scope, "execution", actor.removeprefix("execution:")) or ""
    return lineage.people_behind(scope, actor)


def get_review(scope: TenantScope, document_id: str, review_id: str) -> Review:
    """One review of the document; NotFound."""
    with db.snapshot():
        scope.get(DocumentRow, id=document_id)
        return _reviews(scope, [scope.get(ReviewRow, document_id=document_id, id=review_id)])[0]


def list_reviews(scope: TenantScope, document_id: str, request: PageRequest) -> Page[Review]:
    """The reviews of the document, newest first; NotFound."""
    with db.snapshot():
        scope.get(DocumentRow, id=document_id)
        query = scope.select(ReviewRow).where(ReviewRow.document_id == document_id)
        page = paginate(query, request, {"created_at": ReviewRow.created_at, "id": ReviewRow.id})
        return Page(_reviews(scope, page.items), page.next_cursor, page.total)


def list_waiting(scope: TenantScope, user_id: str) -> list[Review]:
    """Open reviews that this person has not decided yet, the earliest due first."""
    is_open = (ReviewRow.status == "pending") & (ReviewRow.due_at > clock.now_ms()) & ReviewRow.reviewers.contains(f'"{user_id}"')
    voted = scope.select(VoteRow, VoteRow.review_id).where(VoteRow.user_id == user_id)
    query = scope.select(ReviewRow).where(is_open, ReviewRow.id.not_in(voted)).order_by(ReviewRow.due_at).limit(100)
    return _reviews(scope, list(query))


def check_reviewer(scope: TenantScope, person: SignedIn, review: Review) -> bool:
    """Whether the reviewer contributed the content themselves; PolicyDenied unless this person may decide the review."""
    if scope.actor != f"user:{person.user_id}":
        raise PolicyDenied("only a signed-in person can decide; open the document in the console")
    if people.find_member(scope, person.user_id) is None:
        raise PolicyDenied("only a member of this tenant can decide; ask an owner for a role in it")
    if person.user_id not in {each.user_id for each in review.reviewers}:
        raise PolicyDenied(Sentence(
            "only %(reviewers)s can decide this; ask one of them", reviewers=", ".join(each.login for each in review.reviewers)
        ))
    revision = scope.get(DocumentRevision, document_id=review.document_id, number=review.revision)
    is_own = person.user_id in _contributors(scope, revision)
    if is_own and not _may_review_own(scope):
        raise PolicyDenied("you uploaded this content, or created the API key that did; someone else must decide")
    return is_own


def decide_review(
    scope: TenantScope, person: SignedIn, document_id: str, review_id: str, decision: Decision, comment: str = ""
) -> Review:
    """Record the decision of a reviewer.

    The content is approved by the last approval needed, and rejected as soon as the approvals can no longer be reached.
    NotFound, PolicyDenied, Conflict (closed, expired, or already voted), ValidationFailed.
    """
    if decision not in _STATUS_OF_DECISION:
        raise ValidationFailed("decision must be approve or reject", pointer="/decision")
    check_comment(comment)

    def decide() -> Review:
        review = get_review(scope, document_id, review_id)
        is_own = check_reviewer(scope, person, review)
        _check_open(review)
        if any(vote.login == person.login for vote in review.votes):
            raise Conflict("you have already decided; the other reviewers have not")
        now = clock.now_ms()
        scope.insert(
            VoteRow, review_id=review_id, user_id=person.user_id, login=person.login, decision=decision, comment=comment, at=now
        )  # fmt: skip
        votes = [*(vote.decision for vote in review.votes), decision]
        if (status := _tally(votes, review)) is not None:
            scope.update(ReviewRow, status=status, closed_at=now).where(ReviewRow.id == review_id).execute()
        updated = get_review(scope, document_id, review_id)
        data = _audit_data(updated) | {"comment": comment} | ({"self_approved": True} if is_own and decision == "approve" else {})
        audit.record(scope, f"review.{decision}", document_id, data)
        if status == "approved":
            webhooks.emit(scope, "document.approved", lambda: _webhook_data(scope, updated))
        return updated

    return db.write(decide)


def _tally(votes: Sequence[str], review: Review) -> Status | None:
    if votes.count("approve") >= review.needed:
        return "approved"
    return "rejected" if len(review.reviewers) - votes.count("reject") < review.needed else None


def withdraw_review(scope: TenantScope, document_id: str, review_id: str) -> Review:
    """Withdraw the request; NotFound, Conflict when the review is closed."""

    def withdraw() -> Review:
        _check_open(get_review(scope, document_id, review_id))
        changes = {"status": "withdrawn", "closed_at": clock.now_ms()}
        scope.update(ReviewRow, **changes).where(ReviewRow.id == review_id).execute()
        withdrawn = get_review(scope, document_id, review_id)
        audit.record(scope, "review.withdraw", document_id, _audit_data(withdrawn))
        return withdrawn

    return db.write(withdraw)


def expire_reviews() -> int:
    """Close the overdue reviews of every tenant; returns how many."""
    now = clock.now_ms()
    due = db.rows("SELECT tenant_id, document_id, id FROM document_review WHERE status = 'pending' AND due_at <= ?", (now,))
    return sum(db.write(partial(_expire, tenants.system_scope(tenant), document, review, now)) for tenant, document, review in due)


def _expire(scope: TenantScope, document_id: str, review_id: str, now: int) -> int:
    is_pending = (ReviewRow.id == review_id) & (ReviewRow.status == "pending")
    if not scope.update(ReviewRow, status="expired", closed_at=now).where(is_pending).execute():
        return 0
    audit.record(scope, "review.expire", document_id, _audit_data(get_review(scope, document_id, review_id)))
    return 1


def latest_approved(scope: TenantScope, document_id: str) -> int | None:
    """The newest approved revision; None when there is none."""
    row = scope.find(DocumentRow, id=document_id)
    return None if row is None else summarize(scope, [row])[document_id].approved_revision


def is_approved(scope: TenantScope, document_id: str, revision: int) -> bool:
    """Whether the latest decision about the content of this revision is an approval."""
    revision_row = scope.find(DocumentRevision, document_id=document_id, number=revision)
    if revision_row is None:
        return False
    is_same_content = (ReviewRow.document_id == document_id) & (ReviewRow.sha256 == revision_row.sha256)
    decided = scope.select(ReviewRow).where(is_same_content, ReviewRow.status.in_(("approved", "rejected")))
    last = decided.order_by(ReviewRow.closed_at.desc(), ReviewRow.id.desc()).first()
    return last is not None and last.status == "approved"


def summarize(scope: TenantScope, rows: Iterable[DocumentRow]) -> Mapping[str, ReviewSummary]:
    """The review summary of each document."""
    newest = {str(row.id): str(row.sha256) for row in rows}
    states: dict[str, ReviewState] = {}
    decided: dict[tuple[str, str], str] = {}
    now = clock.now_ms()
    for row in scope.select(ReviewRow).where(is_listed("document_id", list(newest))).order_by(ReviewRow.created_at, ReviewRow.id):
        status = _status(row, now)
        if status in ("approved", "rejected"):
            decided[row.document_id, row.sha256] = status
        if row.sha256 == newest[row.document_id] and status in ("pending", "approved", "rejected"):
            states[row.document_id] = cast(ReviewState, status)
    approved = _approved_revisions(scope, {key for key, status in decided.items() if status == "approved"})
    return {each: ReviewSummary(states.get(each, "none"), approved.get(each)) for each in newest}


def _approved_revisions(scope: TenantScope, approved: set[tuple[str, str]]) -> dict[str, int]:
    if not approved:
        return {}
    query = scope.select(DocumentRevision, DocumentRevision.document_id, DocumentRevision.number, DocumentRevision.sha256)
    rows = query.where(DocumentRevision.document_id.in_(sorted({document_id for document_id, _ in approved})))
    numbers: dict[str, int] = {}
    for row in rows:
        if (row.document_id, row.sha256) in approved:
            numbers[row.document_id] = max(row.number, numbers.get(row.document_id, 0))
    return numbers


def _check_open(review: Review) -> None:
    if review.status == "expired":
        raise Conflict("this review has expired; request a new one if it is still needed")
    if review.status != "pending":
        raise Conflict(
            Sentence("this review is already %(status)s", status=review.status), extra={"status": review.status}
        )


def _status(row: ReviewRow, now: int) -> Status:
    return "expired" if row.status == "pending" and row.due_at <= now else cast(Status, row.status)


def _audit_data(review: Review) -> dict[str, Any]:
    """The audit trail's data about a review."""
    return {
        "review_id": review.id, "revision": review.revision, "sha256": review.sha256, "status": review.status,
        "needed": review.needed, "reviewers": [each.login for each in review.reviewers],
    }  # fmt: skip


def _webhook_data(scope: TenantScope, review: Review) -> dict[str, Any]:
    row = scope.get(DocumentRow, id=review.document_id)
    return {
        "document_id": row.id, "name": row.name, "folder": row.folder, "revision": review.revision, "sha256": review.sha256,
        "review_id": review.id, "approved_by": [vote.login for vote in review.votes if vote.decision == "approve"],
    }  # fmt: skip


def _reviews(scope: TenantScope, rows: Sequence[ReviewRow]) -> list[Review]:
    votes: dict[str, list[Vote]] = {row.id: [] for row in rows}
    for each in scope.select(VoteRow).where(VoteRow.review_id.in_(list(votes))).order_by(VoteRow.at, VoteRow.user_id):
        votes[each.review_id].append(Vote(each.login, cast(Decision, each.decision), each.comment, each.at))
    now = clock.now_ms()
    return [
        Review(
            id=row.id, document_id=row.document_id, revision=row.revision, sha256=row.sha256, needed=row.needed,
            reviewers=tuple(Reviewer(*each) for each in row.reviewers), note=row.note, status=_status(row, now), due_at=row.due_at,
            requested_by=row.requested_by, created_at=row.created_at, closed_at=row.closed_at, votes=tuple(votes[row.id]),
        )
        for row in rows
    ]  # fmt: skip
