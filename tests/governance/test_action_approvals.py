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
from appliance.core.scope import TenantScope
from appliance.governance.actions import Canonical, StoredAction, canonical_action
from appliance.governance.approvals import approvals
from appliance.governance.approvals.action_approvals import NEXT_STEP, ActionApprovals, RequestOptions
from appliance.governance.approvals.approvals import Approval
from appliance.governance.policies.decision import Decision, Obligations, ToolAction
from appliance.governance.subjects import SkillUsed, Subject
from appliance.monitor import audit
from tests.governance.asking import SEALER, Town, found
from tests.store.opening import open_migrated

ACTION = ToolAction(
    "execute_tenant_integration", "write", {"sku": "A", "quantity": 2**60, "note": "gos:int:1"}, "erp", "create_order", "http 1.2",
    "erp.example:443", "cred_1",
)  # fmt: skip
APPROVALS = ActionApprovals(SEALER)


@pytest.fixture
def one(store_url: str) -> Iterator[Town]:
    open_migrated(store_url)
    yield found("one")
    db.close_database()


def judged(needed: int = 1, **more: Any) -> Decision:
    return Decision("require_approval", ("orders are approved",), "p1", ("orders/write",), Obligations(needed=needed, **more))


def subject_of(town: Town, actor: str | None = None, **more: Any) -> Subject:
    return Subject(actor or town.key(town.scope), "mcp", **more)


def ask(town: Town, subject: Subject, decision: Decision | None = None, **wish: Any) -> Approval:
    return APPROVALS.request_action(
        town.scope.with_actor(subject.actor), subject, ACTION, decision or judged(), RequestOptions(**wish)
    )


def consume(town: Town, approval_id: str, subject: Subject, action: ToolAction = ACTION, version: str = "p1") -> StoredAction:
    presented = canonical_action(town.scope, subject, action, version)
    return db.write(lambda: APPROVALS.consume_action(town.scope.with_actor(subject.actor), approval_id, presented, "call:1"))


def refused(town: Town, approval_id: str, subject: Subject, **more: Any) -> tuple[str, ApplianceError]:
    """The reason a consumption is refused for, which the audit trail has too."""
    with pytest.raises(ApplianceError) as caught:
        consume(town, approval_id, subject, **more)
    last = town.audited(approval_id)[-1]
    assert (last[0], last[1]) == (subject.actor, "approval.refuse")
    assert last[2]["reason"] == caught.value.extra["reason"]
    assert audit.verify(town.scope).intact
    return caught.value.extra["reason"], caught.value


def test_what_was_approved_is_handed_out_once(one: Town) -> None:
    skills = (SkillUsed("orders", "d1", is_trusted=True), SkillUsed("mail", "d2"))
    subject = subject_of(one, agent="", skills=skills, tainted_by=("mailbox",))
    asked = ask(one, subject, title="Please", reason="the customer waits")
    assert asked.about.summary.startswith("create_order of erp (http 1.2) at erp.example:443, which writes: ")
    assert (asked.request.title, asked.about.heading, asked.status) == ("Please", "create_order of erp", "pending")
    assert one.decide("eve", asked).status == "approved"
    stored = consume(one, asked.id, subject)
    assert (stored.action, stored.version, stored.subject) == (ACTION, "p1", replace(subject, skills=skills[::-1]))
    used = approvals.get_approval(one.scope, asked.id)
    assert (used.status, used.used_by, used.used_at is not None) == ("used", "call:1", True)
    assert approvals.answer_view(used)["status"] == "approved"
    actions = [action for _, action, _ in one.audited(asked.id)]
    assert actions == ["approval.request", "approval.approve", "approval.use"]
    reason, error = refused(one, asked.id, subject)
    assert (reason, error.code) == ("used", "policy_denied")


