"""An approved action is dispatched once, as it was approved, and every refusal says why."""

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Conflict, IdempotencyMismatch, NotFound, PolicyDenied, ValidationFailed
from appliance.core.events import hub
from appliance.core.scope import TenantScope
from appliance.governance.actions import Canonical, StoredAction, canonical_action
from appliance.governance.approvals import ApprovalClosed, approvals
from appliance.governance.approvals.action_approvals import NEXT_STEP, ActionApprovals, RequestOptions
from appliance.governance.approvals.approvals import Approval
from appliance.governance.policies.decision import Decision, Obligations, ToolAction
from appliance.governance.subjects import SkillUsed, Subject
from appliance.monitor import audit
from appliance.tenants import starters
from tests.governance.asking import SEALER, TenantFixture, make_tenant
from tests.store.opening import open_migrated

ACTION = ToolAction(
    "execute_tenant_integration", "write", {"sku": "A", "quantity": 2**60, "note": "gos:int:1"}, "erp", "create_order", "http 1.2",
    "erp.example:443", "cred_1",
)  # fmt: skip
APPROVALS = ActionApprovals(SEALER)


@pytest.fixture
def one(store_url: str) -> Iterator[TenantFixture]:
    open_migrated(store_url)
    yield make_tenant("one")
    db.close_database()


def approval_decision(needed: int = 1, **obligations: Any) -> Decision:
    return Decision(
        "require_approval", ("orders are approved",), "p1", ("orders/write",), Obligations(needed=needed, **obligations)
    )


def subject_of(tenant: TenantFixture, actor: str | None = None, **fields: Any) -> Subject:
    return Subject(actor or tenant.key(tenant.scope), "mcp", **fields)


def ask(tenant: TenantFixture, subject: Subject, decision: Decision | None = None, **options: Any) -> Approval:
    return APPROVALS.request_action(
        tenant.scope.with_actor(subject.actor), subject, ACTION, decision or approval_decision(), RequestOptions(**options)
    )


def consume(
    tenant: TenantFixture, approval_id: str, subject: Subject, action: ToolAction = ACTION, version: str = "p1"
) -> StoredAction:
    action_of_caller = canonical_action(tenant.scope, subject, action, version)
    return db.write(
        lambda: APPROVALS.consume_action(tenant.scope.with_actor(subject.actor), approval_id, action_of_caller, "call:1")
    )


def expect_refusal(tenant: TenantFixture, approval_id: str, subject: Subject, **changes: Any) -> tuple[str, ApplianceError]:
    """The reason why consuming is refused, which is also in the audit trail."""
    with pytest.raises(ApplianceError) as caught:
        consume(tenant, approval_id, subject, **changes)
    last = tenant.audit_entries(approval_id)[-1]
    assert (last[0], last[1]) == (subject.actor, "approval.refuse")
    assert last[2]["reason"] == caught.value.extra["reason"]
    assert audit.verify(tenant.scope).intact
    return caught.value.extra["reason"], caught.value


def test_an_approved_action_is_consumed_once(one: TenantFixture) -> None:
    skills = (SkillUsed("orders", "d1", is_trusted=True), SkillUsed("mail", "d2"))
    subject = subject_of(one, agent="", skills=skills, tainted_by=("mailbox",))
    approval = ask(one, subject, title="Please", reason="the customer waits")
    assert approval.about.summary.startswith("create_order of erp (http 1.2) at erp.example:443, which writes: ")
    assert (approval.request.title, approval.about.heading, approval.status) == ("Please", "create_order of erp", "pending")
    assert one.decide("eve", approval).status == "approved"
    stored = consume(one, approval.id, subject)
    assert (stored.action, stored.version, stored.subject) == (ACTION, "p1", replace(subject, skills=skills[::-1]))
    used = approvals.get_approval(one.scope, approval.id)
    assert (used.status, used.used_by, used.used_at is not None) == ("used", "call:1", True)
    assert approvals.answer_view(used)["status"] == "approved"
    actions = [action for _, action, _ in one.audit_entries(approval.id)]
    assert actions == ["approval.request", "approval.approve", "approval.use"]
    reason, error = expect_refusal(one, approval.id, subject)
    assert (reason, error.code) == ("used", "policy_denied")


