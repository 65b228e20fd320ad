"""The decision of policies about one action: pure, fast, and no where it is in doubt."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from appliance.conditions import Incomparable
from appliance.governance.policies.compiled import Compiled, CompiledRule, record_of
from appliance.governance.policies.decision import Decision, Facts, Obligations, RuleCaps, Verdict
from appliance.tenants import ROLES

log = logging.getLogger(__name__)
T = TypeVar("T", int, float)
STRICTNESS: dict[Verdict, int] = {"allow": 0, "require_approval": 1, "deny": 2}


@dataclass(frozen=True)
class Hit:
    """A rule that holds, or one that could not be evaluated: `fault` says why, and it denies."""

    rule: CompiledRule
    fault: str = ""

    @property
    def effect(self) -> Verdict:
        return "deny" if self.fault else self.rule.effect

    @property
    def reason(self) -> str:
        if self.fault:
            return f"{self.rule.named} could not be evaluated: {self.fault}"
        return f"{self.rule.named}: {self.rule.reason}"


@dataclass(frozen=True)
class Judged:
    """What a set of hits comes to."""

    verdict: Verdict
    reasons: tuple[str, ...]
    rules: tuple[str, ...]
    obligations: Obligations
    caps: tuple[RuleCaps, ...] = ()


def decide(policies: Compiled, facts: Facts) -> Decision:
    """What holds for this action.  It raises nothing: what cannot be evaluated is denied."""
    hits = _hits(policies, facts)
    enforced = [hit for hit in hits if hit.rule.is_enforced]
    judged = judge(enforced, facts)
    would_be: Verdict | None = None
    rules: tuple[str, ...] = ()
    if len(enforced) < len(hits):
        other = judge(hits, facts)
        if other.verdict != judged.verdict:
            would_be = other.verdict
            rules = tuple(hit.rule.named for hit in hits if not hit.rule.is_enforced and hit.effect == would_be)
    return Decision(
        judged.verdict, judged.reasons, policies.version, judged.rules, judged.obligations, would_be, rules, judged.caps
    )


def judge(hits: Sequence[Hit], facts: Facts) -> Judged:
    """deny > require_approval > allow; without a hit what holds by default, and never an unapproved write of a tainted run
    unless the rule that allows it is about tainted runs."""
    if not hits:
        verdict, reason = _default(facts)
        return _raised(Judged(verdict, (reason,), (), Obligations()), facts)
    verdict = max((hit.effect for hit in hits), key=STRICTNESS.__getitem__)
    deciding = [hit for hit in hits if hit.effect == verdict]
    reasons, rules = tuple(hit.reason for hit in deciding), tuple(hit.rule.named for hit in deciding)
    if verdict == "deny":
        return Judged("deny", reasons, rules, Obligations())
    judged = Judged(verdict, reasons, rules, _merged(hits), _caps(hits))
    if verdict == "allow" and not any(hit.rule.is_for_tainted for hit in deciding):
        judged = _raised(judged, facts)
    if not any(hit.rule.is_for_skills for hit in deciding):
        judged = _narrowed(judged, facts)
    return _approvable(judged, hits)


def _hits(policies: Compiled, facts: Facts) -> list[Hit]:
    found: list[Hit] = []
    record: dict[str, Any] | None = None
    for rule in policies.about(facts):
        if rule.fault:
            found.append(Hit(rule, rule.fault))
            continue
        try:
            if rule.on_subject and not all(part.holds(facts) for part in rule.on_subject):
                continue
            if rule.when is not None:
                record = record if record is not None else record_of(facts)
                if not rule.holds_when(facts, record):
                    continue
            found.append(Hit(rule))
        except Incomparable as error:
            found.append(Hit(rule, str(error)))
        except Exception as error:
            log.exception("the rule %s could not be evaluated", rule.named)
            found.append(Hit(rule, f"{type(error).__name__}; the log has the details"))
    return found


def _default(facts: Facts) -> tuple[Verdict, str]:
    subject, action = facts.subject, facts.action
    if subject.kind == "agent" or subject.via == "agent":
        return "deny", f"no rule allows an agent {_what(facts)}; add one to a policy, and activate it"
    if subject.has_agent_key and action.effect != "read":
        return (
            "require_approval",
            f"no rule lets an agent key have {_what(facts)} done, so a person decides; add a rule that allows it",
        )
    return "allow", "no rule is about this"


def _what(facts: Facts) -> str:
    action = facts.action
    return f"{action.operation} of {action.integration}" if action.integration else action.tool


def _raised(judged: Judged, facts: Facts) -> Judged:
    subject = facts.subject
    if judged.verdict != "allow" or facts.action.effect == "read" or not subject.is_tainted:
        return judged
    sources = ", ".join(subject.tainted_by[:5]) + (", …" if len(subject.tainted_by) > 5 else "")
    reason = (
        f"content from outside the tenant ({sources}) may have asked for this write, so a person decides; "
        "a rule with subject: {tainted: true} allows it without"
    )
    return replace(judged, verdict="require_approval", reasons=(reason, *judged.reasons))


def _narrowed(judged: Judged, facts: Facts) -> Judged:
    """What a rule allows, as far as people have granted it to each skill that the run follows."""
    action = facts.action
    if judged.verdict != "allow" or action.effect == "read":
        return judged
    missing = [
        each.name
        for each in facts.subject.skills
        if each.is_trusted and each.granted is not None and action.tool not in each.granted
    ]
    if not missing:
        return judged
    reason = (
        f"{action.tool} is not granted to the skill {missing[0]}, which the run follows, so a person decides; "
        "grant it on the skill's page, or have a rule with subject: {skills: …} allow it"
    )
    return replace(judged, verdict="require_approval", reasons=(reason, *judged.reasons))


def _approvable(judged: Judged, hits: Sequence[Hit]) -> Judged:
    """Denied when every rule names approvers of its own and nobody is named by all."""
    if judged.verdict != "require_approval" or judged.obligations.approvers:
        return judged
    naming = [hit.rule.named for hit in hits if hit.rule.duties.approvers]
    if not naming:
        return judged
    told = f"{' and '.join(naming)} name different approvers, so nobody can approve this; have them name the same"
    return Judged("deny", (told, *judged.reasons), tuple(naming), Obligations())


# -- obligations


def _merged(hits: Sequence[Hit]) -> Obligations:
    """The stricter of everything that the rules which hold demand."""
    every = [hit.rule.duties for hit in hits]
    naming = [duties.approvers for duties in every if duties.approvers]
    known = Obligations()
    return Obligations(
        approvers=_common(naming),
        needed=max([duties.needed for duties in every if duties.needed is not None], default=known.needed),
        ttl_seconds=_least(duties.ttl_seconds for duties in every) or known.ttl_seconds,
        redact=tuple(sorted({pointer for duties in every for pointer in duties.redact or ()})),
        calls_per_hour=_least(duties.calls_per_hour for duties in every),
        calls_per_run=_least(duties.calls_per_run for duties in every),
        cost_per_run=_least(duties.cost_per_run for duties in every),
        dry_run_first=any(duties.dry_run_first for duties in every),
    )


def _caps(hits: Sequence[Hit]) -> tuple[RuleCaps, ...]:
    """What each rule that holds counts for itself."""
    every = (RuleCaps(hit.rule.named, hit.rule.duties.calls_per_hour, hit.rule.duties.calls_per_run) for hit in hits)
    return tuple(caps for caps in every if caps.calls_per_hour is not None or caps.calls_per_run is not None)


def _least(values: Iterable[T | None]) -> T | None:
    return min((value for value in values if value is not None), default=None)


def _common(naming: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Whom every one of the lists names: of two roles the higher, which is both; nobody when nobody is surely in all."""
    if not naming:
        return ()
    common = set(naming[0])
    for names in naming[1:]:
        common = {both for one in common for other in names if (both := _both(one, other)) is not None}
    return tuple(sorted(common))


def _both(one: str, other: str) -> str | None:
    if one == other:
        return one
    if one.startswith("role:") and other.startswith("role:"):
        return max(one, other, key=lambda name: ROLES.index(name.removeprefix("role:")))
    return None
