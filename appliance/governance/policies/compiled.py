"""Policies made ready for judging: every rule as a row of tests, sorted by what it can be about."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from appliance import conditions
from appliance.core.errors import ApplianceError
from appliance.governance.policies.decision import Facts, ToolAction, Verdict
from appliance.governance.policies.language import Duties, Policy, Rule, SubjectTest, condition_of, parse_policy
from appliance.governance.subjects import SkillUsed, Subject

LANGUAGE = "1"  # counts up when the meaning of a rule or a default changes
_MOST_KEPT = 2_048

Test = Callable[[Facts], bool]
NamesTest = Callable[[str], bool]


@dataclass(frozen=True)
class Part:
    """One of the tests of a rule, named as the member of the rule that it comes from."""

    name: str
    holds: Test


@dataclass(frozen=True, eq=False)
class CompiledRule:
    """A rule; it holds when all of `on_action`, `on_subject` and `when` do.  `named` is `policy/rule`."""

    named: str
    effect: Verdict
    reason: str
    duties: Duties
    is_enforced: bool
    is_for_tainted: bool
    is_for_skills: bool
    on_action: tuple[Part, ...]
    on_subject: tuple[Part, ...]
    when: conditions.Test | None
    fault: str = ""
    """Why the rule cannot be read; whatever it might be about is denied."""


@dataclass(frozen=True)
class Active:
    """A version of a policy that judges; `document` is as it is stored."""

    name: str
    version: int
    digest: str
    document: Mapping[str, Any]


class Compiled:
    """A set of policies; `version` is the same for the same versions of the same policies, and for no others."""

    def __init__(self, active: Iterable[Active]) -> None:
        ordered = sorted(active, key=lambda each: each.name)
        self.version = version_of((each.name, each.version, each.digest) for each in ordered)
        self.rules: tuple[CompiledRule, ...] = tuple(rule for each in ordered for rule in _read(each))
        self._kept: dict[tuple[str, ...], tuple[CompiledRule, ...]] = {}

    @cached_property
    def reads_input(self) -> bool:
        """Whether any rule looks at more than who does what."""
        return any(rule.when is not None for rule in self.rules)

    def about(self, facts: Facts) -> tuple[CompiledRule, ...]:
        """The rules whose tests of the action hold; remembered, for the same few actions come again and again."""
        action = facts.action
        key = (action.tool, action.integration, action.operation, action.effect, action.host)
        found = self._kept.get(key)
        if found is None:
            found = tuple(rule for rule in self.rules if all(part.holds(facts) for part in rule.on_action))
            if len(self._kept) >= _MOST_KEPT:
                self._kept = {}
            self._kept[key] = found
        return found


def version_of(parts: Iterable[tuple[str, int, str]]) -> str:
    """The stable name of a set of (policy, version, digest)."""
    text = json.dumps([LANGUAGE, *sorted(parts)], separators=(",", ":"))
    return "pol_" + hashlib.sha256(text.encode()).hexdigest()[:32]


def record_of(facts: Facts) -> dict[str, Any]:
    """What `when` looks at."""
    subject, action = facts.subject, facts.action
    return {
        "input": action.input,
        "subject": {
            "actor": subject.actor, "kind": subject.kind, "via": subject.via, "agent": subject.agent, "run_id": subject.run_id,
            "tainted": subject.is_tainted, "tainted_by": list(subject.tainted_by), "skills": [asdict(s) for s in subject.skills],
        },
        "action": {
            "tool": action.tool, "effect": "read" if action.effect == "read" else "write", "integration": action.integration,
            "operation": action.operation, "connector": action.connector, "host": action.host, "credential": action.credential,
        },
    }  # fmt: skip


def names_test(globs: Iterable[str]) -> NamesTest:
    """Whether a name is one of these, `*` in which stands for any characters; in time linear in the name."""
    exact = frozenset(glob for glob in globs if "*" not in glob)
    patterns = [glob.split("*") for glob in globs if "*" in glob]
    if not patterns:
        return exact.__contains__
    if any(set(parts) == {""} for parts in patterns):
        return lambda name: True
    return lambda name: name in exact or any(_fits(name, parts) for parts in patterns)


def _fits(name: str, parts: list[str]) -> bool:
    first, *middle, last = parts
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


# -- one rule


def _read(active: Active) -> list[CompiledRule]:
    try:
        policy = parse_policy(active.document, active.name)
    except ApplianceError as error:  # written for another release: what it forbids is not known any more
        watched = active.document.get("mode") == "observe"
        fault = f"version {active.version} of it cannot be read ({error.message}); activate another one"
        return [CompiledRule(active.name, "deny", "", Duties(), not watched, False, False, (), (), None, fault)]
    return [compile_rule(policy, rule) for rule in policy.rules]


def compile_rule(policy: Policy, rule: Rule) -> CompiledRule:
    """A rule of a policy that was parsed."""
    subject = rule.subject or SubjectTest()
    condition = condition_of(rule)
    return CompiledRule(
        f"{policy.name}/{rule.id}", rule.effect, rule.reason, rule.obligations or Duties(), policy.mode == "enforce",
        subject.tainted is True, subject.skills is not None, tuple(_on_action(rule)), tuple(_on_subject(subject, rule.effect)),
        None if condition is None else conditions.make_test(condition),
    )  # fmt: skip


def _on_action(rule: Rule) -> Iterable[Part]:
    for member, globs, value in (
        ("tools", rule.tools, lambda action: action.tool),
        ("integrations", rule.integrations, lambda action: action.integration),
        ("operations", rule.operations, lambda action: action.operation),
    ):
        if globs is not None:
            yield Part(member, _named(globs, value))
    if rule.effects is not None and len(set(rule.effects)) == 1:
        wants_read = rule.effects[0] == "read"
        yield Part("effects", lambda facts: (facts.action.effect == "read") is wants_read)
    if rule.hosts is not None:
        yield Part("hosts", _on_host(rule.hosts, restricts=rule.effect != "allow"))


def _named(globs: list[str], value: Callable[[ToolAction], str]) -> Test:
    fits = names_test(globs)
    return lambda facts: fits(value(facts.action))


def _on_host(globs: list[str], *, restricts: bool) -> Test:
    """One of several hosts is enough to restrict, all must fit to allow; one that nobody knows beforehand may be any, so it is
    restricted and never allowed.  A name fits whatever the port."""
    fits = names_test([glob.lower() for glob in globs])

    def holds(facts: Facts) -> bool:
        hosts = hosts_of(facts.action)
        if not hosts:
            return restricts and bool(facts.action.integration)
        found = (fits(host) or fits(_without_port(host)) for host in hosts)
        return any(found) if restricts else all(found)

    return holds


def hosts_of(action: ToolAction) -> list[str]:
    """Whom an action would reach, `name` or `name:port` each."""
    return [host for part in action.host.lower().split(",") if (host := part.strip())]


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    is_named = colon and port.isdigit() and (":" not in name or name.endswith("]"))
    return (name if is_named else host).rstrip(".")


def _on_subject(subject: SubjectTest, effect: Verdict) -> Iterable[Part]:
    for member, globs, value in (
        ("subject.kinds", subject.kinds, lambda subject: subject.kind),
        ("subject.via", subject.via, lambda subject: subject.via),
        ("subject.actors", subject.actors, lambda subject: subject.actor),
        ("subject.agents", subject.agents, lambda subject: subject.agent),
    ):
        if globs is not None:
            yield Part(member, _by_subject(list(globs), value))
    if subject.skills is not None:
        yield Part("subject.skills", _on_skills(subject.skills, restricts=effect != "allow"))
    if (wanted := subject.tainted) is not None:
        yield Part("subject.tainted", lambda facts: facts.subject.is_tainted is wanted)


def _by_subject(globs: list[str], value: Callable[[Subject], str]) -> Test:
    fits = names_test(globs)
    return lambda facts: fits(value(facts.subject))


def _on_skills(globs: list[str], *, restricts: bool) -> Test:
    """One of these skills is enough to restrict a run; to allow something, the run has loaded nothing but these, each of
    which a person trusts or the rule names by its digest."""
    fits = names_test(globs)

    def is_meant(skill: SkillUsed) -> bool:
        return fits(skill.digest) or ((skill.is_trusted or restricts) and fits(skill.name))

    def holds(facts: Facts) -> bool:
        skills = facts.subject.skills
        return any(map(is_meant, skills)) if restricts else bool(skills) and all(map(is_meant, skills))

    return holds
