"""Why policies decide as they do: every rule with what speaks for and against it."""

from dataclasses import dataclass
from typing import Any

from appliance.conditions import Incomparable
from appliance.governance.policies.compiled import Compiled, CompiledRule, record_of
from appliance.governance.policies.decision import Facts, Mode, Verdict


@dataclass(frozen=True)
class Finding:
    """A rule that holds, does not because of the member `because`, or cannot be evaluated: `fault` says why, and it denies."""

    rule: str
    effect: Verdict
    mode: Mode
    holds: bool
    because: str = ""
    fault: str = ""


def explain(policies: Compiled, facts: Facts) -> list[Finding]:
    """Every active rule, those that hold first."""
    record = record_of(facts)
    found = [_finding(rule, facts, record) for rule in policies.rules]
    return sorted(found, key=lambda each: not (each.holds or each.fault))


def _finding(rule: CompiledRule, facts: Facts, record: dict[str, Any]) -> Finding:
    mode: Mode = "enforce" if rule.is_enforced else "observe"
    if rule.fault:
        return Finding(rule.named, "deny", mode, False, fault=rule.fault)
    try:
        for part in (*rule.on_action, *rule.on_subject):
            if not part.holds(facts):
                return Finding(rule.named, rule.effect, mode, False, part.name)
        if not rule.holds_when(facts, record):
            return Finding(rule.named, rule.effect, mode, False, "when")
    except Incomparable as error:
        return Finding(rule.named, rule.effect, mode, False, "when", str(error))
    return Finding(rule.named, rule.effect, mode, True)
