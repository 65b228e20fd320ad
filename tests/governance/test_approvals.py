"""Who may decide a request, that it is decided once, and what is recorded."""

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, PolicyDenied, ValidationFailed
from appliance.core.events import hub
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.governance.approvals import ApprovalClosed, approvals
from appliance.governance.approvals.approvals import Approval, ApprovalFilter, Decision
from appliance.governance.approvals.deciders import find_decidable
from appliance.monitor import audit
from appliance.tenants import SignedIn, people
from appliance.tenants.keys import keys
from tests.governance.asking import SEALER, TenantFixture, make_tenant
from tests.store.opening import open_migrated

SCHEMA = {"type": "object", "required": ["total"], "properties": {"total": {"type": "integer", "minimum": 1}}}


@pytest.fixture
def database(store_url: str) -> Iterator[None]:
    open_migrated(store_url)
    yield
    db.close_database()


@pytest.fixture
def one(database: None) -> TenantFixture:
    return make_tenant("one")


@pytest.fixture
def two(database: None) -> TenantFixture:
    return make_tenant("two")


def let_expire(approval: Approval) -> None:
    db.write(lambda: db.execute("UPDATE approval SET expires_at = ? WHERE id = ?", (clock.now_ms() - 1, approval.id)))


def test_an_approver_approves_and_the_answer_is_returned(one: TenantFixture) -> None:
    approval = one.ask(reason="over 1000", details={"total": 1200}, expires="48h")
    assert (approval.status, approval.request.details, approval.origin.step) == ("pending", {"total": 1200}, "approve")
    decided = one.decide("eve", approval, comment=" fine \x00")
    assert decided == approvals.get_approval(one.scope, approval.id)
    view = approvals.answer_view(decided)
    assert decided.closed_at is not None
    assert view == {
        "status": "approved", "answer": None, "comment": "fine \ufffd", "decided_by": "eve@one.test",
        "decided_at": clock.rfc3339(decided.closed_at), "request_id": approval.id,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "fields", "verdict", "answer", "status"),
    [
        ("approval", {}, "reject", None, "rejected"),
        ("input", {"schema": SCHEMA}, "answer", {"total": 5}, "answered"),
        ("input", {}, "answer", "a free text", "answered"),
        ("choice", {"choices": ["red", "blue"]}, "answer", "blue", "answered"),
    ],
)
def test_every_kind_has_its_answer(one: TenantFixture, kind: str, fields: Any, verdict: Any, answer: Any, status: str) -> None:
    decided = one.decide("ann", one.ask(kind, **fields), verdict, answer=answer)
    assert (decided.status, approvals.answer_view(decided)["answer"]) == (status, answer)


@pytest.mark.parametrize(
    ("kind", "fields", "verdict", "answer", "pointer"),
    [
        ("approval", {}, "answer", "yes", "/verdict"),
        ("approval", {}, "approve", "yes", "/answer"),
        ("input", {}, "approve", None, "/verdict"),
        ("input", {}, "answer", "", "/answer"),
        ("input", {}, "answer", "x" * (64 << 10), "/answer"),
        ("input", {"schema": {}}, "answer", float("nan"), "/answer"),
        ("input", {"schema": {}}, "answer", "\ud800", "/answer"),
        ("input", {"schema": SCHEMA}, "answer", {"total": 0}, "/answer/total"),
        ("input", {"schema": SCHEMA}, "answer", {}, "/answer/total"),
        ("choice", {"choices": ["red"]}, "answer", "blue", "/answer"),
        ("choice", {"choices": ["red"]}, "answer", ["red"], "/answer"),
        ("choice", {"choices": ["red"]}, "reject", None, "/verdict"),
    ],
)
def test_an_invalid_answer_is_refused(one: TenantFixture, kind: str, fields: Any, verdict: Any, answer: Any, pointer: str) -> None:
    approval = one.ask(kind, **fields)
    with pytest.raises(ValidationFailed) as caught:
        one.decide("ann", approval, verdict, answer=answer)
    assert [detail.pointer for detail in caught.value.details] == [pointer]
    assert approvals.get_approval(one.scope, approval.id).status == "pending"


