"""The governor: every action is checked here against kill switches and policies before it runs.

The audit trail records every denial, every demand for an approval, and the changes that agents and MCP clients were allowed
to make.  Changes that users, API keys and processes were allowed to make are recorded with the integration call, including
the decision.  Allowed reads are not recorded.
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
from appliance.governance import budgets, kill_switches
from appliance.governance.actions import Canonical, StoredAction, action_label, canonical_action
from appliance.governance.approvals.action_approvals import RequestOptions
from appliance.governance.approvals.approvals import Approval
from appliance.governance.approvals.links import review_url
from appliance.governance.executor import redaction
from appliance.governance.policies.decision import Decision, InspectedDetails, ToolAction
from appliance.governance.subjects import Subject
from appliance.monitor import audit

_log = logging.getLogger(__name__)

SWITCHES = "kill-switches"
"""The policy version of a decision made by a kill switch, before any policy was evaluated."""
FAILED = "none"
ASK_SCOPE = "approvals.request"
_NEXT_STEPS = {
    "unasked": "request an approval of exactly this action (POST /api/v1/approvals, or the tool request_human_input), and send the "
    "same request again with its approval_id once it is approved",
    "may not ask": f"requesting one needs the scope {ASK_SCOPE}: with a key that has it, the call itself requests the approval",
    "pending": "an approval has been requested ({id}); send the same request again with this approval_id once it is approved",
    "approved": "it is approved ({id}); send the same request again with this approval_id",
    "rejected": "the request was rejected ({id}), so the call does not request it again; change the action, or request an approval "
    "with a better reason by POST /api/v1/approvals",
}  # fmt: skip
_EVALUATION_FAILED = "a policy could not be evaluated, so the action is denied; the log has the details"


class Policies(Protocol):
    """Evaluates the policies of a tenant."""

    def decide(self, scope: TenantScope, subject: Subject, action: ToolAction) -> Decision:
        """The decision about this action of this subject."""


    def looks_at(self, scope: TenantScope) -> InspectedDetails:
        """Which details of an action the tenant's rules inspect, besides its name and input."""


class Approvals(Protocol):
    """Approvals of actions; each can be used once."""

    def consume_action(self, scope: TenantScope, approval_id: str, presented: Canonical, by: str) -> StoredAction:
        """Inside a write: use the approval; a coded error says why it cannot be used."""

    def repeat_action(self, scope: TenantScope, approval_id: str, presented: Canonical, by: str) -> StoredAction:
        """Inside a write: the action of an approval that this same call used before; refused for any other action."""

    def request_action(
        self, scope: TenantScope, subject: Subject, action: ToolAction, decision: Decision, options: RequestOptions | None = None
    ) -> Approval:
        """Request an approval of exactly this action."""

    def find_open_request(self, scope: TenantScope, subject: Subject, digest: str) -> Approval | None:
        """The subject's earlier request for the action with this digest, if another request would add nothing."""

    def read_action(self, scope: TenantScope, approval_id: str) -> StoredAction:
        """The action that a request is about; NotFound if there is no such request or it has no action."""


@dataclass(frozen=True)
class UsedApproval:
    """An approval that this same call has already used, and the digest of the approved action."""

    approval_id: str
    digest: str


