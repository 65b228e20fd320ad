"""Explains a policy decision: every rule with the reason it matches or does not."""

from dataclasses import dataclass
from typing import Any

from appliance.conditions import Incomparable
from appliance.governance.policies.compiled import CompiledPolicies, CompiledRule, record_of
from appliance.governance.policies.decision import Facts, Mode, Verdict


@dataclass(frozen=True)
class Finding:
    """A rule that matches, does not because of the member `because`, or cannot be evaluated (`fault` says why; it then denies)."""

    rule: str
    effect: Verdict
    mode: Mode
    holds: bool
    because: str = ""
    fault: str = ""


def explain(policies: CompiledPolicies, facts: Facts) -> list[Finding]:
    """Every active rule, matching ones first."""
    record = record_of(facts)
    findings = [_finding(rule, facts, record) for rule in policies.rules]
    return sorted(findings, key=lambda each: not (each.holds or each.fault))


def _finding(rule: CompiledRule, facts: Facts, record: dict[str, Any]) -> Finding:
    mode: Mode = "enforce" if rule.is_enforced else "observe"
    if rule.error:
        return Finding(rule.qualified_name, "deny", mode, False, fault=rule.error)
    try:
        for part in (*rule.on_action, *rule.on_subject):
            if not part.holds(facts):
                return Finding(rule.qualified_name, rule.effect, mode, False, part.name)
        if not rule.holds_when(facts, record):
            return Finding(rule.qualified_name, rule.effect, mode, False, "when")
    except Incomparable as error:
        return Finding(rule.qualified_name, rule.effect, mode, False, "when", str(error))
    return Finding(rule.qualified_name, rule.effect, mode, True)
