"""Requests for human input: making and withdrawing them, expiry, and batch decisions."""

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, IdempotencyMismatch, NotFound, PolicyDenied, ValidationFailed
from appliance.core.events import hub
from appliance.core.scope import TenantScope
from appliance.governance.approvals import ApprovalClosed, approvals, expiry
from appliance.governance.approvals.action_approvals import ActionApprovals
from appliance.governance.approvals.approvals import Approval, Decision
from appliance.governance.approvals.batches import MAX_REQUESTS, decide_approvals
from appliance.governance.approvals.human_input import HumanInput, cancel_request, request_human_input
from appliance.governance.policies.decision import Decision as Judgement
from appliance.governance.policies.decision import ToolAction
from appliance.governance.subjects import Subject
from tests.governance.asking import SEALER, TenantFixture, make_tenant
from tests.store.opening import open_migrated


@pytest.fixture
def one(store_url: str) -> Iterator[TenantFixture]:
    open_migrated(store_url)
    yield make_tenant("one")
    db.close_database()


@pytest.fixture
def caller(one: TenantFixture) -> Subject:
    ann = one.people["ann"].scope
    assert ann is not None
    return Subject(one.key(ann), "rest")


def ask(tenant: TenantFixture, subject: Subject, kind: str = "approval", **fields: Any) -> Approval:
    request = HumanInput(kind, **{"title": "May we?", **fields})
    return request_human_input(tenant.scope.with_actor(subject.actor), subject, request)


def ask_for_action(tenant: TenantFixture, subject: Subject) -> Approval:
    action = ToolAction("write_entities", "write", {"collection": "orders"})
    return ActionApprovals(SEALER).request_action(tenant.scope, subject, action, Judgement("require_approval", (), "p1"))


def let_expire(approval: Approval) -> None:
    db.write(lambda: db.execute("UPDATE approval SET expires_at = ? WHERE id = ?", (clock.now_ms() - 1, approval.id)))


