"""Approvals of actions: requested with the sealed action, and used by the write that dispatches it."""

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
from appliance.governance.actions import (
    Canonical,
    StoredAction,
    action_label,
    canonical_action,
    find_changes,
    read_action,
    summarize_action,
)
from appliance.governance.approvals import approvals
from appliance.governance.approvals.approvals import Approval, RequestContext
from appliance.governance.approvals.human_requests import MAX_TTL_MS, NO_ORIGIN, Origin, parse_request
from appliance.governance.models import ApprovalRow
from appliance.governance.policies.decision import Decision, ToolAction
from appliance.governance.subjects import SkillUsed, Subject
from appliance.monitor import audit

NEXT_STEP = {
    "pending": "it is still pending; wait for the decision at its review_url",
    "rejected": "it was rejected; change the action, or request it again with a better reason",
    "expired": "it expired; request a new approval",
    "used": "it has already been used; an approval covers one call, so request a new one",
    "withdrawn": "it was withdrawn; request a new approval",
    "not_an_action": "it does not approve an action; request an approval of the action",
    "digest_differs": "it is for a different action; request an approval of this one, or send exactly what was approved",
}  # fmt: skip
_REASON_OF = {"pending": "pending", "rejected": "rejected", "expired": "expired", "used": "used", "cancelled": "withdrawn"}


@dataclass(frozen=True)
class RequestOptions:
    """Options of an approval request: the requester's title and reason, always shown as their words, and how it is made.

    `ttl_seconds` can only shorten the policy's time limit; `origin` locates the request in an execution.
    Requests of one subject with the same `idempotency_key` are one request.
    """

    title: str = ""
    reason: str = ""
    ttl_seconds: int | None = None
    idempotency_key: str | None = None
    origin: Origin = NO_ORIGIN