class Governor:
    """Decides by kill switches, then by policies; an action that cannot be evaluated is denied.

    `kin_of` names the integrations that share one credential: switching one of them off stops the others too.
    """

    def __init__(self, policies: Policies, approvals: Approvals, kin_of: kill_switches.FindKin = kill_switches.find_no_kin) -> None:
        self._policies = policies
        self._approvals = approvals
        self._kin_of = kin_of

    def evaluate(self, scope: TenantScope, subject: Subject, action: ToolAction) -> Decision:
        """The decision, without recording anything."""
        off = kill_switches.find_switch(scope, subject, action, self._kin_of)
        if off is not None:
            return _switched_off(off)
        try:
            return self._policies.decide(scope, subject, action)
        except Exception:  # noqa: BLE001 - fail closed: without a decision the action is denied
            _log.exception("the policies could not judge %s", action.tool)
            return Decision("deny", (_EVALUATION_FAILED,), FAILED)

    def looks_at(self, scope: TenantScope) -> InspectedDetails:
        """Which details must be collected before a decision; all of them if the policies cannot be read."""
        try:
            return self._policies.looks_at(scope)
        except Exception:  # noqa: BLE001 - the decision fails as well, and denies the action
            _log.exception("the policies could not be read")
            return InspectedDetails(True, True)

    def refuse_switched_off(self, scope: TenantScope, subject: Subject, action: ToolAction) -> None:
        """PolicyDenied, recorded in the audit trail, while the tenant, agent, tool or integration is switched off."""
        if kill_switches.find_switch(scope, subject, action, self._kin_of) is not None:
            raise build_denial(action, self.evaluate_and_audit(scope, subject, action))

    def evaluate_and_audit(self, scope: TenantScope, subject: Subject, action: ToolAction) -> Decision:
        """The decision, recorded in the audit trail where required; for callers that continue on their own."""
        decision = self.evaluate(scope, subject, action)
        if decision.verdict != "allow" or _is_audited(subject, action):
            permit = self._permit(scope, subject, action, decision)
            db.write(permit.audit_decision)
        return decision

    def permit(
        self, scope: TenantScope, subject: Subject, action: ToolAction, approval_id: str | None = None,
        used_approval: UsedApproval | None = None, *, may_request: bool = True,
    ) -> "Permit":  # fmt: skip
        """Permission to run this action once.  PolicyDenied; ApprovalRequired if one is needed and none is named or held.

        With `may_request`, a REST or MCP call that may request approvals requests one, once per action; RateLimited.
        """
        decision = self.evaluate(scope, subject, action)
        permit = replace(self._permit(scope, subject, action, decision), approval_id=approval_id, earlier_approval=used_approval)
        if decision.verdict == "allow" or (decision.verdict == "require_approval" and permit.has_approval):
            return permit
        db.write(permit.audit_decision)
        if decision.verdict == "deny":
            raise build_denial(action, decision)
        raise build_approval_required(permit, self._request_approval(permit) if may_request else None)

    def _permit(self, scope: TenantScope, subject: Subject, action: ToolAction, decision: Decision) -> "Permit":
        return Permit(self._approvals, scope, subject, action, decision, kin_of=self._kin_of)

    def _request_approval(self, permit: "Permit") -> Approval | None:
        """The approval request for exactly this action; None if the caller may not make one, or makes and awaits it itself."""
        subject = permit.subject
        if subject.via not in ("rest", "mcp") or subject.kind not in ("key", "user") or ASK_SCOPE not in permit.scope.scopes:
            return None
        return db.write(
            lambda: (
                self._approvals.find_open_request(permit.scope, subject, permit.canonical.digest)
                or permit.request_approval(RequestOptions())
            )
        )

    def recall(self, scope: TenantScope, subject: Subject, action: ToolAction) -> "Permit":
        """Permission to read the result of an action that began before a crash.  PolicyDenied if the action is denied now."""
        permit = self._permit(scope, subject, action, self.evaluate(scope, subject, action))
        if permit.decision.verdict == "deny":
            db.write(permit.audit_decision)
            raise build_denial(action, permit.decision)
        return permit

    def approved_input(self, scope: TenantScope, approval_id: str) -> Mapping[str, Any]:
        """The input of the action that a request is about; empty if it is about none."""
        try:
            return self._approvals.read_action(scope, approval_id).action.input
        except NotFound:
            return {}