def test_a_caller_requests_input_and_a_person_answers(one: TenantFixture, caller: Subject) -> None:
    approval = ask(one, caller, "choice", choices=["red", "blue"], reason="the label", ttl_seconds=60)
    assert (approval.requested_by, approval.about.asked_by, approval.origin.execution_id) == (caller.actor, caller.actor, "")
    assert approval.request.expires_at is not None
    assert 0 < approval.request.expires_at - approval.created_at <= 60_000
    assert one.decide("olga", approval, "answer", answer="blue").answer == "blue"
    with pytest.raises(PolicyDenied, match="you made this request"):
        one.decide("ann", ask(one, caller))


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"kind": "wish"}, "/kind"), ({"title": ""}, "/title"), ({"ttl_seconds": 0}, "/ttl_seconds"),
        ({"ttl_seconds": 91 * 86_400}, "/ttl_seconds"), ({"kind": "choice"}, "/choices"), ({"choices": ["a"]}, "/choices"),
        ({"kind": "input", "schema": {"type": "nothing"}}, "/schema"),
    ],
)  # fmt: skip
def test_an_invalid_request_is_refused_with_its_pointer(
    one: TenantFixture, caller: Subject, fields: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(ValidationFailed) as caught:
        ask(one, caller, **fields)
    assert [detail.pointer for detail in caught.value.details] == [pointer]


def test_an_idempotency_key_makes_one_request(one: TenantFixture, caller: Subject) -> None:
    approval = ask(one, caller, idempotency_key="k")
    assert ask(one, caller, idempotency_key="k").id == approval.id
    with pytest.raises(IdempotencyMismatch):
        ask(one, caller, idempotency_key="k", title="Something else?")


def test_a_requester_withdraws_their_request(one: TenantFixture, caller: Subject) -> None:
    approval, action = ask(one, caller), ask_for_action(one, caller)
    one.decide("eve", action)
    for each in (approval, action):
        withdrawn = cancel_request(one.scope.with_actor(caller.actor), caller, each.id)
        assert (withdrawn.status, one.audit_entries(each.id)[-1][:2]) == ("cancelled", (caller.actor, "approval.cancel"))
        with pytest.raises(Conflict, match="cancelled"):
            cancel_request(one.scope, caller, each.id)


def test_a_request_of_somebody_else_cannot_be_withdrawn(one: TenantFixture, caller: Subject) -> None:
    approval, of_execution, in_words = ask(one, caller), one.ask(actor=caller.actor), ask(one, caller)
    of_run = ask(one, Subject(caller.actor, "agent", "clerk", "run_1"))
    one.decide("eve", in_words)
    with pytest.raises(PolicyDenied, match="only the requester"):
        cancel_request(one.scope, Subject(one.key(one.scope), "rest"), approval.id)
    for each, message in ((of_execution, "cancel the execution"), (of_run, "cancel the run"), (in_words, "cannot be withdrawn")):
        before = approvals.get_approval(one.scope, each.id).status
        with pytest.raises(Conflict, match=message):
            cancel_request(one.scope, caller, each.id)
        assert approvals.get_approval(one.scope, each.id).status == before
    with pytest.raises(NotFound):
        cancel_request(make_tenant("two").scope, caller, approval.id)


@pytest.mark.writes_once(reason="listeners are called inside the write")
def test_undecided_and_unused_requests_expire(one: TenantFixture, caller: Subject) -> None:
    pending, approved, in_words, later = (ask(one, caller), ask_for_action(one, caller), ask(one, caller), ask(one, caller))
    of_execution = one.ask(expires="1h")
    one.decide("eve", approved)
    one.decide("eve", in_words)
    for each in (pending, approved, in_words, of_execution):
        let_expire(each)
    notified: list[tuple[str, str]] = []
    stop = hub.subscribe(ApprovalClosed, lambda event: notified.append((event.approval.id, event.approval.status)))
    assert (expiry.expire_due(), expiry.expire_due()) == (2, 0)
    stop()
    assert notified == [(pending.id, "expired")]
    statuses = [approvals.get_approval(one.scope, each.id).status for each in (pending, approved, in_words, later, of_execution)]
    assert statuses == ["expired", "expired", "approved", "pending", "pending"]
    assert [one.audit_entries(each.id)[-1][1] for each in (pending, approved)] == ["approval.expire"] * 2
    assert one.audit_entries(approved.id)[-1][2]["unused"] is True


def test_old_closed_requests_are_purged(one: TenantFixture, caller: Subject) -> None:
    old, new, pending = ask(one, caller), ask(one, caller), ask(one, caller)
    for each in (old, new):
        one.decide("eve", each, "reject")
    db.write(lambda: db.execute("UPDATE approval SET closed_at = 5 WHERE id = ?", (old.id,)))
    assert expiry.purge(6) == 1
    assert db.rows("SELECT COUNT(*) FROM approval_vote") == [(1,)]
    assert approvals.get_approval(one.scope, new.id).status == "rejected"
    assert approvals.get_approval(one.scope, pending.id).status == "pending"


def test_a_batch_decides_each_request_by_itself(one: TenantFixture, caller: Subject) -> None:
    first, closed, choice, second = ask(one, caller), ask(one, caller), ask(one, caller, "choice", choices=["a"]), ask(one, caller)
    own = ask(one, Subject(scope_of(one, "eve").actor, "rest"))
    one.decide("eve", closed, "reject")
    approval_ids = [first.id, closed.id, choice.id, own.id, "apr_unknown", second.id, first.id]
    outcomes = decide_approvals(scope_of(one, "eve"), one.people["eve"], approval_ids, Decision("approve", comment="all fine"))
    assert [each.approval_id for each in outcomes] == approval_ids[:-1]
    codes = [each.error.code if each.error else "" for each in outcomes]
    assert codes == ["", "conflict", "validation_failed", "policy_denied", "not_found", ""]
    for each in (first, second):
        assert approvals.get_approval(one.scope, each.id).comment == "all fine"
        assert [action for _, action, _ in one.audit_entries(each.id)] == ["approval.request", "approval.approve"]
    assert approvals.get_approval(one.scope, own.id).status == "pending"


def test_a_batch_has_a_minimum_and_maximum_size(one: TenantFixture) -> None:
    for approval_ids in ([], [f"apr_{number}" for number in range(MAX_REQUESTS + 1)]):
        with pytest.raises(ValidationFailed):
            decide_approvals(scope_of(one, "eve"), one.people["eve"], approval_ids, Decision("approve"))


def scope_of(tenant: TenantFixture, name: str) -> TenantScope:
    scope = tenant.people[name].scope
    assert scope is not None
    return scope