class ActionApprovals:
    """Requests approvals of actions, and hands out each approved action once."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def request_action(
        self, scope: TenantScope, subject: Subject, action: ToolAction, decision: Decision, options: RequestOptions | None = None
    ) -> Approval:
        """Request an approval of exactly this action, from the approvers and within the time limit that the decision names.

        ValidationFailed (title, reason), IdempotencyMismatch (the key belongs to a different request), PolicyDenied if the
        decision denies or the run's starter is unknown.  Joins the current write.
        """
        if decision.verdict == "deny":
            extra = {"reason": "denied", "rules": list(decision.rules), "reasons": list(decision.reasons)}
            raise PolicyDenied(
                Sentence("this cannot be approved: %(reasons)s", reasons="; ".join(decision.reasons) or "a policy denies it"),
                extra=extra,
            )
        options, canonical = options or RequestOptions(), canonical_action(scope, subject, action, decision.version)
        owed = decision.obligations
        seconds = min(owed.ttl_seconds, MAX_TTL_MS // 1000)
        if options.ttl_seconds is not None and (seconds := min(seconds, options.ttl_seconds)) < 1:
            raise ValidationFailed("ttl_seconds must be at least 1", pointer="/ttl_seconds")
        heading = action_label(action)
        fields = {"kind": "approval", "title": options.title or heading[:200], "reason": options.reason, "expires": f"{seconds}s"}
        request = parse_request(fields | {"approvers": list(owed.approvers)}, options.origin, clock.now_ms())
        about = RequestContext(
            asked_by=subject.actor, agent=subject.agent, run_id=subject.run_id, needed=max(1, owed.needed), heading=heading,
            summary=summarize_action(action), digest=canonical.digest,
            policy={"version": decision.version, "rules": list(decision.rules), "reasons": list(decision.reasons)},
            idempotency_key=options.idempotency_key,
        )  # fmt: skip
        seal = partial(self._seal, scope, subject, canonical)
        return db.write(lambda: approvals.create_request(scope, request, about, seal))

    def find_open_request(self, scope: TenantScope, subject: Subject, digest: str) -> Approval | None:
        """The subject's newest request for the action with this digest, if it is pending, approved and unused, or rejected;
        None if it ended in a way that permits a new request."""
        same = (ApprovalRow.asked_by == subject.actor) & (ApprovalRow.run_id == subject.run_id)
        rows = scope.select(ApprovalRow).where(same & (ApprovalRow.action_digest == digest))
        for approval in approvals.read_rows(scope, list(rows.order_by(ApprovalRow.id.desc()).limit(1))):
            if approval.status == "rejected" or (approval.status in ("pending", "approved") and not has_expired(approval)):
                return approval
        return None

    def consume_action(self, scope: TenantScope, approval_id: str, presented: Canonical, by: str) -> StoredAction:
        """Inside the write that dispatches: use the approval and return the action as it was approved; run that one.

        `presented` is the action requested now, `by` names the dispatch (`call:…`).  Of concurrent callers exactly one succeeds.
        Refusals carry a `reason` in `extra` and are recorded in the audit trail even if the write is rolled back: NotFound
        (`unknown`, also for another tenant's), ApprovalRequired (`pending`), PolicyDenied (`rejected`, `expired`, `used`,
        `withdrawn`, `not_an_action`, `digest_differs` with what `changed`).
        """
        has_enough_votes = (
            "(SELECT COUNT(*) FROM approval_vote AS v WHERE v.tenant_id = approval.tenant_id AND v.approval_id = approval.id "
            "AND v.verdict = 'approve') >= needed"
        )
        now = clock.now_ms()
        updated = db.execute(
            "UPDATE approval SET status = 'used', used_at = ?, used_by = ? WHERE tenant_id = ? AND id = ? "  # noqa: S608
            f"AND status = 'approved' AND action_digest = ? AND expires_at > ? AND {has_enough_votes}",
            (now, by, scope.tenant_id, approval_id, presented.digest, now),
        )
        if updated != 1:
            raise self._audited_refusal(scope, approval_id, presented, by)
        stored = self.read_action(scope, approval_id)
        audit.record(scope, "approval.use", approval_id, {"action_digest": presented.digest, "by": by})
        return stored

    def repeat_action(self, scope: TenantScope, approval_id: str, presented: Canonical, by: str) -> StoredAction:
        """Inside the write that dispatches the same call again: the action of an approval that this call used before.

        An approval covers one action, one subject, one set of policies and settings, also for a repetition: PolicyDenied
        (`digest_differs`), recorded in the audit trail as by `consume_action`.
        """
        stored = self.read_action(scope, approval_id)
        if stored.canonical.digest != presented.digest:
            raise self._audited_refusal(scope, approval_id, presented, by)
        return stored

    def _audited_refusal(self, scope: TenantScope, approval_id: str, presented: Canonical, by: str) -> ApplianceError:
        """The refusal, recorded even if the write is rolled back."""
        error = self._refusal(scope, approval_id, presented)
        details = {"action_digest": presented.digest, "by": by} | error.extra
        db.always_write(lambda: audit.record(scope, "approval.refuse", approval_id, details))
        return error

    def _refusal(self, scope: TenantScope, approval_id: str, presented: Canonical) -> ApplianceError:
        try:
            approval = approvals.get_approval(scope, approval_id)
        except NotFound as error:
            return NotFound(error.message, extra={"reason": "unknown"})
        extra: dict[str, Any] = {"approval_id": approval_id}
        if approval.about.digest is None:
            reason = "not_an_action"
        elif approval.about.digest != presented.digest:
            stored = self.read_action(scope, approval_id)
            reason, extra["changed"] = "digest_differs", find_changes(stored.canonical.text, presented.text)
        elif approval.status in ("pending", "approved") and has_expired(approval):
            reason = "expired"
        else:
            reason = _REASON_OF.get(approval.status, "pending")
        kind = ApprovalRequired if reason == "pending" else PolicyDenied
        return kind(f"the approval {approval_id} cannot be used: {NEXT_STEP[reason]}", extra={"reason": reason} | extra)

    def read_action(self, scope: TenantScope, approval_id: str) -> StoredAction:
        """The stored action that a request is about; NotFound if there is no such request or it has no action."""
        row = scope.get(ApprovalRow, id=approval_id)
        if row.sealed is None:
            raise NotFound(Sentence("the request %(approval_id)s is not about an action", approval_id=approval_id[:80]))
        sealed = json.loads(self._sealer.open(bytes(row.sealed), _context(scope, approval_id)))
        canonical = Canonical(sealed["text"], row.action_digest)
        subject, action, version = read_action(canonical.text)
        if canonical_action(scope, subject, action, version) != canonical:
            raise ConfigInvalid(Sentence(
                "the action of %(approval_id)s does not match its digest; restore the database from a backup",
                approval_id=approval_id,
            ))
        trusted = set(sealed["trusted"])
        skills = tuple(SkillUsed(each.name, each.digest, each.digest in trusted) for each in subject.skills)
        full_subject = replace(subject, via=sealed["via"], tainted_by=tuple(sealed["tainted_by"]), skills=skills)
        return StoredAction(approval_id, canonical, full_subject, action, version)

    def _seal(self, scope: TenantScope, subject: Subject, canonical: Canonical, approval_id: str) -> bytes:
        payload = {
            "text": canonical.text, "via": subject.via, "tainted_by": list(subject.tainted_by),
            "trusted": [each.digest for each in subject.skills if each.is_trusted],
        }  # fmt: skip
        return self._sealer.seal(db.dump_json(payload).encode(), _context(scope, approval_id))


def count_withdrawn(scope: TenantScope, origin: Origin) -> int:
    """How many requests of this call of an execution, in any attempt, have been withdrawn."""
    sql = (
        "SELECT COUNT(*) FROM approval WHERE tenant_id = ? AND execution_id = ? AND path = ? AND iteration = ? "
        "AND host_call = ? AND status = 'cancelled'"
    )
    ((count,),) = db.rows(sql, (scope.tenant_id, origin.execution_id, origin.path, origin.iteration, origin.call))
    return int(count)


def has_expired(approval: Approval) -> bool:
    """Whether a request has passed its expiry time, even if it is not marked as expired yet."""
    expires_at = approval.request.expires_at
    return expires_at is not None and expires_at <= clock.now_ms()


def _context(scope: TenantScope, approval_id: str) -> str:
    return f"{scope.tenant_id}/approval/{approval_id}"