@dataclass(frozen=True)
class Permit:
    """Permission for one action; call `consume` inside the write that begins it, and `redact` on its result."""

    approvals: Approvals
    scope: TenantScope
    subject: Subject
    action: ToolAction
    decision: Decision
    approval_id: str | None = None
    earlier_approval: UsedApproval | None = None
    kin_of: kill_switches.FindKin = kill_switches.find_no_kin

    @cached_property
    def canonical(self) -> Canonical:
        """The canonical form of the action, which approvals refer to."""
        return canonical_action(self.scope, self.subject, self.action, self.decision.version)

    @property
    def has_approval(self) -> bool:
        """Whether an approval is named, or was used before for exactly this action."""
        return self.used_approval is not None

    @property
    def used_approval(self) -> str | None:
        """The id of the approval used for this action, if any."""
        if self.approval_id is not None:
            return self.approval_id
        return (
            self.earlier_approval.approval_id
            if self.earlier_approval is not None and self.earlier_approval.digest == self.canonical.digest
            else None
        )

    @property
    def resumable_approval(self) -> UsedApproval | None:
        """The approval used for this action, in the form in which the call resumes with it after a crash."""
        used = self.used_approval
        return None if used is None else UsedApproval(used, self.canonical.digest)

    @property
    def needs_write(self) -> bool:
        """Whether something must be written before the action begins."""
        return self.used_approval is not None or budgets.has_caps(self.decision.obligations)

    def consume(self, by: str, *, uses: bool = True) -> ToolAction:
        """Inside the write that begins the action: use its approval and count the call; returns the action to run.

        `by` names the operation that begins (`call:…`).  With `uses=False`, this same call used the approval before.  Raises
        the coded errors of approvals, BudgetExceeded, or PolicyDenied (no preview of the action, or switched off in the meantime).
        """
        scope, action = self.scope, self.action
        if (switched_off := self._switched_off_since()) is not None:
            db.always_write(switched_off.audit_decision)
            raise build_denial(action, switched_off.decision)
        if self.used_approval is not None:
            stored = (
                self.approvals.consume_action(scope, self.used_approval, self.canonical, by)
                if uses
                else self.approvals.repeat_action(scope, self.used_approval, self.canonical, by)
            )
            action = stored.action
        try:
            if self.decision.obligations.dry_run_first:
                budgets.check_preview(scope, self.subject, self.canonical.digest)
            budgets.count_call(scope, self.subject, self.decision)
        except ApplianceError as error:
            message = error.message
            db.always_write(lambda: self.audit_refusal(message))
            raise
        if _is_audited(self.subject, action):
            self.audit_decision()
        return action

    def refuse_switched_off(self) -> None:
        """The last check before anything is sent: PolicyDenied, recorded in the audit trail, if it was switched off meanwhile."""
        if (switched_off := self._switched_off_since()) is not None:
            db.write(switched_off.audit_decision)
            raise build_denial(self.action, switched_off.decision)

    def _switched_off_since(self) -> "Permit | None":
        off = kill_switches.find_switch(self.scope, self.subject, self.action, self.kin_of)
        return None if off is None else replace(self, decision=_switched_off(off))

    def request_approval(self, options: RequestOptions) -> Approval:
        """Request an approval of this action; joins the current write.  PolicyDenied if nobody may approve it."""
        return self.approvals.request_action(self.scope, self.subject, self.action, self.decision, options)

    def redact(self, result: Any) -> Any:
        """The result without the values that rules redact."""
        return redaction.redact(result, self.decision.obligations.redact)

    @property
    def redacts(self) -> bool:
        """Whether rules redact part of the foreign system's answer."""
        return bool(self.decision.obligations.redact)

    def redact_failure(self, error: ConnectorError) -> None:
        """Where rules redact something, reduce a failure to its class and status: JSON pointers cannot redact a sentence."""
        if self.redacts:
            redaction.redact_failure(error, action_label(self.action))

    def redact_traffic(self, traffic: Any) -> Any:
        """The traffic without hosts that only the foreign system named, where rules redact part of its answer."""
        return redaction.redact_hosts(traffic, self.action.host) if self.redacts else traffic

    def audit_decision(self) -> None:
        """Inside a write: record the decision in the audit trail."""
        self._audit(self.decision.verdict, self._audit_details())

    def audit_refusal(self, *reasons: str) -> None:
        """Inside a write: record a denial in the audit trail, with these reasons instead of the decision's own if any are given."""
        details = self._audit_details()
        self._audit("deny", {**details, "verdict": "deny", "reasons": list(reasons) or details["reasons"]})

    def _audit_details(self) -> dict[str, Any]:
        details = {
            **decision_view(self.decision),
            **_subject_view(self.subject),
            "tool": self.action.tool,
            "effect": self.action.effect,
        }
        approval = {"approval_id": self.approval_id} if self.approval_id is not None else {}
        return details | {"action_digest": self._digest()} | approval

    def _audit(self, verdict: str, details: Mapping[str, Any]) -> None:
        audit.record(self.scope, f"policy.{verdict}", action_label(self.action), details)

    def _digest(self) -> str | None:
        try:
            return self.canonical.digest
        except ApplianceError:
            return None  # an input that is not JSON was not sent either

    def record(self) -> dict[str, Any]:
        """The decision as stored with the integration call."""
        record = {**decision_view(self.decision), **_subject_view(self.subject)}
        if self.decision.would_be is not None:
            record |= {"would_be": self.decision.would_be, "would_be_rules": list(self.decision.would_be_rules)}
        return record | ({"action_digest": self.canonical.digest} if self.used_approval else {})


