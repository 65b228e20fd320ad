"""Evaluates policies for one action: a pure function that denies when in doubt."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from appliance.conditions import Incomparable
from appliance.governance.policies.compiled import CompiledPolicies, CompiledRule, record_of
from appliance.governance.policies.decision import Decision, Facts, Obligations, RuleCaps, Verdict
from appliance.tenants import ROLES

log = logging.getLogger(__name__)
T = TypeVar("T", int, float)
STRICTNESS: dict[Verdict, int] = {"allow": 0, "require_approval": 1, "deny": 2}


@dataclass(frozen=True)
class Hit:
    """A rule that matches, or one that could not be evaluated: then `fault` says why, and it denies."""

    rule: CompiledRule
    fault: str = ""

    @property
    def effect(self) -> Verdict:
        return "deny" if self.fault else self.rule.effect

    @property
    def reason(self) -> str:
        if self.fault:
            return f"{self.rule.qualified_name} could not be evaluated: {self.fault}"
        return f"{self.rule.qualified_name}: {self.rule.reason}"


@dataclass(frozen=True)
class Evaluation:
    """The combined result of a set of hits."""

    verdict: Verdict
    reasons: tuple[str, ...]
    rules: tuple[str, ...]
    obligations: Obligations
    caps: tuple[RuleCaps, ...] = ()


def decide(policies: CompiledPolicies, facts: Facts) -> Decision:
    """The decision about this action.  Never raises: what cannot be evaluated is denied."""
    hits = _hits(policies, facts)
    enforced = [hit for hit in hits if hit.rule.is_enforced]
    evaluation = combine(enforced, facts)
    would_be: Verdict | None = None
    rules: tuple[str, ...] = ()
    if len(enforced) < len(hits):
        other = combine(hits, facts)
        if other.verdict != evaluation.verdict:
            would_be = other.verdict
            rules = tuple(hit.rule.qualified_name for hit in hits if not hit.rule.is_enforced and hit.effect == would_be)
    return Decision(
        verdict=evaluation.verdict,
        reasons=evaluation.reasons,
        version=policies.version,
        rules=evaluation.rules,
        obligations=evaluation.obligations,
        would_be=would_be,
        would_be_rules=rules,
        caps=evaluation.caps,
    )


def combine(hits: Sequence[Hit], facts: Facts) -> Evaluation:
    """Combine the hits: deny > require_approval > allow, or the default without a hit.  A write of a tainted run always needs an
    approval, unless the rule that allows it names tainted runs."""
    if not hits:
        verdict, reason = _default(facts)
        return _escalate_tainted(Evaluation(verdict, (reason,), (), Obligations()), facts)
    verdict = max((hit.effect for hit in hits), key=STRICTNESS.__getitem__)
    deciding = [hit for hit in hits if hit.effect == verdict]
    reasons, rules = tuple(hit.reason for hit in deciding), tuple(hit.rule.qualified_name for hit in deciding)
    if verdict == "deny":
        return Evaluation("deny", reasons, rules, Obligations())
    evaluation = Evaluation(verdict, reasons, rules, _merge_obligations(hits), _caps(hits))
    if verdict == "allow" and not any(hit.rule.is_for_tainted for hit in deciding):
        evaluation = _escalate_tainted(evaluation, facts)
    if not any(hit.rule.is_for_skills for hit in deciding):
        evaluation = _escalate_skills(evaluation, facts)
    return _deny_if_unapprovable(evaluation, hits)


def _hits(policies: CompiledPolicies, facts: Facts) -> list[Hit]:
    hits: list[Hit] = []
    record: dict[str, Any] | None = None
    for rule in policies.matching_rules(facts):
        if rule.error:
            hits.append(Hit(rule, rule.error))
            continue
        try:
            if rule.on_subject and not all(part.holds(facts) for part in rule.on_subject):
                continue
            if rule.when is not None:
                record = record if record is not None else record_of(facts)
                if not rule.holds_when(facts, record):
                    continue
            hits.append(Hit(rule))
        except Incomparable as error:
            hits.append(Hit(rule, str(error)))
        except Exception as error:
            log.exception("the rule %s could not be evaluated", rule.qualified_name)
            hits.append(Hit(rule, f"{type(error).__name__}; the log has the details"))
    return hits


def _default(facts: Facts) -> tuple[Verdict, str]:
    subject, action = facts.subject, facts.action
    if subject.kind == "agent" or subject.via == "agent":
        return "deny", f"no rule allows an agent {_describe_action(facts)}; add one to a policy and activate it"
    if subject.has_agent_key and action.effect != "read":
        return (
            "require_approval",
            f"no rule allows an agent key to run {_describe_action(facts)}, so a person must decide; add a rule that allows it",
        )
    return "allow", "no rule applies to this action"


def _describe_action(facts: Facts) -> str:
    action = facts.action
    return f"{action.operation} of {action.integration}" if action.integration else action.tool


def _escalate_tainted(evaluation: Evaluation, facts: Facts) -> Evaluation:
    subject = facts.subject
    if evaluation.verdict != "allow" or facts.action.effect == "read" or not subject.is_tainted:
        return evaluation
    sources = ", ".join(subject.tainted_by[:5]) + (", …" if len(subject.tainted_by) > 5 else "")
    reason = (
        f"content from outside the tenant ({sources}) may have caused this write, so a person must decide; "
        "a rule with subject: {tainted: true} can allow it without approval"
    )
    return replace(evaluation, verdict="require_approval", reasons=(reason, *evaluation.reasons))


def _escalate_skills(evaluation: Evaluation, facts: Facts) -> Evaluation:
    """Require approval for a write that is not granted to every skill the run follows."""
    action = facts.action
    if evaluation.verdict != "allow" or action.effect == "read":
        return evaluation
    missing = [
        each.name
        for each in facts.subject.skills
        if each.is_trusted and each.granted is not None and action.tool not in each.granted
    ]
    if not missing:
        return evaluation
    reason = (
        f"{action.tool} is not granted to the skill {missing[0]}, which the run follows, so a person must decide; "
        "grant it on the skill's page, or allow it by a rule with subject: {skills: …}"
    )
    return replace(evaluation, verdict="require_approval", reasons=(reason, *evaluation.reasons))


def _deny_if_unapprovable(evaluation: Evaluation, hits: Sequence[Hit]) -> Evaluation:
    """Deny if several rules name approvers and they have none in common."""
    if evaluation.verdict != "require_approval" or evaluation.obligations.approvers:
        return evaluation
    naming = [hit.rule.qualified_name for hit in hits if hit.rule.duties.approvers]
    if not naming:
        return evaluation
    reason = f"{' and '.join(naming)} name different approvers, so no one can approve this; name the same approvers in each"
    return Evaluation("deny", (reason, *evaluation.reasons), tuple(naming), Obligations())


# -- obligations


def _merge_obligations(hits: Sequence[Hit]) -> Obligations:
    """The strictest combination of the obligations of all matching rules."""
    every = [hit.rule.duties for hit in hits]
    naming = [duties.approvers for duties in every if duties.approvers]
    defaults = Obligations()
    return Obligations(
        approvers=_common_approvers(naming),
        needed=max([duties.needed for duties in every if duties.needed is not None], default=defaults.needed),
        ttl_seconds=_minimum(duties.ttl_seconds for duties in every) or defaults.ttl_seconds,
        redact=tuple(sorted({pointer for duties in every for pointer in duties.redact or ()})),
        calls_per_hour=_minimum(duties.calls_per_hour for duties in every),
        calls_per_run=_minimum(duties.calls_per_run for duties in every),
        cost_per_run=_minimum(duties.cost_per_run for duties in every),
        dry_run_first=any(duties.dry_run_first for duties in every),
    )


def _caps(hits: Sequence[Hit]) -> tuple[RuleCaps, ...]:
    """The caps of each matching rule, counted separately."""
    every = (RuleCaps(hit.rule.qualified_name, hit.rule.duties.calls_per_hour, hit.rule.duties.calls_per_run) for hit in hits)
    return tuple(caps for caps in every if caps.calls_per_hour is not None or caps.calls_per_run is not None)


def _minimum(values: Iterable[T | None]) -> T | None:
    return min((value for value in values if value is not None), default=None)


def _common_approvers(naming: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The approvers named by every list: of two roles the higher, which includes the lower; empty if none is surely in all."""
    if not naming:
        return ()
    common = set(naming[0])
    for names in naming[1:]:
        common = {both for one in common for other in names if (both := _stricter_approver(one, other)) is not None}
    return tuple(sorted(common))


def _stricter_approver(one: str, other: str) -> str | None:
    if one == other:
        return one
    if one.startswith("role:") and other.startswith("role:"):
        return max(one, other, key=lambda name: ROLES.index(name.removeprefix("role:")))
    return None