def test_of_twenty_consumptions_at_once_one_wins(one: TenantFixture) -> None:
    subject = subject_of(one)
    approval = ask(one, subject)
    one.decide("eve", approval)
    canonical = canonical_action(one.scope, subject, ACTION, "p1")
    together, results = threading.Barrier(20), []

    def dispatch(number: int) -> None:
        together.wait(60)
        try:
            db.write(lambda: APPROVALS.consume_action(one.scope, approval.id, canonical, f"call:{number}"))
            results.append("dispatched")
        except PolicyDenied as error:
            results.append(error.extra["reason"])

    threads = [threading.Thread(target=dispatch, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["dispatched"] + ["used"] * 19
    actions = [action for _, action, _ in one.audit_entries(approval.id)]
    assert (actions.count("approval.use"), actions.count("approval.refuse")) == (1, 19)


def test_a_rolled_back_dispatch_keeps_the_approval_and_a_refused_one_is_audited(one: TenantFixture) -> None:
    subject = subject_of(one)
    approval = ask(one, subject)
    canonical = canonical_action(one.scope, subject, ACTION, "p1")

    def dispatch() -> None:
        APPROVALS.consume_action(one.scope, approval.id, canonical, "call:1")
        raise RuntimeError("the record of the call could not be written")

    with pytest.raises(ApplianceError):
        db.write(dispatch)
    assert [action for _, action, _ in one.audit_entries(approval.id)][1:] == ["approval.refuse"]
    one.decide("eve", approval)
    with pytest.raises(RuntimeError):
        db.write(dispatch)
    assert [action for _, action, _ in one.audit_entries(approval.id)][2:] == ["approval.approve"]
    assert consume(one, approval.id, subject).action == ACTION


def test_an_approval_that_does_not_hold_says_why(one: TenantFixture) -> None:
    subject = subject_of(one)
    approval = ask(one, subject)
    reason, error = expect_refusal(one, approval.id, subject)
    assert (reason, error.code, error.extra["approval_id"]) == ("pending", "approval_required", approval.id)
    one.decide("eve", approval, "reject")
    assert expect_refusal(one, approval.id, subject)[0] == "rejected"
    withdrawn, expired = ask(one, subject), ask(one, subject)
    for each in (withdrawn, expired):
        one.decide("eve", each)
    db.write(lambda: approvals.withdraw_approval(one.scope, withdrawn.id, "not needed"))
    assert expect_refusal(one, withdrawn.id, subject)[0] == "withdrawn"
    db.write(lambda: db.execute("UPDATE approval SET expires_at = ? WHERE id = ?", (clock.now_ms() - 1, expired.id)))
    assert expect_refusal(one, expired.id, subject)[0] == "expired"
    assert expect_refusal(one, one.ask().id, subject)[0] == "not_an_action"


def test_an_approval_holds_in_its_tenant_only(one: TenantFixture) -> None:
    two = make_tenant("two")
    subject = subject_of(one)
    approval = ask(one, subject)
    one.decide("eve", approval)
    reason, unknown = expect_refusal(two, "apr_unknown", subject)
    assert (reason, unknown.code) == ("unknown", "not_found")
    reason, foreign = expect_refusal(two, approval.id, subject)
    assert (reason, foreign.message.replace(approval.id, "apr_unknown")) == ("unknown", unknown.message)
    assert consume(one, approval.id, subject).approval_id == approval.id


@pytest.mark.parametrize(
    ("changes", "members"),
    [
        ({"action": replace(ACTION, input={"sku": "B"})}, ["input"]),
        ({"action": replace(ACTION, connector="http 1.3")}, ["connector"]),
        ({"action": replace(ACTION, host="evil.example:443", credential="cred_2")}, ["credential", "host"]),
        ({"version": "p2"}, ["policy"]),
    ],
)
def test_another_action_is_refused_with_what_changed(one: TenantFixture, changes: dict[str, Any], members: list[str]) -> None:
    subject = subject_of(one)
    approval = ask(one, subject)
    one.decide("eve", approval)
    reason, error = expect_refusal(one, approval.id, subject, **changes)
    assert (reason, error.extra["changed"]) == ("digest_differs", members)
    assert consume(one, approval.id, subject).action == ACTION


def test_another_subject_or_skill_is_refused(one: TenantFixture) -> None:
    subject = subject_of(one, skills=(SkillUsed("orders", "d1"),))
    approval = ask(one, subject)
    one.decide("eve", approval)
    other_subject = replace(subject, skills=(SkillUsed("orders", "d2"),))
    assert expect_refusal(one, approval.id, other_subject)[1].extra["changed"] == ["skills"]
    assert expect_refusal(one, approval.id, subject_of(one))[1].extra["changed"] == ["actor", "skills"]


@pytest.mark.writes_once(reason="listeners are called inside the write")
def test_several_different_approvers_are_needed(one: TenantFixture) -> None:
    subject = subject_of(one)
    approval = ask(one, subject, approval_decision(needed=2, approvers=("role:operator",)))
    notified: list[str] = []
    stop = hub.subscribe(ApprovalClosed, lambda event: notified.append(event.approval.status))
    first = one.decide("eve", approval, comment="fine")
    assert (first.status, [(vote.login, vote.verdict, vote.comment) for vote in first.votes]) == (
        "pending", [("eve@one.test", "approve", "fine")],
    )  # fmt: skip
    with pytest.raises(Conflict, match="you have already decided"):
        one.decide("eve", approval)
    assert (expect_refusal(one, approval.id, subject)[0], notified) == ("pending", [])
    assert one.decide("ann", approval).status == "approved"
    stop()
    assert notified == ["approved"]
    assert consume(one, approval.id, subject).action == ACTION
    approved = [fields for _, action, fields in one.audit_entries(approval.id) if action == "approval.approve"]
    assert [(each["approved"], each["needed"]) for each in approved] == [(1, 2), (2, 2)]


def test_one_rejection_rejects(one: TenantFixture) -> None:
    subject = subject_of(one)
    approval = ask(one, subject, approval_decision(needed=2))
    one.decide("eve", approval)
    assert one.decide("ann", approval, "reject").status == "rejected"
    assert expect_refusal(one, approval.id, subject)[0] == "rejected"


def test_a_status_without_decisions_approves_nothing(one: TenantFixture) -> None:
    """Whatever wrote the row, only recorded decisions approve a request."""
    subject = subject_of(one)
    approval = ask(one, subject)
    db.write(lambda: db.execute("UPDATE approval SET status = 'approved' WHERE id = ?", (approval.id,)))
    assert expect_refusal(one, approval.id, subject)[0] == "pending"


def test_a_requester_does_not_approve_their_own_or_their_keys_request(one: TenantFixture) -> None:
    ann = one.people["ann"].scope
    assert ann is not None
    key = one.key(ann)
    execution = one.execution(key)
    for actor in (ann.actor, key, f"execution:{execution}"):
        approval = ask(one, subject_of(one, actor))
        assert approval.requested_by == (ann.actor if actor == ann.actor else key)
        with pytest.raises(PolicyDenied, match="somebody else must decide"):
            one.decide("ann", approval)
        assert one.decide("eve", approval).status == "approved"


def test_the_starter_of_a_run_does_not_approve_its_requests(one: TenantFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = one.people["ann"].scope
    assert ann is not None
    subject = subject_of(one, "run:run_1", agent="clerk", run_id="run_1")
    monkeypatch.delitem(starters.lookups, "run", raising=False)
    with pytest.raises(PolicyDenied, match="not known who started this run"):
        ask(one, subject)
    monkeypatch.setitem(starters.lookups, "run", lambda scope, name: ann.actor if name == "run_1" else "system")
    approval = ask(one, subject)
    with pytest.raises(PolicyDenied, match="somebody else must decide"):
        one.decide("ann", approval)
    assert one.decide("eve", approval).about.run_id == "run_1"


def test_only_a_signed_in_person_decides(one: TenantFixture) -> None:
    subject = subject_of(one)
    approval, eve = ask(one, subject), one.people["eve"]
    for actor in (subject.actor, "system", "run:run_1", one.key(one.scope)):
        with pytest.raises(PolicyDenied, match="signed-in"):
            approvals.decide_approval(one.scope.with_actor(actor), eve, approval.id, approvals.Decision("approve"))
    assert approvals.get_approval(one.scope, approval.id).status == "pending"


def test_an_idempotency_key_makes_one_request(one: TenantFixture) -> None:
    subject = subject_of(one)
    approval = ask(one, subject, idempotency_key="k", title="Please")
    assert ask(one, subject, idempotency_key="k", title="Pretty please").id == approval.id
    with pytest.raises(IdempotencyMismatch):
        APPROVALS.request_action(
            one.scope, subject, replace(ACTION, input={}), approval_decision(), RequestOptions(idempotency_key="k")
        )
    assert ask(one, subject_of(one), idempotency_key="k").id != approval.id
    assert ask(one, subject).id != ask(one, subject).id


def test_a_policy_limits_the_lifetime_and_may_deny_the_request(one: TenantFixture) -> None:
    subject, now = subject_of(one), clock.now_ms()
    for ttl_seconds, seconds in ((None, 600), (60, 60), (86_400, 600)):
        expires_at = ask(one, subject, approval_decision(ttl_seconds=600), ttl_seconds=ttl_seconds).request.expires_at
        assert expires_at is not None
        assert now + seconds * 1000 <= expires_at <= clock.now_ms() + seconds * 1000
    with pytest.raises(ValidationFailed) as caught:
        ask(one, subject, ttl_seconds=0)
    assert [detail.pointer for detail in caught.value.details] == ["/ttl_seconds"]
    with pytest.raises(PolicyDenied, match="never"):
        ask(one, subject, Decision("deny", ("never",), "p1"))


def test_the_stored_action_is_sealed_and_bound_to_its_digest(one: TenantFixture) -> None:
    subject = subject_of(one)
    approval, other = ask(one, subject), ask(one, subject, title="x")
    ((sealed,),) = db.rows("SELECT sealed FROM approval WHERE id = ?", (approval.id,))
    assert b"create_order" not in bytes(sealed)
    with pytest.raises(NotFound):
        APPROVALS.read_action(one.scope, one.ask().id)
    one.decide("eve", other)
    db.write(lambda: db.execute("UPDATE approval SET sealed = ? WHERE id = ?", (bytes(sealed), other.id)))
    with pytest.raises(ApplianceError, match="cannot be decrypted"):
        consume(one, other.id, subject)
    assert approvals.get_approval(one.scope, other.id).status == "approved"


def test_an_action_with_a_wrong_digest_is_refused(one: TenantFixture) -> None:
    subject = subject_of(one)
    approval = ask(one, subject)
    db.write(lambda: db.execute("UPDATE approval SET action_digest = 'f' WHERE id = ?", (approval.id,)))
    one.decide("eve", approval)
    forged = Canonical(canonical_action(one.scope, subject, ACTION, "p1").text, "f")
    with pytest.raises(ApplianceError, match="does not match its digest"):
        db.write(lambda: APPROVALS.consume_action(one.scope, approval.id, forged, "call:1"))


def test_the_manual_lists_every_refusal_reason() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "approvals.md").read_text()
    assert set(re.findall(r"^\| `([a-z_]+)` \|", manual, re.MULTILINE)) == {"unknown", *NEXT_STEP}


def test_requests_without_an_execution_survive_its_deletion(one: TenantFixture) -> None:
    approval = ask(one, subject_of(one))
    db.write(lambda: db.execute("DELETE FROM execution"))
    assert approvals.get_approval(one.scope, approval.id).status == "pending"
    assert isinstance(one.scope, TenantScope)