class ActionNeedsApproval(ApprovalRequired):
    """The action needs an approval first; `permit` describes the action that lacks it."""

    def __init__(self, message: str, permit: Permit, extra: Mapping[str, Any]) -> None:
        super().__init__(message, extra=extra)
        self.permit = permit


def decision_view(decision: Decision) -> dict[str, Any]:
    """A decision as JSON: `{verdict, rules, reasons, policy_version}`."""
    return {
        "verdict": decision.verdict, "rules": list(decision.rules), "reasons": list(decision.reasons),
        "policy_version": decision.version,
    }  # fmt: skip


def build_denial(action: ToolAction, decision: Decision) -> PolicyDenied:
    """The PolicyDenied error, with its rules and reasons."""
    why = "; ".join(decision.reasons) or "no rule allows it"
    return PolicyDenied(
        Sentence("%(action)s is denied: %(why)s", action=action_label(action), why=why),
        extra={"reason": "denied", **decision_view(decision)},
    )


def build_approval_required(permit: Permit, approval: Approval | None = None) -> "ActionNeedsApproval":
    """The error for a missing approval; `extra` says how to request one, or names the request that was made."""
    why = "; ".join(permit.decision.reasons)
    message = Sentence(
        "%(action)s needs an approval%(value)s%(why)s", action=action_label(permit.action), value=": " if why else "", why=why
    )
    extra = {"reason": "approval_required", "action_digest": permit.canonical.digest, **decision_view(permit.decision)}
    if approval is not None:
        extra |= {
            "approval_id": approval.id,
            "approval_status": approval.status,
            "review_url": review_url(permit.scope, approval.id),
        }
        extra["next"] = _NEXT_STEPS[approval.status].format(id=approval.id)
    elif ASK_SCOPE in permit.scope.scopes:
        extra["next"] = _NEXT_STEPS["unasked"]
    else:
        extra |= {"scope": ASK_SCOPE, "next": _NEXT_STEPS["may not ask"]}
    return ActionNeedsApproval(Sentence("%(message)s; %(next)s", message=message, next=extra['next']), permit, extra)


def _switched_off(off: kill_switches.KillSwitch) -> Decision:
    return Decision("deny", (kill_switches.describe_switch(off),), SWITCHES, (f"{SWITCHES}/{off.kind}",))


def _is_audited(subject: Subject, action: ToolAction) -> bool:
    return action.effect != "read" and (subject.via == "agent" or subject.has_agent_key)


def _subject_view(subject: Subject) -> Mapping[str, Any]:
    view: dict[str, Any] = {"actor": subject.actor, "via": subject.via}
    more = {
        "agent": subject.agent, "run": subject.run_id, "tainted_by": list(subject.tainted_by),
        "skills": [[each.name, each.digest] for each in subject.skills], "credential": subject.credential,
    }  # fmt: skip
    return view | {name: value for name, value in more.items() if value}
