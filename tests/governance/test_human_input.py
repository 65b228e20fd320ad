"""What callers ask in words, how they take it back, how it ends by itself, and how several are decided together."""

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, IdempotencyMismatch, NotFound, PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.governance.approvals import approvals, expiry
from appliance.governance.approvals.action_approvals import ActionApprovals
from appliance.governance.approvals.approvals import Approval, Decision
from appliance.governance.approvals.batches import MAX_REQUESTS, decide_approvals
from appliance.governance.approvals.human_input import HumanInput, cancel_request, request_human_input
from appliance.governance.policies.decision import Decision as Judgement
from appliance.governance.policies.decision import ToolAction
from appliance.governance.subjects import Subject
from tests.governance.asking import SEALER, Town, found
from tests.store.opening import open_migrated


@pytest.fixture
def one(store_url: str) -> Iterator[Town]:
    open_migrated(store_url)
    yield found("one")
    db.close_database()


@pytest.fixture
def caller(one: Town) -> Subject:
    ann = one.people["ann"].scope
    assert ann is not None
    return Subject(one.key(ann), "rest")


def ask(town: Town, subject: Subject, kind: str = "approval", **given: Any) -> Approval:
    asked = HumanInput(kind, **{"title": "May we?", **given})
    return request_human_input(town.scope.with_actor(subject.actor), subject, asked)


def ask_for_action(town: Town, subject: Subject) -> Approval:
    action = ToolAction("write_entities", "write", {"collection": "orders"})
    return ActionApprovals(SEALER).request_action(town.scope, subject, action, Judgement("require_approval", (), "p1"))


def let_expire(asked: Approval) -> None:
    db.write(lambda: db.execute("UPDATE approval SET expires_at = ? WHERE id = ?", (clock.now_ms() - 1, asked.id)))


