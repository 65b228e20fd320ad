"""The one gate: whoever acts, by whatever road, asks here first whether it may be done and what is owed for it.

What the audit trail keeps: every denial, every demand for an approval, and what agents and MCP clients were allowed to
change.  What people, keys and processes were allowed to do to a foreign system is in the record of its call, with the
decision; what was allowed that only reads leaves no entry.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from appliance.connectors.contract import ConnectorError
from appliance.core.database import db
from appliance.core.errors import ApplianceError, ApprovalRequired, NotFound, PolicyDenied
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance import budgets, switches
from appliance.governance.actions import Canonical, StoredAction, canonical_action, label_of
from appliance.governance.approvals.action_approvals import Wish
from appliance.governance.approvals.approvals import Approval
from appliance.governance.approvals.links import review_url
from appliance.governance.executor import concealing
from appliance.governance.policies.decision import Decision, Looks, ToolAction
from appliance.governance.subjects import Subject
from appliance.monitor import audit

_log = logging.getLogger(__name__)

SWITCHES = "kill-switches"
"""The version of a decision that a kill switch made, before any policy was asked."""
FAILED = "none"
ASK_SCOPE = "approvals.request"
_NEXT = {
    "unasked": "ask for an approval of exactly this action (POST /api/v1/approvals, or the tool request_human_input), and send the "
    "same again with its approval_id once it is approved",
    "may not ask": f"this takes the scope {ASK_SCOPE}: with a key that has it as well, the call itself asks people",
    "pending": "people are asked ({id}); send the same again with this approval_id once it is approved",
    "approved": "it is approved ({id}); send the same again with this approval_id",
    "rejected": "somebody has rejected it ({id}), so nobody is asked again by the call; ask for another action, or with a better "
    "reason by POST /api/v1/approvals",
}  # fmt: skip
_FAULT = "a policy could not be evaluated, so the action is denied; the log has the details"


class Policies(Protocol):
    """What the rules of the tenant say."""

    def decide(self, scope: TenantScope, subject: Subject, action: ToolAction) -> Decision:
        """What holds for this action of this subject."""


    def looks_at(self, scope: TenantScope) -> Looks:
        """What the rules of the tenant have to know of an action, beside its own name and input."""


class Approvals(Protocol):
    """Approved actions, each handed out once."""

    def consume_action(self, scope: TenantScope, approval_id: str, presented: Canonical, by: str) -> StoredAction:
        """Inside a write: use the approval up; a coded error says why it does not hold."""

    def repeat_action(self, scope: TenantScope, approval_id: str, presented: Canonical, by: str) -> StoredAction:
        """Inside a write: the action of an approval that this very call used up before; refused for any other action."""

    def request_action(
        self, scope: TenantScope, subject: Subject, action: ToolAction, decision: Decision, wish: Wish | None = None
    ) -> Approval:
        """Ask people for exactly this action."""

    def find_asked(self, scope: TenantScope, subject: Subject, digest: str) -> Approval | None:
        """What this subject has asked for the action of this digest, if asking once more would be no news."""

    def read_action(self, scope: TenantScope, approval_id: str) -> StoredAction:
        """The action that a request is about; NotFound, also when it is about none."""


@dataclass(frozen=True)
class Held:
    """An approval that the very call to be made has used up already, and the digest of what was approved."""

    approval_id: str
    digest: str


class Governor:
    """Judges by kill switches, then by policies; what cannot be judged is denied.

    `kin_of` names the integrations that use one credential: whoever switches one of them off means the others too.
    """

    def __init__(self, policies: Policies, approvals: Approvals, kin_of: switches.KinOf = switches.no_kin) -> None:
        self._policies = policies
        self._approvals = approvals
        self._kin_of = kin_of

    def consider(self, scope: TenantScope, subject: Subject, action: ToolAction) -> Decision:
        """What would be decided; it leaves no trace."""
        off = switches.find_switch(scope, subject, action, self._kin_of)
        if off is not None:
            return _switched_off(off)
        try:
            return self._policies.decide(scope, subject, action)
        except Exception:  # noqa: BLE001 - whatever went wrong, nothing is done unjudged
            _log.exception("the policies could not judge %s", action.tool)
            return Decision("deny", (_FAULT,), FAILED)

    def looks_at(self, scope: TenantScope) -> Looks:
        """What has to be found out before an action is judged; everything where the policies cannot be read."""
        try:
            return self._policies.looks_at(scope)
        except Exception:  # noqa: BLE001 - judging fails as well, and denies
            _log.exception("the policies could not be read")
            return Looks(True, True)

    def refuse_switched_off(self, scope: TenantScope, subject: Subject, action: ToolAction) -> None:
        """PolicyDenied, and in the audit trail, while anything of it is switched off."""
        if switches.find_switch(scope, subject, action, self._kin_of) is not None:
            raise denied(action, self.judge(scope, subject, action))

    def judge(self, scope: TenantScope, subject: Subject, action: ToolAction) -> Decision:
        """What holds, and what the audit trail says of it: for who goes on by themselves."""
        decision = self.consider(scope, subject, action)
        if decision.verdict != "allow" or _is_noted(subject, action):
            asked = self._permit(scope, subject, action, decision)
            db.write(asked.note)
        return decision

    def permit(
        self, scope: TenantScope, subject: Subject, action: ToolAction, approval_id: str | None = None, held: Held | None = None,
        *, asks: bool = True,
    ) -> "Permit":  # fmt: skip
        """Leave to do this action once.  PolicyDenied; ApprovalRequired when one is needed and none is named or held.

        Whoever calls over REST or MCP has then asked for it (`asks`), once for each action, if they may ask; RateLimited.
        """
        decision = self.consider(scope, subject, action)
        permit = replace(self._permit(scope, subject, action, decision), approval_id=approval_id, held=held)
        if decision.verdict == "allow" or (decision.verdict == "require_approval" and permit.brings_approval):
            return permit
        db.write(permit.note)
        if decision.verdict == "deny":
            raise denied(action, decision)
        raise approval_required(permit, self._ask(permit) if asks else None)

    def _permit(self, scope: TenantScope, subject: Subject, action: ToolAction, decision: Decision) -> "Permit":
        return Permit(self._approvals, scope, subject, action, decision, kin_of=self._kin_of)

    def _ask(self, permit: "Permit") -> Approval | None:
        """The request for exactly this action; None when whoever calls may ask nobody, or asks and waits by themselves."""
        subject = permit.subject
        if subject.via not in ("rest", "mcp") or subject.kind not in ("key", "user") or ASK_SCOPE not in permit.scope.scopes:
            return None
        return db.write(lambda: self._approvals.find_asked(permit.scope, subject, permit.canonical.digest) or permit.ask(Wish()))

    def recall(self, scope: TenantScope, subject: Subject, action: ToolAction) -> "Permit":
        """Leave to see what came of an action that had begun before a crash.  PolicyDenied where it is denied now."""
        permit = self._permit(scope, subject, action, self.consider(scope, subject, action))
        if permit.decision.verdict == "deny":
            db.write(permit.note)
            raise denied(action, permit.decision)
        return permit

    def approved_input(self, scope: TenantScope, approval_id: str) -> Mapping[str, Any]:
        """The input of the action that a request is about, empty when it is about none."""
        try:
            return self._approvals.read_action(scope, approval_id).action.input
        except NotFound:
            return {}


@dataclass(frozen=True)
class Permit:
    """Leave for one action; `take` belongs inside the write that begins it, `conceal` before anybody sees its result."""

    approvals: Approvals
    scope: TenantScope
    subject: Subject
    action: ToolAction
    decision: Decision
    approval_id: str | None = None
    held: Held | None = None
    kin_of: switches.KinOf = switches.no_kin

    @cached_property
    def canonical(self) -> Canonical:
        """The action as approvals know it."""
        return canonical_action(self.scope, self.subject, self.action, self.decision.version)

    @property
    def brings_approval(self) -> bool:
        """Whether an approval is named, or held for exactly this action."""
        return self.used_approval is not None

    @property
    def used_approval(self) -> str | None:
        """The approval that is used for it, if one is."""
        if self.approval_id is not None:
            return self.approval_id
        return self.held.approval_id if self.held is not None and self.held.digest == self.canonical.digest else None

    @property
    def holds(self) -> Held | None:
        """The approval that is used for it, as whoever goes on with it after a crash holds it."""
        used = self.used_approval
        return None if used is None else Held(used, self.canonical.digest)

    @property
    def is_owing(self) -> bool:
        """Whether something has to be written before the action begins."""
        return self.used_approval is not None or budgets.has_caps(self.decision.obligations)

    def take(self, by: str, *, uses: bool = True) -> ToolAction:
        """Inside the write that begins the action: use its approval up and count it; answers the action to be done.

        `by` names what is begun (`call:…`).  Without `uses` the approval was used by this very call before.  The coded
        errors of approvals, BudgetExceeded, PolicyDenied (no preview of the action, or switched off meanwhile).
        """
        scope, action = self.scope, self.action
        if (late := self._switched_off_since()) is not None:
            db.in_any_case(late.note)
            raise denied(action, late.decision)
        if self.used_approval is not None:
            stored = (
                self.approvals.consume_action(scope, self.used_approval, self.canonical, by)
                if uses
                else self.approvals.repeat_action(scope, self.used_approval, self.canonical, by)
            )
            action = stored.action
        try:
            if self.decision.obligations.dry_run_first:
                budgets.refuse_unseen(scope, self.subject, self.canonical.digest)
            budgets.count(scope, self.subject, self.decision)
        except ApplianceError as error:
            message = error.message
            db.in_any_case(lambda: self.note_refusal(message))
            raise
        if _is_noted(self.subject, action):
            self.note()
        return action

    def refuse_switched_off(self) -> None:
        """The last look before anything is sent: PolicyDenied, and in the audit trail, when it was switched off meanwhile."""
        if (late := self._switched_off_since()) is not None:
            db.write(late.note)
            raise denied(self.action, late.decision)

    def _switched_off_since(self) -> "Permit | None":
        off = switches.find_switch(self.scope, self.subject, self.action, self.kin_of)
        return None if off is None else replace(self, decision=_switched_off(off))

    def ask(self, wish: Wish) -> Approval:
        """Ask people for this action; inside a write it is part of it.  PolicyDenied when nobody may be asked."""
        return self.approvals.request_action(self.scope, self.subject, self.action, self.decision, wish)

    def conceal(self, result: Any) -> Any:
        """The result without what the rules hide."""
        return concealing.conceal(result, self.decision.obligations.redact)

    @property
    def hides(self) -> bool:
        """Whether rules hide a part of what the foreign system says."""
        return bool(self.decision.obligations.redact)

    def conceal_failure(self, error: ConnectorError) -> None:
        """Where rules hide something, a failure keeps its class and status only: pointers find nothing in a sentence."""
        if self.hides:
            concealing.conceal_failure(error, label_of(self.action))

    def conceal_traffic(self, told: Any) -> Any:
        """The traffic without hosts that only the foreign system named, where rules hide a part of what it says."""
        return concealing.conceal_hosts(told, self.action.host) if self.hides else told

    def note(self) -> None:
        """Inside a write: the decision in the audit trail."""
        self._audit(self.decision.verdict, self._told())

    def note_refusal(self, *reasons: str) -> None:
        """Inside a write: a denial in the audit trail, for other reasons than the decision's own where some are given."""
        told = self._told()
        self._audit("deny", {**told, "verdict": "deny", "reasons": list(reasons) or told["reasons"]})

    def _told(self) -> dict[str, Any]:
        told = {**told_of(self.decision), **_told_subject(self.subject), "tool": self.action.tool, "effect": self.action.effect}
        named = {"approval_id": self.approval_id} if self.approval_id is not None else {}
        return told | {"action_digest": self._digest()} | named

    def _audit(self, verdict: str, told: Mapping[str, Any]) -> None:
        audit.record(self.scope, f"policy.{verdict}", label_of(self.action), told)

    def _digest(self) -> str | None:
        try:
            return self.canonical.digest
        except ApplianceError:
            return None  # what cannot be written as JSON was not sent either

    def record(self) -> dict[str, Any]:
        """The decision as the record of a call keeps it."""
        kept = {**told_of(self.decision), **_told_subject(self.subject)}
        if self.decision.would_be is not None:
            kept |= {"would_be": self.decision.would_be, "would_be_rules": list(self.decision.would_be_rules)}
        return kept | ({"action_digest": self.canonical.digest} if self.used_approval else {})


