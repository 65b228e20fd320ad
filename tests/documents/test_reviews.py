"""A content is approved by its named reviewers only, and no other content with it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Conflict, NotFound, PolicyDenied, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.documents.reviews import reviews
from appliance.documents.reviews.reviews import NewReview, Review
from appliance.documents.service import Document, Documents, NewDocument
from appliance.monitor import audit
from appliance.tenants import SignedIn, people, starters
from appliance.tenants import service as tenants
from appliance.tenants.models import Person

Sign = Callable[..., SignedIn]
DAY = 86_400_000


@pytest.fixture
def sign(documents: Documents) -> Sign:
    """Create a person with a role in a tenant, signed in."""

    def create(login: str, tenant: str = "acme", role: str = "viewer") -> SignedIn:
        row = {"id": ids.new("usr"), "login": login, "password_hash": "", "created_at": 1}
        person = db.write(lambda: Person.create(**row))  # without a password, whose digest takes a while
        people.add_member(tenants.system_scope(tenant), login, role)
        return SignedIn(person.id, login, role, TenantScope(tenant, f"user:{person.id}"))

    return create


@pytest.fixture
def document(documents: Documents, acme: TenantScope) -> Document:
    return documents.store_document(acme, NewDocument("contract.txt"), b"one")


def request_review(scope: TenantScope, document: Document, *logins: str, **more: Any) -> Review:
    return reviews.request_review(scope, document.id, NewReview(logins, **more))


def decide(person: SignedIn, review: Review, decision: Any = "approve", comment: str = "") -> Review:
    assert person.scope is not None
    return reviews.decide_review(person.scope, person, review.document_id, review.id, decision, comment)


def error_of(kind: type[ApplianceError], act: Callable[[], object]) -> ApplianceError:
    with pytest.raises(kind) as caught:
        act()
    return caught.value


def test_the_required_number_of_reviewers_approves(documents: Documents, acme: TenantScope, sign: Sign, document: Document) -> None:
    ada, bob, eve = (sign(f"{name}@acme.test") for name in ("ada", "bob", "eve"))
    review = request_review(acme, document, "ada@acme.test", "BOB@acme.test", needed=2, note="the price")
    assert (review.status, review.revision, review.sha256, review.note) == ("pending", 1, document.sha256, "the price")
    assert documents.get_document(acme, document.id).review == "pending"
    assert [each.id for each in reviews.list_waiting(acme, ada.user_id)] == [review.id]
    assert decide(ada, review, comment="good").status == "pending"
    assert reviews.list_waiting(acme, ada.user_id) == reviews.list_waiting(acme, eve.user_id) == []
    error_of(Conflict, lambda: decide(ada, review))
    assert "ada@acme.test" in error_of(PolicyDenied, lambda: decide(eve, review)).message
    done = decide(bob, review)
    assert (done.status, [(vote.login, vote.comment) for vote in done.votes]) == (
        "approved", [("ada@acme.test", "good"), ("bob@acme.test", "")],
    )  # fmt: skip
    stored = documents.get_document(acme, document.id)
    assert (stored.review, stored.approved_revision) == ("approved", 1)
    error_of(Conflict, lambda: decide(bob, review, "reject"))
    actions = [entry.action for entry in audit.list_entries(acme, audit.AuditFilter(subject=document.id), PageRequest()).items]
    assert actions == ["review.approve", "review.approve", "review.request"]


def test_a_review_is_rejected_early(documents: Documents, acme: TenantScope, sign: Sign, document: Document) -> None:
    ada, bob = sign("ada@acme.test"), sign("bob@acme.test")
    sign("cyd@acme.test")
    review = request_review(acme, document, "ada@acme.test", "bob@acme.test", "cyd@acme.test", needed=2)
    assert decide(ada, review, "reject").status == "pending"
    assert decide(bob, review, "reject").status == "rejected"
    stored = documents.get_document(acme, document.id)
    assert (stored.review, stored.approved_revision) == ("rejected", None)


def test_another_content_is_not_approved_with_it(documents: Documents, acme: TenantScope, sign: Sign, document: Document) -> None:
    ada = sign("ada@acme.test")
    decide(ada, request_review(acme, document, "ada@acme.test"))
    changed = documents.add_revision(acme, document.id, documents.store_content(acme, b"two"))
    assert (changed.review, changed.approved_revision) == ("none", 1)
    assert (reviews.is_approved(acme, document.id, 1), reviews.is_approved(acme, document.id, 2)) == (True, False)
    assert reviews.latest_approved(acme, document.id) == 1
    back = documents.add_revision(acme, document.id, documents.store_content(acme, b"one"))
    assert (back.revision, back.review, back.approved_revision) == (3, "approved", 3)
    decide(ada, request_review(acme, document, "ada@acme.test"), "reject")
    assert documents.get_document(acme, document.id).approved_revision is None
    assert not reviews.is_approved(acme, document.id, 3)
    other = documents.store_document(acme, NewDocument("copy.txt"), b"one")
    assert (other.review, reviews.latest_approved(acme, other.id)) == ("none", None)
    assert reviews.latest_approved(acme, "doc_nowhere") is None


def test_a_revision_added_during_a_review_is_not_reviewed(
    documents: Documents, acme: TenantScope, sign: Sign, document: Document
) -> None:
    ada = sign("ada@acme.test")
    review = request_review(acme, document, "ada@acme.test")
    documents.add_revision(acme, document.id, documents.store_content(acme, b"two"))
    assert decide(ada, review).status == "approved"
    stored = documents.get_document(acme, document.id)
    assert (stored.review, stored.approved_revision) == ("none", 1)


def test_nobody_reviews_their_own_content(documents: Documents, acme: TenantScope, sign: Sign) -> None:
    ada = sign("ada@acme.test", role="owner")
    sign("bob@acme.test")
    assert ada.scope is not None
    own = documents.store_document(ada.scope, NewDocument("mine.txt"), b"one")
    error = error_of(ValidationFailed, lambda: request_review(acme, own, "bob@acme.test", "ada@acme.test"))
    assert error.details[0].pointer == "/reviewers/1"
    review = request_review(acme, own, "bob@acme.test")
    db.write(lambda: db.execute("UPDATE document_review SET reviewers = ?", (db.dump_json([[ada.user_id, ada.login]]),)))
    assert "uploaded" in error_of(PolicyDenied, lambda: decide(ada, review)).message
    db.write(lambda: db.execute("UPDATE tenant SET kind = 'sandbox' WHERE id = 'acme'"))
    assert decide(ada, review).status == "approved"
    entry = audit.list_entries(acme, audit.AuditFilter(action="review.approve"), PageRequest()).items[0]
    assert '"self_approved":true' in entry.fields


def test_nobody_reviews_what_an_execution_they_started_uploaded(
    documents: Documents, acme: TenantScope, sign: Sign, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = (sign(f"{name}@acme.test") for name in ("ada", "bob"))
    chain = {"exe_child": "execution:exe_1", "exe_1": f"user:{ada.user_id}"}
    monkeypatch.setitem(starters.lookups, "execution", lambda scope, name: chain.get(name))
    stored = documents.store_document(acme.with_actor("execution:exe_child"), NewDocument("report.txt"), b"one")
    with pytest.raises(ValidationFailed, match="uploaded this content"):
        request_review(acme, stored, ada.login)
    orphan = documents.store_document(acme.with_actor("execution:deleted"), NewDocument("orphan.txt"), b"two")
    assert request_review(acme, orphan, ada.login, bob.login).status == "pending"


def test_only_a_signed_in_member_can_decide(acme: TenantScope, sign: Sign, document: Document) -> None:
    ada = sign("ada@acme.test", role="builder")
    review = request_review(acme, document, "ada@acme.test")
    for scope in (acme, tenants.system_scope("acme"), TenantScope("acme", "user:usr_other")):
        error_of(PolicyDenied, lambda scope=scope: reviews.decide_review(scope, ada, document.id, review.id, "approve"))  # type: ignore[misc]
    people.remove_member(tenants.system_scope("acme"), ada.user_id)
    error_of(PolicyDenied, lambda: decide(ada, review))


def test_reviews_of_others_are_not_found(acme: TenantScope, globex: TenantScope, sign: Sign, document: Document) -> None:
    stranger = sign("ada@globex.test", "globex")
    sign("ada@acme.test")
    review = request_review(acme, document, "ada@acme.test")
    for act in (
        lambda: reviews.get_review(globex, document.id, review.id),
        lambda: reviews.list_reviews(globex, document.id, PageRequest()),
        lambda: reviews.withdraw_review(globex, document.id, review.id),
        lambda: request_review(globex, document, "ada@globex.test"),
        lambda: decide(stranger, review),
    ):
        error_of(NotFound, act)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"reviewers": []}, "/reviewers"),
        ({"reviewers": ["ada@acme.test", "nobody@acme.test"]}, "/reviewers/1"),
        ({"reviewers": ["x"] * 21}, "/reviewers"),
        ({"needed": 2}, "/needed"),
        ({"needed": 0}, "/needed"),
        ({"revision": 2}, "/revision"),
        ({"due_at": 1}, "/due"),
        ({"due_at": 2**52}, "/due"),
        ({"note": "x" * 1001}, "/note"),
    ],
)
def test_an_invalid_request_is_reported(
    acme: TenantScope, sign: Sign, document: Document, fields: dict[str, Any], pointer: str
) -> None:
    sign("ada@acme.test")
    review = NewReview(**{"reviewers": ["ada@acme.test"], **fields})
    error = error_of(ValidationFailed, lambda: reviews.request_review(acme, document.id, review))
    assert error.details[0].pointer == pointer


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    now = clock.now_ms()
    return lambda days: monkeypatch.setattr(clock, "now_ms", lambda: now + days * DAY)


def test_a_review_expires_or_is_withdrawn(
    documents: Documents, acme: TenantScope, sign: Sign, document: Document, later: Callable[[int], None]
) -> None:
    ada = sign("ada@acme.test")
    first = request_review(acme, document, "ada@acme.test")
    error_of(Conflict, partial(request_review, acme, document, "ada@acme.test"))
    assert reviews.withdraw_review(acme, document.id, first.id).status == "withdrawn"
    error_of(Conflict, lambda: decide(ada, first))
    second = request_review(acme, document, "ada@acme.test", due_at=clock.now_ms() + DAY)
    later(2)
    assert reviews.get_review(acme, document.id, second.id).status == "expired"
    assert documents.get_document(acme, document.id).review == "none"
    error_of(Conflict, lambda: decide(ada, second))
    assert (reviews.expire_reviews(), reviews.expire_reviews()) == (1, 0)
    assert reviews.get_review(acme, document.id, second.id).closed_at is not None
    assert decide(ada, request_review(acme, document, "ada@acme.test")).status == "approved"
    listed = reviews.list_reviews(acme, document.id, PageRequest())
    assert [each.status for each in listed.items] == ["approved", "expired", "withdrawn"]
    documents.delete_document(acme, document.id)
    assert db.rows("SELECT count(*) FROM document_vote") == [(0,)]


def test_an_approval_emits_an_event(acme: TenantScope, sign: Sign, document: Document) -> None:
    ada = sign("ada@acme.test")
    db.write(
        lambda: db.execute(
            "INSERT INTO webhook (tenant_id, id, url, events, description, state, sealed, failed_in_row, created_at, created_by, "
            "updated_at) VALUES ('acme', 'whk_1', 'http://127.0.0.1:9/', '[\"document.approved\"]', '', 'active', ?, 0, 1, 'x', 1)",
            (b"x",),
        )
    )
    review = request_review(acme, document, "ada@acme.test")
    assert db.rows("SELECT count(*) FROM webhook_delivery") == [(0,)]
    decide(ada, review)
    ((payload,),) = db.rows("SELECT payload FROM webhook_delivery WHERE event = 'document.approved'")
    for part in (document.id, document.sha256, review.id, '"approved_by":["ada@acme.test"]'):
        assert part in payload
