"""Reviews: so many of the named people say that one content is good, or that it is not.

A review is bound to the sha256 of the revision it was asked for: another content is not approved by it, the same content
under a later number is.  Asking takes a scope; deciding never does: only a signed-in person who is named decides.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import Conflict, PolicyDenied, ValidationFailed
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.documents.models import DocumentRevision, DocumentRow
from appliance.documents.naming import check_comment
from appliance.monitor import audit, webhooks
from appliance.tenants import SignedIn, people
from appliance.tenants import service as tenants
from appliance.tenants.keys import lineage

from .review_models import ReviewRow, VoteRow

Status = Literal["pending", "approved", "rejected", "expired", "withdrawn"]
Decision = Literal["approve", "reject"]
Reviewed = Literal["none", "pending", "approved", "rejected"]
MOST_REVIEWERS = 20
DEFAULT_DAYS = 30
LONGEST_DAYS = 365
_DAY = 86_400_000
_AFTER: dict[Decision, Status] = {"approve": "approved", "reject": "rejected"}


@dataclass(frozen=True)
class NewReview:
    """What is to be looked at (the newest revision unless told), by whom (logins), and how many of them must approve."""

    reviewers: Sequence[str]
    revision: int | None = None
    needed: int = 1
    due_at: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Vote:
    """What one reviewer said; times in milliseconds."""

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
    """A review and what was said so far.  One that is past its time is expired, also before anybody has noted so."""

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
class Standing:
    """What reviews say of a document: of its newest content, and which revision is the newest that was approved."""

    review: Reviewed = "none"
    approved_revision: int | None = None


def request_review(scope: TenantScope, document_id: str, wanted: NewReview) -> Review:
    """Ask for a review of one revision.  NotFound, ValidationFailed, Conflict while one of the same content is open."""
    note, now = check_comment(wanted.note, "/note"), clock.now_ms()
    due_at = now + DEFAULT_DAYS * _DAY if wanted.due_at is None else wanted.due_at
    if not now < due_at <= now + LONGEST_DAYS * _DAY:
        raise ValidationFailed(
            Sentence("a review is due within %(longest_days)s days from now", longest_days=LONGEST_DAYS), pointer="/due"
        )

    def insert() -> Review:
        row = scope.get(DocumentRow, id=document_id)
        number = row.revision if wanted.revision is None else wanted.revision
        revision = scope.find(DocumentRevision, document_id=document_id, number=number)
        if revision is None:
            raise ValidationFailed(
                Sentence("the document has no revision %(number)s; it has %(revision)s", number=number, revision=row.revision),
                pointer="/revision",
            )
        reviewers = _members(scope, wanted.reviewers, _senders(scope, revision))
        if not 1 <= wanted.needed <= len(reviewers):
            raise ValidationFailed(
                Sentence("needed is between 1 and %(reviewers)s, the number of reviewers", reviewers=len(reviewers)),
                pointer="/needed",
            )
        same = (ReviewRow.document_id == document_id) & (ReviewRow.sha256 == revision.sha256)
        if scope.select(ReviewRow).where(same, ReviewRow.status == "pending", ReviewRow.due_at > now).exists():
            raise Conflict("this content is under review already; wait for the decision, or withdraw that review")
        review_id = ids.new("rev")
        scope.insert(
            ReviewRow, id=review_id, document_id=document_id, revision=number, sha256=revision.sha256, needed=wanted.needed,
            reviewers=[[each.user_id, each.login] for each in reviewers], note=note, status="pending", due_at=due_at,
            requested_by=scope.actor, created_at=now, closed_at=None,
        )  # fmt: skip
        asked = get_review(scope, document_id, review_id)
        audit.record(scope, "review.request", document_id, _facts(asked))
        return asked

    return db.write(insert)


def _members(scope: TenantScope, logins: Sequence[str], senders: frozenset[str]) -> list[Reviewer]:
    if not 1 <= len(logins) <= MOST_REVIEWERS:
        raise ValidationFailed(
            Sentence("name 1 to %(most_reviewers)s reviewers by their logins", most_reviewers=MOST_REVIEWERS), pointer="/reviewers"
        )
    known = {member.login: Reviewer(member.user_id, member.login) for member in people.list_members(scope)}
    found: dict[str, Reviewer] = {}
    for index, login in enumerate(logins):
        reviewer = known.get(login.strip().lower())
        if reviewer is None:
            raise ValidationFailed(
                Sentence("%(login)s is no member of this tenant", login=repr(login[:80])), pointer=f"/reviewers/{index}"
            )
        if reviewer.user_id in senders and not _may_review_own(scope):
            raise ValidationFailed(
                Sentence("%(login)s has sent this content; somebody else reviews it", login=reviewer.login),
                pointer=f"/reviewers/{index}",
            )
        found[reviewer.user_id] = reviewer
    return list(found.values())


def _may_review_own(scope: TenantScope) -> bool:
    return bool(tenants.get_tenant(scope.tenant_id).kind == "sandbox")


def _senders(scope: TenantScope, revision: DocumentRevision) -> frozenset[str]:
    """The user ids of who sent the content, made or adopted the key that did, or started the execution that did."""
    actor = str(revision.created_by)
    while actor.startswith("execution:"):
        # Plain SQL: executions belong to a layer above.
        found = db.rows(
            "SELECT actor FROM execution WHERE tenant_id = ? AND id = ?", (scope.tenant_id, actor.removeprefix("execution:"))
        )
        actor = str(found[0][0]) if found else ""
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


def waiting_for(scope: TenantScope, user_id: str) -> list[Review]:
    """The open reviews in which this person is named and has not decided, the next due first."""
    is_open = (ReviewRow.status == "pending") & (ReviewRow.due_at > clock.now_ms()) & ReviewRow.reviewers.contains(f'"{user_id}"')
    voted = scope.select(VoteRow, VoteRow.review_id).where(VoteRow.user_id == user_id)
    query = scope.select(ReviewRow).where(is_open, ReviewRow.id.not_in(voted)).order_by(ReviewRow.due_at).limit(100)
    return _reviews(scope, list(query))


def check_reviewer(scope: TenantScope, person: SignedIn, review: Review) -> bool:
    """PolicyDenied unless this person decides in the review; answers whether they decide on what they sent themselves."""
    if scope.actor != f"user:{person.user_id}":
        raise PolicyDenied("only a signed-in person decides; open the document in the console")
    if people.find_member(scope, person.user_id) is None:
        raise PolicyDenied("only a member of this tenant decides; ask an owner for a role in it")
    if person.user_id not in {each.user_id for each in review.reviewers}:
        raise PolicyDenied(Sentence(
            "this is decided by %(reviewers)s; ask one of them", reviewers=", ".join(each.login for each in review.reviewers)
        ))
    revision = scope.get(DocumentRevision, document_id=review.document_id, number=review.revision)
    own = person.user_id in _senders(scope, revision)
    if own and not _may_review_own(scope):
        raise PolicyDenied("you have sent this content, or made the key that did; somebody else decides")
    return own


def decide_review(
    scope: TenantScope, person: SignedIn, document_id: str, review_id: str, decision: Decision, comment: str = ""
) -> Review:
    """Say what one named person thinks, once.

    The last approval that is needed approves the content; so many rejections that it can no longer be reached reject it.
    NotFound, PolicyDenied, Conflict (decided, past its time, or said already), ValidationFailed.
    """
    if decision not in _AFTER:
        raise ValidationFailed("a review is decided by approve or reject", pointer="/decision")
    check_comment(comment)

    def decide() -> Review:
        review = get_review(scope, document_id, review_id)
        own = check_reviewer(scope, person, review)
        _refuse_closed(review)
        if any(vote.login == person.login for vote in review.votes):
            raise Conflict("you have decided already; the others have not")
        now = clock.now_ms()
        scope.insert(
            VoteRow, review_id=review_id, user_id=person.user_id, login=person.login, decision=decision, comment=comment, at=now
        )  # fmt: skip
        votes = [*(vote.decision for vote in review.votes), decision]
        if (status := _tally(votes, review)) is not None:
            scope.update(ReviewRow, status=status, closed_at=now).where(ReviewRow.id == review_id).execute()
        decided = get_review(scope, document_id, review_id)
        told = _facts(decided) | {"comment": comment} | ({"self_approved": True} if own and decision == "approve" else {})
        audit.record(scope, f"review.{decision}", document_id, told)
        if status == "approved":
            webhooks.emit(scope, "document.approved", lambda: _announced(scope, decided))
        return decided

    return db.write(decide)


def _tally(votes: Sequence[str], review: Review) -> Status | None:
    if votes.count("approve") >= review.needed:
        return "approved"
    return "rejected" if len(review.reviewers) - votes.count("reject") < review.needed else None


def withdraw_review(scope: TenantScope, document_id: str, review_id: str) -> Review:
    """Ask for it no longer; NotFound, Conflict when it is closed."""

    def withdraw() -> Review:
        _refuse_closed(get_review(scope, document_id, review_id))
        closed = {"status": "withdrawn", "closed_at": clock.now_ms()}
        scope.update(ReviewRow, **closed).where(ReviewRow.id == review_id).execute()
        withdrawn = get_review(scope, document_id, review_id)
        audit.record(scope, "review.withdraw", document_id, _facts(withdrawn))
        return withdrawn

    return db.write(withdraw)


def expire_reviews() -> int:
    """Close every tenant's reviews that are past their time; answers how many."""
    now = clock.now_ms()
    due = db.rows("SELECT tenant_id, document_id, id FROM document_review WHERE status = 'pending' AND due_at <= ?", (now,))
    return sum(db.write(partial(_expire, tenants.system_scope(tenant), document, review, now)) for tenant, document, review in due)


