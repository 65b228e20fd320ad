"""Who decides what, once, and what is kept of it."""

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from appliance.console.pages.operate.approvals import count_mine
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, PolicyDenied, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.governance.approvals import approvals
from appliance.governance.approvals.approvals import Approval, ApprovalFilter, Decision
from appliance.governance.approvals.deciders import find_decidable
from appliance.monitor import audit
from appliance.tenants import SignedIn, people
from appliance.tenants.keys import keys
from tests.governance.asking import SEALER, Town, found
from tests.store.opening import open_migrated

SCHEMA = {"type": "object", "required": ["total"], "properties": {"total": {"type": "integer", "minimum": 1}}}


@pytest.fixture
def database(store_url: str) -> Iterator[None]:
    open_migrated(store_url)
    yield
    db.close_database()


@pytest.fixture
def one(database: None) -> Town:
    return found("one")


@pytest.fixture
def two(database: None) -> Town:
    return found("two")


def let_expire(asked: Approval) -> None:
    db.write(lambda: db.execute("UPDATE approval SET expires_at = ? WHERE id = ?", (clock.now_ms() - 1, asked.id)))


def test_an_approver_approves_and_the_code_is_told(one: Town) -> None:
    asked = one.ask(reason="over 1000", details={"total": 1200}, expires="48h")
    assert (asked.status, asked.request.details, asked.origin.step) == ("pending", {"total": 1200}, "approve")
    decided = one.decide("eve", asked, comment=" fine \x00")
    assert decided == approvals.get_approval(one.scope, asked.id)
    told = approvals.answer_view(decided)
    assert decided.closed_at is not None
    assert told == {
        "status": "approved", "answer": None, "comment": "fine \ufffd", "decided_by": "eve@one.test",
        "decided_at": clock.rfc3339(decided.closed_at), "request_id": asked.id,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "given", "verdict", "answer", "status"),
    [
        ("approval", {}, "reject", None, "rejected"),
        ("input", {"schema": SCHEMA}, "answer", {"total": 5}, "answered"),
        ("input", {}, "answer", "a free text", "answered"),
        ("choice", {"choices": ["red", "blue"]}, "answer", "blue", "answered"),
    ],
)
def test_every_kind_is_answered_in_its_way(one: Town, kind: str, given: Any, verdict: Any, answer: Any, status: str) -> None:
    decided = one.decide("ann", one.ask(kind, **given), verdict, answer=answer)
    assert (decided.status, approvals.answer_view(decided)["answer"]) == (status, answer)


