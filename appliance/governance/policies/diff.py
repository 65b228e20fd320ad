"""Compares two versions of a policy: its own members, then its rules one by one; the order of rules is ignored."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Happened = Literal["added", "removed", "changed"]


@dataclass(frozen=True)
class PolicyChange:
    """A changed member of the policy or of the rule `rule`, or a whole rule (`member` is empty), before and after."""

    happened: Happened
    rule: str = ""
    member: str = ""
    before: Any = None
    after: Any = None


def diff_policies(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[PolicyChange]:
    """The changes from `before` to `after`; empty if they are equal."""
    changes = [*_diff_members({**before, "rules": None}, {**after, "rules": None}, "")]
    old, new = ({str(rule["id"]): rule for rule in each.get("rules", ())} for each in (before, after))
    for name in sorted({*old, *new}):
        if name not in new:
            changes.append(PolicyChange("removed", name, before=old[name]))
        elif name not in old:
            changes.append(PolicyChange("added", name, after=new[name]))
        else:
            changes += _diff_members(old[name], new[name], name)
    return changes


def _diff_members(before: Mapping[str, Any], after: Mapping[str, Any], rule: str) -> Iterator[PolicyChange]:
    for member in sorted({*before, *after}):
        old, new = before.get(member), after.get(member)
        if old != new:
            kind: Happened = "added" if old is None else "removed" if new is None else "changed"
            yield PolicyChange(kind, rule, member, old, new)