def test_of_twenty_consumptions_at_once_one_wins(one: Town) -> None:
    subject = subject_of(one)
    asked = ask(one, subject)
    one.decide("eve", asked)
    presented = canonical_action(one.scope, subject, ACTION, "p1")
    together, results = threading.Barrier(20), []

    def dispatch(number: int) -> None:
        together.wait(60)
        try:
            db.write(lambda: APPROVALS.consume_action(one.scope, asked.id, presented, f"call:{number}"))
            results.append("dispatched")
        except PolicyDenied as error:
            results.append(error.extra["reason"])

    threads = [threading.Thread(target=dispatch, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["dispatched"] + ["used"] * 19
    told = [action for _, action, _ in one.audited(asked.id)]
    assert (told.count("approval.use"), told.count("approval.refuse")) == (1, 19)


def test_a_dispatch_that_is_undone_leaves_the_approval_and_one_that_is_refused_its_entry(one: Town) -> None:
    subject = subject_of(one)
    asked = ask(one, subject)
    presented = canonical_action(one.scope, subject, ACTION, "p1")

    def dispatch() -> None:
        APPROVALS.consume_action(one.scope, asked.id, presented, "call:1")
        raise RuntimeError("the record of the call could not be written")

    with pytest.raises(ApplianceError):
        db.write(dispatch)
    assert [action for _, action, _ in one.audited(asked.id)][1:] == ["approval.refuse"]
    one.decide("eve", asked)
    with pytest.raises(RuntimeError):
        db.write(dispatch)
    assert [action for _, action, _ in one.audited(asked.id)][2:] == ["approval.approve"]
    assert consume(one, asked.id, subject).action == ACTION


def test_an_approval_that_does_not_hold_says_why(one: Town) -> None:
    subject = subject_of(one)
    asked = ask(one, subject)
    reason, error = refused(one, asked.id, subject)
    assert (reason, error.code, error.extra["approval_id"]) == ("pending", "approval_required", asked.id)
    one.decide("eve", asked, "reject")
    assert refused(one, asked.id, subject)[0] == "rejected"
    withdrawn, late = ask(one, subject), ask(one, subject)
    for each in (withdrawn, late):
        one.decide("eve", each)
    db.write(lambda: approvals.withdraw_approval(one.scope, withdrawn.id, "not needed"))
    assert refused(one, withdrawn.id, subject)[0] == "withdrawn"
    db.write(lambda: db.execute("UPDATE approval SET expires_at = ? WHERE id = ?", (clock.now_ms() - 1, late.id)))
    assert refused(one, late.id, subject)[0] == "expired"
    assert refused(one, one.ask().id, subject)[0] == "not_an_action"


def test_an_approval_holds_in_its_tenant_only(one: Town) -> None:
    two = found("two")
    subject = subject_of(one)
    asked = ask(one, subject)
    one.decide("eve", asked)
    reason, unknown = refused(two, "apr_unknown", subject)
    assert (reason, unknown.code) == ("unknown", "not_found")
    reason, theirs = refused(two, asked.id, subject)
    assert (reason, theirs.message.replace(asked.id, "apr_unknown")) == ("unknown", unknown.message)
    assert consume(one, asked.id, subject).approval_id == asked.id


@pytest.mark.parametrize(
    ("more", "changed"),
    [
        ({"action": replace(ACTION, input={"sku": "B"})}, ["input"]),
        ({"action": replace(ACTION, connector="http 1.3")}, ["connector"]),
        ({"action": replace(ACTION, host="evil.example:443", credential="cred_2")}, ["credential", "host"]),
        ({"version": "p2"}, ["policy"]),
    ],
)
def test_another_action_is_refused_with_what_changed(one: Town, more: dict[str, Any], changed: list[str]) -> None:
    subject = subject_of(one)
    asked = ask(one, subject)
    one.decide("eve", asked)
    reason, error = refused(one, asked.id, subject, **more)
    assert (reason, error.extra["changed"]) == ("digest_differs", changed)
    assert consume(one, asked.id, subject).action == ACTION


def test_another_subject_or_skill_is_refused(one: Town) -> None:
    subject = subject_of(one, skills=(SkillUsed("orders", "d1"),))
    asked = ask(one, subject)
    one.decide("eve", asked)
    changed = replace(subject, skills=(SkillUsed("orders", "d2"),))
    assert refused(one, asked.id, changed)[1].extra["changed"] == ["skills"]
    assert refused(one, asked.id, subject_of(one))[1].extra["changed"] == ["actor", "skills"]


def test_so_many_different_people_agree(one: Town) -> None:
    subject = subject_of(one)
    asked = ask(one, subject, judged(needed=2, approvers=("role:operator",)))
    heard: list[str] = []
    stop = approvals.on_decided(lambda scope, decided: heard.append(decided.status))
    first = one.decide("eve", asked, comment="fine")
    assert (first.status, [(vote.login, vote.verdict, vote.comment) for vote in first.votes]) == (
        "pending", [("eve@one.test", "approve", "fine")],
    )  # fmt: skip
    with pytest.raises(Conflict, match="you have already decided"):
        one.decide("eve", asked)
    assert (refused(one, asked.id, subject)[0], heard) == ("pending", [])
    assert one.decide("ann", asked).status == "approved"
    stop()
    assert heard == ["approved"]
    assert consume(one, asked.id, subject).action == ACTION
    approved = [fields for _, action, fields in one.audited(asked.id) if action == "approval.approve"]
    assert [(each["approved"], each["needed"]) for each in approved] == [(1, 2), (2, 2)]


def test_one_rejection_rejects(one: Town) -> None:
    subject = subject_of(one)
    asked = ask(one, subject, judged(needed=2))
    one.decide("eve", asked)
    assert one.decide("ann", asked, "reject").status == "rejected"
    assert refused(one, asked.id, subject)[0] == "rejected"


def test_a_status_without_decisions_approves_nothing(one: Town) -> None:
    """Whatever wrote the row: an approval is what people decided."""
    subject = subject_of(one)
    asked = ask(one, subject)
    db.write(lambda: db.execute("UPDATE approval SET status = 'approved' WHERE id = ?", (asked.id,)))
    assert refused(one, asked.id, subject)[0] == "pending"


def test_nobody_approves_what_they_or_their_key_asked_for(one: Town) -> None:
    ann = one.people["ann"].scope
    assert ann is not None
    key = one.key(ann)
    execution = one.execution(key)
    for actor in (ann.actor, key, f"execution:{execution}"):
        asked = ask(one, subject_of(one, actor))
        assert asked.requested_by == (ann.actor if actor == ann.actor else key)
        with pytest.raises(PolicyDenied, match="somebody else must decide"):
            one.decide("ann", asked)
        assert one.decide("eve", asked).status == "approved"


def test_nobody_approves_what_a_run_asks_that_they_started(one: Town) -> None:
    ann = one.people["ann"].scope
    assert ann is not None
    subject = subject_of(one, "run:run_1", agent="clerk", run_id="run_1")
    with pytest.raises(PolicyDenied, match="not known who started this run"):
        ask(one, subject)
    stop = approvals.register_starter("run", lambda scope, name: ann.actor if name == "run_1" else "system")
    asked = ask(one, subject)
    with pytest.raises(PolicyDenied, match="somebody else must decide"):
        one.decide("ann", asked)
    assert one.decide("eve", asked).about.run_id == "run_1"
    stop()


def test_only_a_signed_in_person_decides(one: Town) -> None:
    subject = subject_of(one)
    asked, eve = ask(one, subject), one.people["eve"]
    for actor in (subject.actor, "system", "run:run_1", one.key(one.scope)):
        with pytest.raises(PolicyDenied, match="signed-in"):
            approvals.decide_approval(one.scope.with_actor(actor), eve, asked.id, approvals.Decision("approve"))
    assert approvals.get_approval(one.scope, asked.id).status == "pending"


def test_one_key_is_one_request(one: Town) -> None:
    subject = subject_of(one)
    asked = ask(one, subject, idempotency_key="k", title="Please")
    assert ask(one, subject, idempotency_key="k", title="Pretty please").id == asked.id
    with pytest.raises(IdempotencyMismatch):
        APPROVALS.request_action(one.scope, subject, replace(ACTION, input={}), judged(), RequestOptions(idempotency_key="k"))
    assert ask(one, subject_of(one), idempotency_key="k").id != asked.id
    assert ask(one, subject).id != ask(one, subject).id


def test_a_policy_bounds_the_time_and_may_forbid_asking(one: Town) -> None:
    subject, now = subject_of(one), clock.now_ms()
    for wished, seconds in ((None, 600), (60, 60), (86_400, 600)):
        ends = ask(one, subject, judged(ttl_seconds=600), ttl_seconds=wished).request.expires_at
        assert ends is not None
        assert now + seconds * 1000 <= ends <= clock.now_ms() + seconds * 1000
    with pytest.raises(ValidationFailed) as caught:
        ask(one, subject, ttl_seconds=0)
    assert [detail.pointer for detail in caught.value.details] == ["/ttl_seconds"]
    with pytest.raises(PolicyDenied, match="never"):
        ask(one, subject, Decision("deny", ("never",), "p1"))


def test_what_is_kept_is_sealed_and_bound_to_its_digest(one: Town) -> None:
    subject = subject_of(one)
    asked, other = ask(one, subject), ask(one, subject, title="x")
    ((sealed,),) = db.rows("SELECT sealed FROM approval WHERE id = ?", (asked.id,))
    assert b"create_order" not in bytes(sealed)
    with pytest.raises(NotFound):
        APPROVALS.read_action(one.scope, one.ask().id)
    one.decide("eve", other)
    db.write(lambda: db.execute("UPDATE approval SET sealed = ? WHERE id = ?", (bytes(sealed), other.id)))
    with pytest.raises(ApplianceError, match="cannot be decrypted"):
        consume(one, other.id, subject)
    assert approvals.get_approval(one.scope, other.id).status == "approved"


def test_a_wrong_digest_is_no_action(one: Town) -> None:
    subject = subject_of(one)
    asked = ask(one, subject)
    db.write(lambda: db.execute("UPDATE approval SET action_digest = 'f' WHERE id = ?", (asked.id,)))
    one.decide("eve", asked)
    forged = Canonical(canonical_action(one.scope, subject, ACTION, "p1").text, "f")
    with pytest.raises(ApplianceError, match="does not match its digest"):
        db.write(lambda: APPROVALS.consume_action(one.scope, asked.id, forged, "call:1"))


def test_the_manual_tells_every_reason_of_a_refusal() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "approvals.md").read_text()
    assert set(re.findall(r"^\| `([a-z_]+)` \|", manual, re.MULTILINE)) == {"unknown", *NEXT_STEP}


def test_requests_of_no_execution_stay_when_executions_go(one: Town) -> None:
    asked = ask(one, subject_of(one))
    db.write(lambda: db.execute("DELETE FROM execution"))
    assert approvals.get_approval(one.scope, asked.id).status == "pending"
    assert isinstance(one.scope, TenantScope)
