"""Approvals of actions: asked for with the action itself, kept sealed, and used up by the write that dispatches it."""

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ApplianceError, ApprovalRequired, ConfigInvalid, NotFound, PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance.actions import Canonical, StoredAction, canonical_action, find_changes, label_of, read_action, summary_of
from appliance.governance.approvals import approvals
from appliance.governance.approvals.approvals import About, Approval
from appliance.governance.approvals.questions import LONGEST_MS, NOWHERE, Origin, parse_request
from appliance.governance.models import ApprovalRow
from appliance.governance.policies.decision import Decision, ToolAction
from appliance.governance.subjects import SkillUsed, Subject
from appliance.monitor import audit

NEXT_STEP = {
    "pending": "it is not decided yet; wait for the decision, at its review_url",
    "rejected": "it was rejected; ask for another action, or ask again with a better reason",
    "expired": "its time is over; ask for a new approval",
    "used": "it was used already; an approval is good for one dispatch, ask for a new one",
    "withdrawn": "it was withdrawn; ask for a new approval",
    "not_an_action": "it is no approval of an action; ask for one with the action",
    "digest_differs": "it is for another action; ask for an approval of this one, or send exactly what was approved",
}  # fmt: skip
_REASON_OF = {"pending": "pending", "rejected": "rejected", "expired": "expired", "used": "used", "cancelled": "withdrawn"}


@dataclass(frozen=True)
class Wish:
    """What the one who asks says, always shown as their words: a title, a reason; and how they ask.

    `ttl_seconds` shortens the time that the policy gives, never lengthens it; `origin` is the place in an execution that asks.
    One `idempotency_key` of one subject is one request.
    """

    title: str = ""
    reason: str = ""
    ttl_seconds: int | None = None
    idempotency_key: str | None = None
    origin: Origin = NOWHERE