def _expire(scope: TenantScope, document_id: str, review_id: str, now: int) -> int:
    still = (ReviewRow.id == review_id) & (ReviewRow.status == "pending")
    if not scope.update(ReviewRow, status="expired", closed_at=now).where(still).execute():
        return 0
    audit.record(scope, "review.expire", document_id, _facts(get_review(scope, document_id, review_id)))
    return 1


def latest_approved(scope: TenantScope, document_id: str) -> int | None:
    """The newest revision whose content was approved; None when none was."""
    row = scope.find(DocumentRow, id=document_id)
    return None if row is None else standings(scope, [row])[document_id].approved_revision


def is_approved(scope: TenantScope, document_id: str, revision: int) -> bool:
    """Whether the content of this revision was approved, and not rejected afterwards."""
    found = scope.find(DocumentRevision, document_id=document_id, number=revision)
    if found is None:
        return False
    same = (ReviewRow.document_id == document_id) & (ReviewRow.sha256 == found.sha256)
    decided = scope.select(ReviewRow).where(same, ReviewRow.status.in_(("approved", "rejected")))
    last = decided.order_by(ReviewRow.closed_at.desc(), ReviewRow.id.desc()).first()
    return last is not None and last.status == "approved"


def standings(scope: TenantScope, rows: Iterable[DocumentRow]) -> Mapping[str, Standing]:
    """What reviews say of each of these documents."""
    newest = {str(row.id): str(row.sha256) for row in rows}
    of_these = ReviewRow.document_id.in_(list(newest))
    shown: dict[str, Reviewed] = {}
    decided: dict[tuple[str, str], str] = {}
    now = clock.now_ms()
    for row in scope.select(ReviewRow).where(of_these).order_by(ReviewRow.created_at, ReviewRow.id):
        status = _status(row, now)
        if status in ("approved", "rejected"):
            decided[row.document_id, row.sha256] = status
        if row.sha256 == newest[row.document_id] and status in ("pending", "approved", "rejected"):
            shown[row.document_id] = cast(Reviewed, status)
    approved = _approved_revisions(scope, {key for key, status in decided.items() if status == "approved"})
    return {each: Standing(shown.get(each, "none"), approved.get(each)) for each in newest}