@pytest.mark.parametrize(
    ("kind", "approvers", "deciders"),
    [
        ("approval", [], {"ann", "eve"}),
        ("approval", ["role:operator"], {"ann", "eve"}),
        ("approval", ["role:owner"], {"ann"}),
        ("approval", ["user:Eve@one.test"], {"eve"}),
        ("approval", ["user:olga@one.test"], set()),
        ("choice", [], {"ann", "bob", "olga", "eve"}),
        ("choice", ["role:builder"], {"ann", "bob"}),
        ("choice", ["user:victor@one.test"], {"victor"}),
        ("choice", ["user:ann@two.test"], set()),
    ],
)
def test_who_decides(one: TenantFixture, kind: str, approvers: list[str], deciders: set[str]) -> None:
    actual = set()
    for name, person in one.people.items():
        fields: dict[str, Any] = {"choices": ["a"]} if kind == "choice" else {}
        approval = one.ask(kind, approvers=approvers, **fields)
        try:
            one.decide(name, approval, "answer" if fields else "approve", answer="a" if fields else None)
            actual.add(name)
        except PolicyDenied:
            assert person.scope is not None
            assert approvals.get_approval(one.scope, approval.id).status == "pending"
    assert actual == deciders


def test_the_current_role_counts_when_a_decision_is_made(one: TenantFixture) -> None:
    approval = one.ask()
    people.add_member(one.scope, "eve@one.test", "operator", approver=False)
    with pytest.raises(PolicyDenied, match="approver"):
        one.decide("eve", approval)
    people.remove_member(one.scope, one.people["eve"].user_id)
    with pytest.raises(PolicyDenied, match="member"):
        one.decide("eve", approval)


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements of this thread from now on."""
    statements: list[str] = []
    kind, this_thread = type(db.database.obj), threading.get_ident()
    execute = kind.execute_sql

    def noting(self: Any, sql: str, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == this_thread:
            statements.append(sql)
        return execute(self, sql, *args, **kwargs)

    monkeypatch.setattr(kind, "execute_sql", noting)
    return statements


def test_finding_decidable_requests_takes_a_constant_number_of_queries(one: TenantFixture, queries: list[str]) -> None:
    """The result equals checking each request by itself."""
    people_of = {name: person for name, person in one.people.items() if person.scope is not None}
    actors = ["system", *(f"user:{person.user_id}" for person in people_of.values())]
    owner = people_of["ann"].scope
    assert owner is not None
    first = one.key(owner)
    actors += [first, one.key(owner.with_actor(first)), "key:gone"]
    for actor in actors:
        one.ask(actor=actor)
        one.ask("input", actor=actor)
        one.ask(actor=actor, approvers=["user:bob@one.test", "role:owner"])
    let_expire(one.ask())
    voted = one.ask()
    one.decide("eve", voted)
    pending = approvals.list_approvals(one.scope, ApprovalFilter("pending"), PageRequest(100)).items
    assert len(pending) == 3 * len(actors) + 1
    requests = {each.id: each.audience for each in pending}
    for person in people_of.values():
        decidable = {each.id for each in pending if can_decide(one, person, each)}
        queries.clear()
        assert find_decidable(one.scope, person.user_id, requests) == decidable
        assert len(queries) <= 4, queries  # the member, two generations of keys, the kind of the tenant
    assert find_decidable(one.scope, people_of["ann"].user_id, {}) == set()


def can_decide(tenant: TenantFixture, person: SignedIn, approval: Approval) -> bool:
    try:
        approvals.check_decider(tenant.scope, person, approval)
    except PolicyDenied:
        return False
    return True


def test_the_menu_counts_decidable_requests_with_few_queries(one: TenantFixture, queries: list[str]) -> None:
    for name in ("bob", "eve", "ann"):
        for _ in range(20):
            one.ask(actor=f"user:{one.people[name].user_id}")
    eve = one.people["eve"]
    assert eve.scope is not None
    queries.clear()
    assert approvals.count_decidable(eve.scope, eve) == 40
    assert len(queries) < 8, queries


def test_a_key_never_decides(one: TenantFixture) -> None:
    approval, ann = one.ask(), one.people["ann"]
    for actor in (one.key(one.scope), "system", "execution:exe_1", f"user:{one.people['eve'].user_id}"):
        with pytest.raises(PolicyDenied, match="signed-in"):
            approvals.decide_approval(one.scope.with_actor(actor), ann, approval.id, Decision("approve"))


def test_who_started_the_execution_does_not_approve(one: TenantFixture) -> None:
    ann = one.people["ann"].scope
    assert ann is not None
    key = one.key(ann)
    child_key = one.key(TenantScope("one", key, ann.scopes))
    rotated = keys.rotate_key(ann.with_actor(key), SEALER, key.removeprefix("key:"), 3600)[0].id
    parent = one.execution(key)
    for actor in (ann.actor, key, child_key, f"key:{rotated}", f"execution:{parent}"):
        with pytest.raises(PolicyDenied, match="somebody else"):
            one.decide("ann", one.ask(actor=actor))
    assert one.decide("eve", one.ask(actor=ann.actor)).requested_by == ann.actor
    assert one.decide("ann", one.ask(actor=one.key(one.scope))).status == "approved"


def test_who_started_the_execution_may_answer_its_questions(one: TenantFixture) -> None:
    ann = one.people["ann"].scope
    assert ann is not None
    assert one.decide("ann", one.ask("input", actor=ann.actor), "answer", answer="42").status == "answered"


def test_self_approval_in_a_sandbox_tenant_is_audited(database: None) -> None:
    sandbox = make_tenant("sandbox-1", kind="sandbox")
    ann = sandbox.people["ann"].scope
    assert ann is not None
    approval = sandbox.ask(actor=ann.actor)
    sandbox.decide("ann", approval)
    assert sandbox.audit_entries(approval.id)[-1][2]["self_approved"] is True
    other = sandbox.ask(actor=ann.actor)
    sandbox.decide("eve", other)
    assert "self_approved" not in sandbox.audit_entries(other.id)[-1][2]


def test_a_decision_is_made_once(one: TenantFixture) -> None:
    approval = one.ask()
    one.decide("eve", approval, "reject")
    with pytest.raises(Conflict, match=r"eve@one\.test has already decided this request: rejected"):
        one.decide("ann", approval)
    assert approvals.get_approval(one.scope, approval.id).status == "rejected"


@pytest.mark.writes_once(reason="listeners are called inside the write")
def test_of_twenty_concurrent_decisions_one_counts(one: TenantFixture) -> None:
    approval = one.ask()
    notified: list[str] = []
    stop = hub.subscribe(ApprovalClosed, lambda event: notified.append(event.approval.id))
    together, results = threading.Barrier(20), []

    def decide(number: int) -> None:
        together.wait(10)
        try:
            one.decide("ann" if number % 2 else "eve", approval, "approve" if number % 3 else "reject")
            results.append("decided")
        except Conflict:
            results.append("conflict")

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop()
    assert sorted(results) == ["conflict"] * 19 + ["decided"]
    assert notified == [approval.id]
    assert len(one.audit_entries(approval.id)) == 2


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_an_uncommitted_decision_of_another_process_counts(one: TenantFixture, store_url: str) -> None:
    """This process still sees the request as open, waits for the other commit, and then finds it decided."""
    approval = one.ask()
    results: list[str] = []

    def decide() -> None:
        try:
            one.decide("eve", approval)
        except Conflict as error:
            results.append(error.message)

    waiting = threading.Thread(target=decide)
    with psycopg.connect(store_url) as other, psycopg.connect(store_url, autocommit=True) as watcher:
        other.execute("UPDATE approval SET status = 'rejected', decided_login = 'ann' WHERE id = %s", (approval.id,))
        waiting.start()
        while not watcher.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall():
            assert waiting.is_alive()
    waiting.join()
    assert results == ["ann has already decided this request: rejected"]
    assert len(one.audit_entries(approval.id)) == 1


@pytest.mark.writes_once(reason="listeners are called inside the write")
def test_a_failing_listener_rolls_the_decision_back(one: TenantFixture) -> None:
    approval = one.ask()
    seen: list[tuple[str, str]] = []

    def refuse(event: ApprovalClosed) -> None:
        seen.append((event.scope.actor, event.approval.status))
        raise RuntimeError("the execution could not be woken")

    stop = hub.subscribe(ApprovalClosed, refuse)
    with pytest.raises(RuntimeError):
        one.decide("eve", approval)
    stop()
    assert seen == [(f"user:{one.people['eve'].user_id}", "approved")]
    assert approvals.get_approval(one.scope, approval.id).status == "pending"
    assert [action for _, action, _ in one.audit_entries(approval.id)] == ["approval.request"]
    assert one.decide("eve", approval).status == "approved"
    assert len(seen) == 1


def test_a_request_expires(one: TenantFixture) -> None:
    approval = one.ask(expires="1s")
    let_expire(approval)
    with pytest.raises(Conflict, match="expired"):
        one.decide("eve", approval)
    expired = db.write(lambda: approvals.expire_approval(one.scope, approval.id))
    assert approvals.answer_view(expired) == {
        "status": "expired", "answer": None, "comment": "", "decided_by": None, "decided_at": None, "request_id": approval.id,
    }  # fmt: skip
    with pytest.raises(Conflict, match="expired"):
        one.decide("eve", approval)


def test_a_decided_request_does_not_expire(one: TenantFixture) -> None:
    approval = one.ask(expires="1h")
    one.decide("eve", approval)
    assert db.write(lambda: approvals.expire_approval(one.scope, approval.id)).status == "approved"
    assert [action for _, action, _ in one.audit_entries(approval.id)] == ["approval.request", "approval.approve"]


def test_a_request_is_withdrawn_once(one: TenantFixture) -> None:
    approval, other = one.ask(), one.ask()
    for _ in range(2):
        db.write(lambda: approvals.withdraw_approval(one.scope, approval.id, "cancelled by ann"))
    cancelled = approvals.get_approval(one.scope, approval.id)
    assert (cancelled.status, approvals.get_approval(one.scope, other.id).status) == ("cancelled", "pending")
    with pytest.raises(Conflict, match="cancelled this request"):
        one.decide("eve", approval)
    for unanswered in (cancelled, other):
        with pytest.raises(ValueError, match="apr_"):
            approvals.answer_view(unanswered)


def test_the_audit_trail_binds_a_decision_to_its_request(one: TenantFixture) -> None:
    approval = one.ask("choice", choices=["red", "blue"], details={"b": 1, "a": [2]})
    one.decide("olga", approval, "answer", answer="red", comment="as always")
    (requester, request_action, request_fields), (decider, action, decision_fields) = one.audit_entries(approval.id)
    assert (requester, request_action) == (f"execution:{approval.origin.execution_id}", "approval.request")
    assert (decider, action) == (f"user:{one.people['olga'].user_id}", "approval.answer")
    assert request_fields["digest"] == decision_fields["digest"] == approval.digest
    assert (decision_fields["comment"], len(decision_fields["answer_digest"])) == ("as always", 64)
    assert audit.verify(one.scope).intact
    assert one.ask("choice", choices=["red", "blue"], details={"b": 1, "a": [3]}).digest != approval.digest


def test_requests_are_isolated_by_tenant(one: TenantFixture, two: TenantFixture) -> None:
    approval = one.ask()
    stranger = two.people["ann"]
    assert stranger.scope is not None
    with pytest.raises(NotFound):
        approvals.decide_approval(stranger.scope, stranger, approval.id, Decision("approve"))
    with pytest.raises(NotFound):
        approvals.get_approval(two.scope, approval.id)
    with pytest.raises(NotFound):
        db.write(lambda: approvals.expire_approval(two.scope, approval.id))
    forged = TenantScope("one", stranger.scope.actor, stranger.scope.scopes)
    with pytest.raises(PolicyDenied, match="member"):
        approvals.decide_approval(forged, stranger, approval.id, Decision("approve"))
    db.write(lambda: approvals.withdraw_approval(two.scope, approval.id, "not theirs"))
    assert len(approvals.list_approvals(one.scope, ApprovalFilter("pending"), PageRequest(100)).items) == 1
    assert list(approvals.list_approvals(two.scope, ApprovalFilter(), PageRequest()).items) == []
    origin = one.origin(two.execution())
    request = approvals.parse_request({"kind": "approval", "title": "x"}, origin, 0)
    with pytest.raises(NotFound, match="execution"):
        db.write(lambda: approvals.request_approval(one.scope, request))


def test_requests_are_listed_newest_first_and_filtered(one: TenantFixture) -> None:
    first, second, third = one.ask(), one.ask("input"), one.ask()
    one.decide("eve", second, "answer", answer="x")

    def list_ids(page: PageRequest | None = None, **filters: Any) -> list[str]:
        page_of_approvals = approvals.list_approvals(one.scope, ApprovalFilter(**filters), page or PageRequest())
        return [approval.id for approval in page_of_approvals.items]

    assert list_ids() == [third.id, second.id, first.id]
    assert list_ids(PageRequest(sort="created_at")) == [first.id, second.id, third.id]
    assert list_ids(status="pending") == [third.id, first.id]
    assert list_ids(execution_id=second.origin.execution_id) == [second.id]


def test_requests_are_deleted_with_their_execution(one: TenantFixture) -> None:
    approval = one.ask()
    db.write(lambda: db.execute("DELETE FROM execution WHERE id = ?", (approval.origin.execution_id,)))
    assert len(approvals.list_approvals(one.scope, ApprovalFilter("pending"), PageRequest(100)).items) == 0