class ActionNeedsApproval(ApprovalRequired):
    """An action that somebody must approve first; `permit` is what it lacks the approval for."""

    def __init__(self, message: str, permit: Permit, extra: Mapping[str, Any]) -> None:
        super().__init__(message, extra=extra)
        self.permit = permit


def told_of(decision: Decision) -> dict[str, Any]:
    """A decision as JSON: `{verdict, rules, reasons, policy_version}`."""
    return {
        "verdict": decision.verdict, "rules": list(decision.rules), "reasons": list(decision.reasons),
        "policy_version": decision.version,
    }  # fmt: skip


def denied(action: ToolAction, decision: Decision) -> PolicyDenied:
    """The refusal, with its rules and reasons."""
    why = "; ".join(decision.reasons) or "no rule allows it"
    return PolicyDenied(
        Sentence("%(action)s is denied: %(why)s", action=label_of(action), why=why), extra={"reason": "denied", **told_of(decision)}
    )


def approval_required(permit: Permit, asked: Approval | None = None) -> "ActionNeedsApproval":
    """The refusal that an approval lifts: `extra` has what to ask for, or the request that was made."""
    why = "; ".join(permit.decision.reasons)
    message = Sentence(
        "%(action)s needs an approval%(value)s%(why)s", action=label_of(permit.action), value=": " if why else "", why=why
    )
    extra = {"reason": "approval_required", "action_digest": permit.canonical.digest, **told_of(permit.decision)}
    if asked is not None:
        extra |= {"approval_id": asked.id, "approval_status": asked.status, "review_url": review_url(permit.scope, asked.id)}
        extra["next"] = _NEXT[asked.status].format(id=asked.id)
    elif ASK_SCOPE in permit.scope.scopes:
        extra["next"] = _NEXT["unasked"]
    else:
        extra |= {"scope": ASK_SCOPE, "next": _NEXT["may not ask"]}
    return ActionNeedsApproval(Sentence("%(message)s; %(next)s", message=message, next=extra['next']), permit, extra)


def _switched_off(off: switches.KillSwitch) -> Decision:
    return Decision("deny", (switches.told(off),), SWITCHES, (f"{SWITCHES}/{off.kind}",))


def _is_noted(subject: Subject, action: ToolAction) -> bool:
    return action.effect != "read" and (subject.via == "agent" or subject.has_agent_key)


def _told_subject(subject: Subject) -> Mapping[str, Any]:
    told: dict[str, Any] = {"actor": subject.actor, "via": subject.via}
    more = {
        "agent": subject.agent, "run": subject.run_id, "tainted_by": list(subject.tainted_by),
        "skills": [[each.name, each.digest] for each in subject.skills], "credential": subject.credential,
    }  # fmt: skip
    return told | {name: value for name, value in more.items() if value}
