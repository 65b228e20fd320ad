"""Rules of policies as people read them: whom a rule is about, what, when, and what comes with it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from appliance.governance.policies.decision import Decision

from .showing import duration

_KINDS = {"user": "people", "key": "API keys", "execution": "executions", "agent": "agents", "system": "the appliance itself"}
_VIA = {"rest": "the API", "console": "the console", "process": "a process", "agent": "an agent", "mcp": "MCP"}
_EFFECTS = {"read": "reads", "write": "writes"}
_COMPARED = {
    "_eq": "is", "_neq": "is not", "_lt": "is below", "_lte": "is at most", "_gt": "is above", "_gte": "is at least",
    "_in": "is one of", "_nin": "is none of", "_contains": "contains", "_icontains": "contains, in whatever case,",
    "_starts_with": "begins with", "_between": "is between",
}  # fmt: skip


@dataclass(frozen=True)
class ToldRule:
    """A rule; `said` are headings with sentences, of which nothing of the rule is left out."""

    id: str
    effect: str
    said: list[tuple[str, str]]
    reason: str


def tell_rules(document: Mapping[str, Any]) -> list[ToldRule]:
    """Every rule of a policy's document."""
    return [tell_rule(rule) for rule in document.get("rules", ())]


def tell_rule(rule: Mapping[str, Any]) -> ToldRule:
    """One rule."""
    said = [("Who", _who(rule.get("subject") or {})), ("What", _what(rule))]
    if rule.get("when") is not None:
        said.append(("When", _filter(rule["when"])))
    if duties := list(_duties(rule.get("obligations") or {})):
        said.append(("With", "; ".join(duties)))
    return ToldRule(rule["id"], rule["effect"], said, rule["reason"])


def tell_obligations(decision: Decision) -> list[str]:
    """What comes with a decision; who approves matters only where an approval is asked."""
    owed = {name: value for name, value in asdict(decision.obligations).items() if value not in (None, (), False)}
    if decision.verdict != "require_approval":
        owed = {name: value for name, value in owed.items() if name not in ("approvers", "needed", "ttl_seconds")}
    return list(_duties(owed)) if decision.verdict != "deny" else []


def _either(names: Iterable[str]) -> str:
    every = list(names)
    return every[0] if len(every) == 1 else f"{', '.join(every[:-1])} or {every[-1]}"


def _who(subject: Mapping[str, Any]) -> str:
    said = []
    if "kinds" in subject:
        said.append(_either(_KINDS[kind] for kind in subject["kinds"]))
    if "agents" in subject:
        said.append(f"the agent {_either(subject['agents'])}")
    if "actors" in subject:
        said.append(f"the actor {_either(subject['actors'])}")
    if "via" in subject:
        said.append(f"by way of {_either(_VIA[via] for via in subject['via'])}")
    if "skills" in subject:
        said.append(f"with the skill {_either(subject['skills'])} loaded")
    if "tainted" in subject:
        said.append("after reading content from outside" if subject["tainted"] else "without having read content from outside")
    return ", ".join(said) or "anybody"


def _what(rule: Mapping[str, Any]) -> str:
    effects = sorted(set(rule.get("effects", _EFFECTS)))
    said = [_either(_EFFECTS[effect] for effect in effects)] if len(effects) < len(_EFFECTS) else []
    for member, words in (("operations", "the operation"), ("integrations", "the integration"), ("tools", "the tool")):
        if member in rule:
            said.append(f"{words} {_either(rule[member])}")
    if "hosts" in rule:
        said.append(f"at the host {_either(rule['hosts'])}")
    return ", ".join(said) or "anything"


def _filter(given: Mapping[str, Any], place: str = "") -> str:
    """All of its comparisons must hold."""
    return " and ".join(_compared(name, value, place) for name, value in given.items())


def _compared(name: str, value: Any, place: str) -> str:
    if name in ("_and", "_or"):
        parts = [_filter(each, place) for each in value]
        return parts[0] if len(parts) == 1 else f"({f' {name[1:]} '.join(parts)})"
    if name == "_null":
        return f"{place} is {'empty' if value else 'not empty'}"
    if name in ("_some", "_none"):
        return f"{'some' if name == '_some' else 'none'} of {place} has ({_filter(value)})"
    if name in _COMPARED:
        return f"{place} {_COMPARED[name]} {_value(value, ' and ' if name == '_between' else ', ')}"
    here = f"{place}.{name}" if place else name
    return _filter(value, here) if isinstance(value, Mapping) else f"{here} is {_value(value)}"


def _value(value: Any, between: str = ", ") -> str:
    return between.join(map(_value, value)) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)


def _duties(owed: Mapping[str, Any]) -> Iterable[str]:
    if "approvers" in owed or "needed" in owed:
        people = _either(owed.get("approvers", ["people who may approve"]))
        yield f"approval of {owed.get('needed', 1)} of {people}" if owed.get("needed", 1) > 1 else f"approval of {people}"
    if "ttl_seconds" in owed:
        yield f"an answer within {duration(owed['ttl_seconds'] * 1000)}"
    if "redact" in owed:
        yield f"{', '.join(owed['redact'])} hidden from the result"
    if "calls_per_hour" in owed:
        yield f"at most {owed['calls_per_hour']} calls an hour"
    if "calls_per_run" in owed:
        yield f"at most {owed['calls_per_run']} calls in a run"
    if "cost_per_run" in owed:
        yield f"at most {owed['cost_per_run']:g} US dollars in a run"
    if owed.get("dry_run_first"):
        yield "a preview of the same action before"