class ActionApprovals:
    """Asks people for actions, and hands each approved action out once."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def request_action(
        self, scope: TenantScope, subject: Subject, action: ToolAction, decision: Decision, wish: Wish | None = None
    ) -> Approval:
        """Ask for an approval of exactly this action, by the approvers and within the time of the decision.

        ValidationFailed (title, reason), IdempotencyMismatch (the key asked for something else), PolicyDenied when the
        decision denies or nobody knows who started the run.  Inside a write it is part of it.
        """
        if decision.verdict == "deny":
            told = {"reason": "denied", "rules": list(decision.rules), "reasons": list(decision.reasons)}
            raise PolicyDenied(
                Sentence("nobody may approve this: %(reasons)s", reasons="; ".join(decision.reasons) or "a policy denies it"),
                extra=told,
            )
        wish, canonical = wish or Wish(), canonical_action(scope, subject, action, decision.version)
        owed = decision.obligations
        seconds = min(owed.ttl_seconds, LONGEST_MS // 1000)
        if wish.ttl_seconds is not None and (seconds := min(seconds, wish.ttl_seconds)) < 1:
            raise ValidationFailed("ttl_seconds is 1 or more", pointer="/ttl_seconds")
        heading = label_of(action)
        given = {"kind": "approval", "title": wish.title or heading[:200], "reason": wish.reason, "expires": f"{seconds}s"}
        request = parse_request(given | {"approvers": list(owed.approvers)}, wish.origin, clock.now_ms())
        about = About(
            subject.actor, subject.agent, subject.run_id, max(1, owed.needed), heading, summary_of(action), canonical.digest,
            {"version": decision.version, "rules": list(decision.rules), "reasons": list(decision.reasons)}, wish.idempotency_key,
        )  # fmt: skip
        seal = partial(self._seal, scope, subject, canonical)
        return db.write(lambda: approvals.keep_request(scope, request, about, seal))

    def find_asked(self, scope: TenantScope, subject: Subject, digest: str) -> Approval | None:
        """The newest request of this subject for the action of this digest, unless it is over in a way that another may follow:
        one that waits, one that is approved and not used, or one that was rejected."""
        same = (ApprovalRow.asked_by == subject.actor) & (ApprovalRow.run_id == subject.run_id)
        rows = scope.select(ApprovalRow).where(same & (ApprovalRow.action_digest == digest))
        for found in approvals.read_rows(scope, list(rows.order_by(ApprovalRow.id.desc()).limit(1))):
            if found.status == "rejected" or (found.status in ("pending", "approved") and not is_over(found)):
                return found
        return None

    def consume_action(self, scope: TenantScope, approval_id: str, presented: Canonical, by: str) -> StoredAction:
        """Inside the write that dispatches: use the approval up, and answer the action as it was approved; do that one.

        `presented` is what somebody wants done now, `by` names the dispatch (`call:…`).  Of many at once exactly one gets
        it.  Refusals carry a `reason` in `extra` and are in the audit trail, also when the write is undone: NotFound
        (`unknown`, also for another tenant's), ApprovalRequired (`pending`), PolicyDenied (`rejected`, `expired`, `used`,
        `withdrawn`, `not_an_action`, `digest_differs` with what `changed`).
        """
        enough = (
            "(SELECT COUNT(*) FROM approval_vote AS v WHERE v.tenant_id = approval.tenant_id AND v.approval_id = approval.id "
            "AND v.verdict = 'approve') >= needed"
        )
        now = clock.now_ms()
        won = db.execute(
            "UPDATE approval SET status = 'used', used_at = ?, used_by = ? WHERE tenant_id = ? AND id = ? "  # noqa: S608
            f"AND status = 'approved' AND action_digest = ? AND expires_at > ? AND {enough}",
            (now, by, scope.tenant_id, approval_id, presented.digest, now),
        )
        if won != 1:
            raise self._refused(scope, approval_id, presented, by)
        stored = self.read_action(scope, approval_id)
        audit.record(scope, "approval.use", approval_id, {"action_digest": presented.digest, "by": by})
        return stored

    def repeat_action(self, scope: TenantScope, approval_id: str, presented: Canonical, by: str) -> StoredAction:
        """Inside the write that dispatches the same again: the action of an approval that this dispatch used up before.

        An approval holds for one action, one subject, one set of policies and settings, the second time too: PolicyDenied
        (`digest_differs`), in the audit trail as `consume_action` has it.
        """
        stored = self.read_action(scope, approval_id)
        if stored.canonical.digest != presented.digest:
            raise self._refused(scope, approval_id, presented, by)
        return stored

    def _refused(self, scope: TenantScope, approval_id: str, presented: Canonical, by: str) -> ApplianceError:
        """Why it does not hold; noted whatever becomes of the write."""
        error = self._refusal(scope, approval_id, presented)
        told = {"action_digest": presented.digest, "by": by} | error.extra
        db.in_any_case(lambda: audit.record(scope, "approval.refuse", approval_id, told))
        return error

    def _refusal(self, scope: TenantScope, approval_id: str, presented: Canonical) -> ApplianceError:
        try:
            asked = approvals.get_approval(scope, approval_id)
        except NotFound as error:
            return NotFound(error.message, extra={"reason": "unknown"})
        extra: dict[str, Any] = {"approval_id": approval_id}
        if asked.about.digest is None:
            reason = "not_an_action"
        elif asked.about.digest != presented.digest:
            stored = self.read_action(scope, approval_id)
            reason, extra["changed"] = "digest_differs", find_changes(stored.canonical.text, presented.text)
        elif asked.status in ("pending", "approved") and is_over(asked):
            reason = "expired"
        else:
            reason = _REASON_OF.get(asked.status, "pending")
        kind = ApprovalRequired if reason == "pending" else PolicyDenied
        return kind(f"the approval {approval_id} does not hold: {NEXT_STEP[reason]}", extra={"reason": reason} | extra)

    def read_action(self, scope: TenantScope, approval_id: str) -> StoredAction:
        """The action that a request is about, as it is kept; NotFound, also when it is about none."""
        row = scope.get(ApprovalRow, id=approval_id)
        if row.sealed is None:
            raise NotFound(Sentence("the request %(approval_id)s is not about an action", approval_id=approval_id[:80]))
        kept = json.loads(self._sealer.open(bytes(row.sealed), _context(scope, approval_id)))
        canonical = Canonical(kept["text"], row.action_digest)
        subject, action, version = read_action(canonical.text)
        if canonical_action(scope, subject, action, version) != canonical:
            raise ConfigInvalid(Sentence(
                "the action of %(approval_id)s is not the one with its digest; restore the database from a backup",
                approval_id=approval_id,
            ))
        trusted = set(kept["trusted"])
        skills = tuple(SkillUsed(each.name, each.digest, each.digest in trusted) for each in subject.skills)
        whole = replace(subject, via=kept["via"], tainted_by=tuple(kept["tainted_by"]), skills=skills)
        return StoredAction(approval_id, canonical, whole, action, version)

    def _seal(self, scope: TenantScope, subject: Subject, canonical: Canonical, approval_id: str) -> bytes:
        kept = {
            "text": canonical.text, "via": subject.via, "tainted_by": list(subject.tainted_by),
            "trusted": [each.digest for each in subject.skills if each.is_trusted],
        }  # fmt: skip
        return self._sealer.seal(db.dump_json(kept).encode(), _context(scope, approval_id))


def is_over(asked: Approval) -> bool:
    """Whether the time of a request has passed, also before anybody has noted so."""
    ends = asked.request.expires_at
    return ends is not None and ends <= clock.now_ms()


def _context(scope: TenantScope, approval_id: str) -> str:
    return f"{scope.tenant_id}/approval/{approval_id}"