def test_a_caller_asks_and_people_answer(one: Town, caller: Subject) -> None:
    asked = ask(one, caller, "choice", choices=["red", "blue"], reason="the label", ttl_seconds=60)
    assert (asked.requested_by, asked.about.asked_by, asked.origin.execution_id) == (caller.actor, caller.actor, "")
    assert asked.request.expires_at is not None
    assert 0 < asked.request.expires_at - asked.created_at <= 60_000
    assert one.decide("olga", asked, "answer", answer="blue").answer == "blue"
    with pytest.raises(PolicyDenied, match="you made this request"):
        one.decide("ann", ask(one, caller))


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"kind": "wish"}, "/kind"), ({"title": ""}, "/title"), ({"ttl_seconds": 0}, "/ttl_seconds"),
        ({"ttl_seconds": 91 * 86_400}, "/ttl_seconds"), ({"kind": "choice"}, "/choices"), ({"choices": ["a"]}, "/choices"),
        ({"kind": "input", "schema": {"type": "nothing"}}, "/schema"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_pointed_at(one: Town, caller: Subject, given: dict[str, Any], pointer: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        ask(one, caller, **given)
    assert [detail.pointer for detail in caught.value.details] == [pointer]


def test_one_key_asks_once(one: Town, caller: Subject) -> None:
    asked = ask(one, caller, idempotency_key="k")
    assert ask(one, caller, idempotency_key="k").id == asked.id
    with pytest.raises(IdempotencyMismatch):
        ask(one, caller, idempotency_key="k", title="Something else?")


def test_the_one_who_asked_withdraws_it(one: Town, caller: Subject) -> None:
    asked, action = ask(one, caller), ask_for_action(one, caller)
    one.decide("eve", action)
    for each in (asked, action):
        withdrawn = cancel_request(one.scope.with_actor(caller.actor), caller, each.id)
        assert (withdrawn.status, one.audited(each.id)[-1][:2]) == ("cancelled", (caller.actor, "approval.cancel"))
        with pytest.raises(Conflict, match="cancelled"):
            cancel_request(one.scope, caller, each.id)


def test_nobody_withdraws_what_is_not_theirs(one: Town, caller: Subject) -> None:
    asked, of_execution, in_words = ask(one, caller), one.ask(actor=caller.actor), ask(one, caller)
    of_run = ask(one, Subject(caller.actor, "agent", "clerk", "run_1"))
    one.decide("eve", in_words)
    with pytest.raises(PolicyDenied, match="only the requester"):
        cancel_request(one.scope, Subject(one.key(one.scope), "rest"), asked.id)
    for each, told in ((of_execution, "cancel the execution"), (of_run, "cancel the run"), (in_words, "cannot be withdrawn")):
        before = approvals.get_approval(one.scope, each.id).status
        with pytest.raises(Conflict, match=told):
            cancel_request(one.scope, caller, each.id)
        assert approvals.get_approval(one.scope, each.id).status == before
    with pytest.raises(NotFound):
        cancel_request(found("two").scope, caller, asked.id)


def test_what_nobody_decides_or_uses_in_time_ends(one: Town, caller: Subject) -> None:
    pending, approved, in_words, later = (ask(one, caller), ask_for_action(one, caller), ask(one, caller), ask(one, caller))
    of_execution = one.ask(expires="1h")
    one.decide("eve", approved)
    one.decide("eve", in_words)
    for each in (pending, approved, in_words, of_execution):
        let_expire(each)
    heard: list[tuple[str, str]] = []
    stop = approvals.on_decided(lambda scope, ended: heard.append((ended.id, ended.status)))
    assert (expiry.expire_due(), expiry.expire_due()) == (2, 0)
    stop()
    assert heard == [(pending.id, "expired")]
    statuses = [approvals.get_approval(one.scope, each.id).status for each in (pending, approved, in_words, later, of_execution)]
    assert statuses == ["expired", "expired", "approved", "pending", "pending"]
    assert [one.audited(each.id)[-1][1] for each in (pending, approved)] == ["approval.expire"] * 2
    assert one.audited(approved.id)[-1][2]["unused"] is True


def test_what_was_closed_long_ago_is_forgotten(one: Town, caller: Subject) -> None:
    old, new, pending = ask(one, caller), ask(one, caller), ask(one, caller)
    for each in (old, new):
        one.decide("eve", each, "reject")
    db.write(lambda: db.execute("UPDATE approval SET closed_at = 5 WHERE id = ?", (old.id,)))
    assert expiry.purge(6) == 1
    assert db.rows("SELECT COUNT(*) FROM approval_vote") == [(1,)]
    assert approvals.get_approval(one.scope, new.id).status == "rejected"
    assert approvals.get_approval(one.scope, pending.id).status == "pending"


def test_several_are_decided_in_one_act_each_by_itself(one: Town, caller: Subject) -> None:
    first, closed, choice, second = ask(one, caller), ask(one, caller), ask(one, caller, "choice", choices=["a"]), ask(one, caller)
    own = ask(one, Subject(scope_of(one, "eve").actor, "rest"))
    one.decide("eve", closed, "reject")
    wanted = [first.id, closed.id, choice.id, own.id, "apr_unknown", second.id, first.id]
    outcomes = decide_approvals(scope_of(one, "eve"), one.people["eve"], wanted, Decision("approve", comment="all fine"))
    assert [each.approval_id for each in outcomes] == wanted[:-1]
    codes = [each.error.code if each.error else "" for each in outcomes]
    assert codes == ["", "conflict", "validation_failed", "policy_denied", "not_found", ""]
    for each in (first, second):
        assert approvals.get_approval(one.scope, each.id).comment == "all fine"
        assert [action for _, action, _ in one.audited(each.id)] == ["approval.request", "approval.approve"]
    assert approvals.get_approval(one.scope, own.id).status == "pending"


def test_a_list_to_decide_has_bounds(one: Town) -> None:
    for wanted in ([], [f"apr_{number}" for number in range(MAX_REQUESTS + 1)]):
        with pytest.raises(ValidationFailed):
            decide_approvals(scope_of(one, "eve"), one.people["eve"], wanted, Decision("approve"))


def scope_of(town: Town, name: str) -> TenantScope:
    scope = town.people[name].scope
    assert scope is not None
    return scope