def _approved_revisions(scope: TenantScope, approved: set[tuple[str, str]]) -> dict[str, int]:
    if not approved:
        return {}
    query = scope.select(DocumentRevision, DocumentRevision.document_id, DocumentRevision.number, DocumentRevision.sha256)
    some = query.where(DocumentRevision.document_id.in_(sorted({document_id for document_id, _ in approved})))
    found: dict[str, int] = {}
    for row in some:
        if (row.document_id, row.sha256) in approved:
            found[row.document_id] = max(row.number, found.get(row.document_id, 0))
    return found


def _refuse_closed(review: Review) -> None:
    if review.status == "expired":
        raise Conflict("the time for this review is over; ask for a new one if it is still wanted")
    if review.status != "pending":
        raise Conflict(
            Sentence("this review is %(status)s; there is nothing to decide", status=review.status), extra={"status": review.status}
        )


def _status(row: ReviewRow, now: int) -> Status:
    return "expired" if row.status == "pending" and row.due_at <= now else cast(Status, row.status)


def _facts(review: Review) -> dict[str, Any]:
    """What the audit trail says about a review."""
    return {
        "review_id": review.id, "revision": review.revision, "sha256": review.sha256, "status": review.status,
        "needed": review.needed, "reviewers": [each.login for each in review.reviewers],
    }  # fmt: skip


def _announced(scope: TenantScope, review: Review) -> dict[str, Any]:
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
            row.id, row.document_id, row.revision, row.sha256, row.needed, tuple(Reviewer(*each) for each in row.reviewers),
            row.note, _status(row, now), row.due_at, row.requested_by, row.created_at, row.closed_at, tuple(votes[row.id]),
        )
        for row in rows
    ]  # fmt: skip