@pytest.mark.parametrize(
    ("kind", "given", "verdict", "answer", "pointer"),
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
def test_an_answer_fits_what_was_asked(one: Town, kind: str, given: Any, verdict: Any, answer: Any, pointer: str) -> None:
    asked = one.ask(kind, **given)
    with pytest.raises(ValidationFailed) as caught:
        one.decide("ann", asked, verdict, answer=answer)
    assert [detail.pointer for detail in caught.value.details] == [pointer]
    assert approvals.get_approval(one.scope, asked.id).status == "pending"


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
def test_who_decides(one: Town, kind: str, approvers: list[str], deciders: set[str]) -> None:
    able = set()
    for name, person in one.people.items():
        more: dict[str, Any] = {"choices": ["a"]} if kind == "choice" else {}
        asked = one.ask(kind, approvers=approvers, **more)
        try:
            one.decide(name, asked, "answer" if more else "approve", answer="a" if more else None)
            able.add(name)
        except PolicyDenied:
            assert person.scope is not None
            assert approvals.get_approval(one.scope, asked.id).status == "pending"
    assert able == deciders


def test_a_role_counts_as_it_is_when_the_decision_is_made(one: Town) -> None:
    asked = one.ask()
    people.add_member(one.scope, "eve@one.test", "operator", approver=False)
    with pytest.raises(PolicyDenied, match="approver"):
        one.decide("eve", asked)
    people.remove_member(one.scope, one.people["eve"].user_id)
    with pytest.raises(PolicyDenied, match="member"):
        one.decide("eve", asked)


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements of this thread from now on."""
    asked: list[str] = []
    kind, here = type(db.database.obj), threading.get_ident()
    execute = kind.execute_sql

    def noting(self: Any, sql: str, *more: Any, **named: Any) -> Any:
        if threading.get_ident() == here:
            asked.append(sql)
        return execute(self, sql, *more, **named)

    monkeypatch.setattr(kind, "execute_sql", noting)
    return asked


def test_what_one_may_decide_of_many_takes_as_many_queries_as_of_few(one: Town, queries: list[str]) -> None:
    """And is what one may decide of each."""
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
    found_ = approvals.list_approvals(one.scope, ApprovalFilter("pending"), PageRequest(100)).items
    assert len(found_) == 3 * len(actors) + 1
    asked = {each.id: (each.request, each.askers) for each in found_}
    for person in people_of.values():
        singly = {each.id for each in found_ if may(one, person, each)}
        queries.clear()
        assert find_decidable(one.scope, person.user_id, asked) == singly
        assert len(queries) <= 4, queries  # the member, two generations of keys, the kind of the tenant
    assert find_decidable(one.scope, people_of["ann"].user_id, {}) == set()


def may(town: Town, person: SignedIn, asked: Approval) -> bool:
    try:
        approvals.check_decider(town.scope, person, asked)
    except PolicyDenied:
        return False
    return True


def test_the_menu_counts_what_one_may_decide_by_few_queries(one: Town, queries: list[str]) -> None:
    for name in ("bob", "eve", "ann"):
        for _ in range(20):
            one.ask(actor=f"user:{one.people[name].user_id}")
    eve = one.people["eve"]
    assert eve.scope is not None
    queries.clear()
    assert count_mine(eve.scope, eve) == 40
    assert len(queries) < 8, queries


def test_a_key_never_decides(one: Town) -> None:
    asked, ann = one.ask(), one.people["ann"]
    for actor in (one.key(one.scope), "system", "execution:exe_1", f"user:{one.people['eve'].user_id}"):
        with pytest.raises(PolicyDenied, match="signed-in"):
            approvals.decide_approval(one.scope.with_actor(actor), ann, asked.id, Decision("approve"))


def test_who_started_the_execution_does_not_approve(one: Town) -> None:
    ann = one.people["ann"].scope
    assert ann is not None
    issued = one.key(ann)
    child_key = one.key(TenantScope("one", issued, ann.scopes))
    rotated = keys.rotate_key(ann.with_actor(issued), SEALER, issued.removeprefix("key:"), 3600)[0].id
    parent = one.execution(issued)
    for actor in (ann.actor, issued, child_key, f"key:{rotated}", f"execution:{parent}"):
        with pytest.raises(PolicyDenied, match="somebody else"):
            one.decide("ann", one.ask(actor=actor))
    assert one.decide("eve", one.ask(actor=ann.actor)).requested_by == ann.actor
    assert one.decide("ann", one.ask(actor=one.key(one.scope))).status == "approved"


def test_who_started_the_execution_may_answer_its_questions(one: Town) -> None:
    ann = one.people["ann"].scope
    assert ann is not None
    assert one.decide("ann", one.ask("input", actor=ann.actor), "answer", answer="42").status == "answered"


def test_a_sandbox_tenant_approves_its_own_and_the_trail_says_so(database: None) -> None:
    sandbox = found("sandbox-1", kind="sandbox")
    ann = sandbox.people["ann"].scope
    assert ann is not None
    asked = sandbox.ask(actor=ann.actor)
    sandbox.decide("ann", asked)
    assert sandbox.audited(asked.id)[-1][2]["self_approved"] is True
    other = sandbox.ask(actor=ann.actor)
    sandbox.decide("eve", other)
    assert "self_approved" not in sandbox.audited(other.id)[-1][2]


def test_a_decision_is_made_once(one: Town) -> None:
    asked = one.ask()
    one.decide("eve", asked, "reject")
    with pytest.raises(Conflict, match=r"eve@one\.test has already decided this request: rejected"):
        one.decide("ann", asked)
    assert approvals.get_approval(one.scope, asked.id).status == "rejected"


def test_of_twenty_decisions_at_once_one_counts(one: Town) -> None:
    asked = one.ask()
    heard: list[str] = []
    stop = approvals.on_decided(lambda scope, decided: heard.append(decided.id))
    together, results = threading.Barrier(20), []

    def decide(number: int) -> None:
        together.wait(10)
        try:
            one.decide("ann" if number % 2 else "eve", asked, "approve" if number % 3 else "reject")
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
    assert heard == [asked.id]
    assert len(one.audited(asked.id)) == 2


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_decision_of_another_process_on_its_way_counts(one: Town, store_url: str) -> None:
    """This process still sees the request open, waits for the other's commit, and then finds it decided."""
    asked = one.ask()
    results: list[str] = []

    def decide() -> None:
        try:
            one.decide("eve", asked)
        except Conflict as error:
            results.append(error.message)

    late = threading.Thread(target=decide)
    with psycopg.connect(store_url) as other, psycopg.connect(store_url, autocommit=True) as watcher:
        other.execute("UPDATE approval SET status = 'rejected', decided_login = 'ann' WHERE id = %s", (asked.id,))
        late.start()
        while not watcher.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall():
            assert late.is_alive()
    late.join()
    assert results == ["ann has already decided this request: rejected"]
    assert len(one.audited(asked.id)) == 1


def test_a_listener_is_part_of_the_decision(one: Town) -> None:
    asked = one.ask()
    seen: list[tuple[str, str]] = []

    def refuse(scope: TenantScope, decided: Approval) -> None:
        seen.append((scope.actor, decided.status))
        raise RuntimeError("the execution could not be woken")

    stop = approvals.on_decided(refuse)
    with pytest.raises(RuntimeError):
        one.decide("eve", asked)
    stop()
    assert seen == [(f"user:{one.people['eve'].user_id}", "approved")]
    assert approvals.get_approval(one.scope, asked.id).status == "pending"
    assert [action for _, action, _ in one.audited(asked.id)] == ["approval.request"]
    assert one.decide("eve", asked).status == "approved"
    assert len(seen) == 1


def test_a_request_expires(one: Town) -> None:
    asked = one.ask(expires="1s")
    let_expire(asked)
    with pytest.raises(Conflict, match="expired"):
        one.decide("eve", asked)
    expired = db.write(lambda: approvals.expire_approval(one.scope, asked.id))
    assert approvals.answer_view(expired) == {
        "status": "expired", "answer": None, "comment": "", "decided_by": None, "decided_at": None, "request_id": asked.id,
    }  # fmt: skip
    with pytest.raises(Conflict, match="expired"):
        one.decide("eve", asked)


def test_a_decision_that_came_first_does_not_expire(one: Town) -> None:
    asked = one.ask(expires="1h")
    one.decide("eve", asked)
    assert db.write(lambda: approvals.expire_approval(one.scope, asked.id)).status == "approved"
    assert [action for _, action, _ in one.audited(asked.id)] == ["approval.request", "approval.approve"]


def test_a_request_nobody_waits_for_is_withdrawn_once(one: Town) -> None:
    asked, other = one.ask(), one.ask()
    for _ in range(2):
        db.write(lambda: approvals.withdraw_approval(one.scope, asked.id, "cancelled by ann"))
    cancelled = approvals.get_approval(one.scope, asked.id)
    assert (cancelled.status, approvals.get_approval(one.scope, other.id).status) == ("cancelled", "pending")
    with pytest.raises(Conflict, match="cancelled this request"):
        one.decide("eve", asked)
    for unanswered in (cancelled, other):
        with pytest.raises(ValueError, match="apr_"):
            approvals.answer_view(unanswered)


def test_the_trail_binds_a_decision_to_what_was_shown(one: Town) -> None:
    asked = one.ask("choice", choices=["red", "blue"], details={"b": 1, "a": [2]})
    one.decide("olga", asked, "answer", answer="red", comment="as always")
    (asker, requested, what), (decider, action, decided) = one.audited(asked.id)
    assert (asker, requested) == (f"execution:{asked.origin.execution_id}", "approval.request")
    assert (decider, action) == (f"user:{one.people['olga'].user_id}", "approval.answer")
    assert what["digest"] == decided["digest"] == asked.digest
    assert (decided["comment"], len(decided["answer_digest"])) == ("as always", 64)
    assert audit.verify(one.scope).intact
    assert one.ask("choice", choices=["red", "blue"], details={"b": 1, "a": [3]}).digest != asked.digest


def test_requests_are_a_tenants_own(one: Town, two: Town) -> None:
    asked = one.ask()
    stranger = two.people["ann"]
    assert stranger.scope is not None
    with pytest.raises(NotFound):
        approvals.decide_approval(stranger.scope, stranger, asked.id, Decision("approve"))
    with pytest.raises(NotFound):
        approvals.get_approval(two.scope, asked.id)
    with pytest.raises(NotFound):
        db.write(lambda: approvals.expire_approval(two.scope, asked.id))
    forged = TenantScope("one", stranger.scope.actor, stranger.scope.scopes)
    with pytest.raises(PolicyDenied, match="member"):
        approvals.decide_approval(forged, stranger, asked.id, Decision("approve"))
    db.write(lambda: approvals.withdraw_approval(two.scope, asked.id, "not theirs"))
    assert (approvals.count_pending(one.scope), approvals.count_pending(two.scope)) == (1, 0)
    assert list(approvals.list_approvals(two.scope, ApprovalFilter(), PageRequest()).items) == []
    origin = one.origin(two.execution())
    request = approvals.parse_request({"kind": "approval", "title": "x"}, origin, 0)
    with pytest.raises(NotFound, match="execution"):
        db.write(lambda: approvals.request_approval(one.scope, request))


def test_requests_are_listed_newest_first_and_narrowed(one: Town) -> None:
    first, second, third = one.ask(), one.ask("input"), one.ask()
    one.decide("eve", second, "answer", answer="x")

    def listed(page: PageRequest | None = None, **wanted: Any) -> list[str]:
        found = approvals.list_approvals(one.scope, ApprovalFilter(**wanted), page or PageRequest())
        return [asked.id for asked in found.items]

    assert listed() == [third.id, second.id, first.id]
    assert listed(PageRequest(sort="created_at")) == [first.id, second.id, third.id]
    assert listed(status="pending") == [third.id, first.id]
    assert listed(execution_id=second.origin.execution_id) == [second.id]


def test_requests_go_with_their_execution(one: Town) -> None:
    asked = one.ask()
    db.write(lambda: db.execute("DELETE FROM execution WHERE id = ?", (asked.origin.execution_id,)))
    assert approvals.count_pending(one.scope) == 0
