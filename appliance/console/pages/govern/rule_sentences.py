"""Describes policy rules as text: the subject, the action, the condition and the obligations of each."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from appliance.console.frame.formatting import duration
from appliance.core.texts import format_decimal, mark, ngettext
from appliance.core.texts import gettext as _
from appliance.governance.policies import Decision

_KINDS = {
    "user": mark("people"), "key": mark("API keys"), "execution": mark("executions"), "agent": mark("agents"),
    "system": mark("the appliance itself"),
}  # fmt: skip
_VIA = {
    "rest": mark("the API"), "console": mark("the console"), "process": mark("a process"), "agent": mark("an agent"), "mcp": "MCP",
}  # fmt: skip
_CREDENTIALS = {"service": mark("service keys"), "agent": mark("agent keys")}
_EFFECTS = {"read": mark("reads"), "write": mark("writes")}
_COMPARED = {
    "_eq": mark("%(place)s is %(value)s"), "_neq": mark("%(place)s is not %(value)s"), "_lt": mark("%(place)s is below %(value)s"),
    "_lte": mark("%(place)s is at most %(value)s"), "_gt": mark("%(place)s is above %(value)s"),
    "_gte": mark("%(place)s is at least %(value)s"), "_in": mark("%(place)s is one of %(value)s"),
    "_nin": mark("%(place)s is none of %(value)s"), "_contains": mark("%(place)s contains %(value)s"),
    "_icontains": mark("%(place)s contains %(value)s, ignoring case"), "_starts_with": mark("%(place)s starts with %(value)s"),
    "_between": mark("%(place)s is between %(value)s"),
}  # fmt: skip


@dataclass(frozen=True)
class RuleSummary:
    """A rule as text; `said` are (heading, sentence) pairs that together cover the whole rule."""

    id: str
    effect: str
    sections: list[tuple[str, str]]
    reason: str


def describe_rules(document: Mapping[str, Any]) -> list[RuleSummary]:
    """Describe every rule of a policy document."""
    return [describe_rule(rule) for rule in document.get("rules", ())]


def describe_rule(rule: Mapping[str, Any]) -> RuleSummary:
    """Describe one rule."""
    sections = [(mark("Who"), _who(rule.get("subject") or {})), (mark("What"), _what(rule))]
    if rule.get("when") is not None:
        sections.append((mark("When"), _filter(rule["when"])))
    if duties := list(_duties(rule.get("obligations") or {})):
        sections.append((mark("With"), "; ".join(duties)))
    return RuleSummary(rule["id"], rule["effect"], sections, rule["reason"])


def describe_obligations(decision: Decision) -> list[str]:
    """The obligations of a decision; those about approval only when the decision requires one."""
    owed = {name: value for name, value in asdict(decision.obligations).items() if value not in (None, (), False)}
    if decision.verdict != "require_approval":
        owed = {name: value for name, value in owed.items() if name not in ("approvers", "needed", "ttl_seconds")}
    return list(_duties(owed)) if decision.verdict != "deny" else []


def _either(names: Iterable[str]) -> str:
    every = list(names)
    return every[0] if len(every) == 1 else _("%(others)s or %(last)s", others=", ".join(every[:-1]), last=every[-1])


def _who(subject: Mapping[str, Any]) -> str:
    parts = []
    if "kinds" in subject:
        parts.append(_either(_(_KINDS[kind]) for kind in subject["kinds"]))
    if "credentials" in subject:
        parts.append(_either(_(_CREDENTIALS[kind]) for kind in subject["credentials"]))
    if "agents" in subject:
        parts.append(_("the agent %(name)s", name=_either(subject["agents"])))
    if "actors" in subject:
        parts.append(_("the actor %(name)s", name=_either(subject["actors"])))
    if "via" in subject:
        parts.append(_("through %(road)s", road=_either(_(_VIA[via]) for via in subject["via"])))
    if "skills" in subject:
        parts.append(_("with the skill %(name)s loaded", name=_either(subject["skills"])))
    if "tainted" in subject:
        choices = _("after reading content from outside"), _("without reading content from outside")
        parts.append(choices[0] if subject["tainted"] else choices[1])
    return ", ".join(parts) or _("anyone")


def _what(rule: Mapping[str, Any]) -> str:
    effects = sorted(set(rule.get("effects", _EFFECTS)))
    parts = [_either(_(_EFFECTS[effect]) for effect in effects)] if len(effects) < len(_EFFECTS) else []
    words = {
        "operations": mark("the operation %(name)s"), "integrations": mark("the integration %(name)s"),
        "tools": mark("the tool %(name)s"), "hosts": mark("on the host %(name)s"),
    }  # fmt: skip
    parts += [_(text, name=_either(rule[member])) for member, text in words.items() if member in rule]
    return ", ".join(parts) or _("anything")


def _filter(filters: Mapping[str, Any], place: str = "") -> str:
    """Describe a filter; its comparisons are joined with "and", because all must hold."""
    return _(" and ").join(_compared(name, value, place) for name, value in filters.items())


def _compared(name: str, value: Any, place: str) -> str:
    if name in ("_and", "_or"):
        parts = [_filter(each, place) for each in value]
        between = _(" and ") if name == "_and" else _(" or ")
        return parts[0] if len(parts) == 1 else f"({between.join(parts)})"
    if name == "_null":
        return _("%(place)s is empty", place=place) if value else _("%(place)s is not empty", place=place)
    if name in ("_some", "_none"):
        some, none = mark("an item of %(place)s matches (%(filter)s)"), mark("no item of %(place)s matches (%(filter)s)")
        return _(some if name == "_some" else none, place=place, filter=_filter(value))
    if name in _COMPARED:
        return _(_COMPARED[name], place=place, value=_value(value, _(" and ") if name == "_between" else ", "))
    here = f"{place}.{name}" if place else name
    return _filter(value, here) if isinstance(value, Mapping) else _(_COMPARED["_eq"], place=here, value=_value(value))


def _value(value: Any, between: str = ", ") -> str:
    return between.join(map(_value, value)) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)


def _duties(owed: Mapping[str, Any]) -> Iterable[str]:
    if "approvers" in owed or "needed" in owed:
        people = _either(owed.get("approvers", [_("people who may approve")]))
        needed = owed.get("needed", 1)
        several = _("approval of %(needed)s of %(people)s", needed=needed, people=people)
        yield several if needed > 1 else _("approval of %(people)s", people=people)
    if "ttl_seconds" in owed:
        yield _("an answer within %(time)s", time=duration(owed["ttl_seconds"] * 1000))
    if "redact" in owed:
        yield _("%(members)s hidden from the result", members=", ".join(owed["redact"]))
    if "calls_per_hour" in owed:
        yield ngettext("at most %(num)s call per hour", "at most %(num)s calls per hour", owed["calls_per_hour"])
    if "calls_per_run" in owed:
        yield ngettext("at most %(num)s call per run", "at most %(num)s calls per run", owed["calls_per_run"])
    if "cost_per_run" in owed:
        yield _("at most %(cost)s US dollars per run", cost=format_decimal(f"{owed['cost_per_run']:g}"))
    if owed.get("dry_run_first"):
        yield _("a preview of the same action first")
