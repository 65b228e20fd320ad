"""Policies made ready for judging: every rule as a row of tests, sorted by what it can be about."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

from appliance import conditions
from appliance.conditions import AllOf, AnyOf, Compare, Condition, Inside
from appliance.connectors import composed
from appliance.connectors.network import normal_glob, normal_host, without_port
from appliance.core.errors import ApplianceError
from appliance.governance.policies.decision import Facts, ToolAction, Verdict
from appliance.governance.policies.language import Duties, Policy, Rule, SubjectTest, condition_of, parse_policy
from appliance.governance.subjects import SkillUsed, Subject

READABLE = frozenset({"method", "url", "query", "path", "headers"})
"""Members of an HTTP action that are known however its body is written."""
LANGUAGE = "2"  # counts up when the meaning of a rule or a default changes
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
    reads: frozenset[str] = frozenset()
    """The members of the input that `when` looks at."""
    fault: str = ""
    """Why the rule cannot be read; whatever it might be about is denied."""

    @property
    def looks_at_request(self) -> bool:
        """Whether what an action sends may make this rule fit."""
        return any(part.name in ("operations", "hosts") for part in self.on_action)

    def records(self, facts: Facts, record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """What `when` is tried on: the action as it was asked for, and as what it sends can be read."""
        sent = facts.action.sent
        if sent is None or not self.reads:
            return [record]
        given = record["input"]
        others = sent.bodies_of(given) if self.effect == "allow" else sent.inputs(given)
        return [record, *({**record, "input": each} for each in others)]

    def holds_when(self, facts: Facts, record: Mapping[str, Any]) -> bool:
        """Whether `when` holds: of what an action may mean, one is enough to restrict, and all must fit to allow.  A body that
        nobody can read may say anything."""
        test = self.when
        if test is None:
            return True
        sent = facts.action.sent
        if sent is None:
            return bool(test(record))
        if self.effect == "allow":
            return all(map(test, self.records(facts, record)))
        return any(map(test, self.records(facts, record))) or (sent.is_opaque and bool(self.reads - READABLE))


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
        self._kept: dict[tuple[Any, ...], tuple[CompiledRule, ...]] = {}

    @cached_property
    def looks_at_requests(self) -> bool:
        """Whether any rule looks at what an action sends: its operation, host or input."""
        return any(rule.fault or rule.reads or rule.looks_at_request for rule in self.rules)

    @cached_property
    def looks_at_kin(self) -> bool:
        """Whether any rule restricts an integration by name."""
        return any(rule.effect != "allow" and any(part.name == "integrations" for part in rule.on_action) for rule in self.rules)

    @cached_property
    def reads_input(self) -> bool:
        """Whether any rule looks at more than who does what."""
        return any(rule.when is not None for rule in self.rules)

    def about(self, facts: Facts) -> tuple[CompiledRule, ...]:
        """The rules whose tests of the action hold; remembered, for the same few actions come again and again."""
        action = facts.action
        sent = (action.sent.methods, action.sent.host) if action.sent is not None else None
        key = (action.tool, action.integration, action.operation, action.effect, action.host, action.kin, sent)
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
    credential = subject.judged_credential
    return {
        "input": composed(action.input),
        "subject": {
            "actor": subject.actor, "kind": subject.kind, "via": "mcp" if credential == "agent" else subject.via,
            "credential": credential, "agent": subject.agent, "run_id": subject.run_id,
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
        return [CompiledRule(active.name, "deny", "", Duties(), not watched, False, False, (), (), None, fault=fault)]
    return [compile_rule(policy, rule) for rule in policy.rules]


def compile_rule(policy: Policy, rule: Rule) -> CompiledRule:
    """A rule of a policy that was parsed."""
    subject = rule.subject or SubjectTest()
    condition = condition_of(rule)
    return CompiledRule(
        f"{policy.name}/{rule.id}", rule.effect, rule.reason, rule.obligations or Duties(), policy.mode == "enforce",
        subject.tainted is True, subject.skills is not None, tuple(_on_action(rule)), tuple(_on_subject(subject, rule.effect)),
        None if condition is None else conditions.make_test(condition), frozenset(_members_read(condition)),
    )  # fmt: skip


def _members_read(condition: Condition | None) -> Iterable[str]:
    """The members of the input that a condition looks at."""
    match condition:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _members_read(part)
        case Inside("input", _, inner):
            yield from _names_of(inner)


def _names_of(condition: Condition) -> Iterable[str]:
    match condition:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _names_of(part)
        case Inside(name, _, _) | Compare(name, _, _):
            yield name


def _on_action(rule: Rule) -> Iterable[Part]:
    restricts = rule.effect != "allow"
    if rule.tools is not None:
        yield Part("tools", _named(rule.tools, lambda action: action.tool))
    if rule.integrations is not None:
        others = (lambda action: action.kin) if restricts else None
        yield Part("integrations", _named(rule.integrations, lambda action: action.integration, others))
    if rule.operations is not None:
        reads_method = "method" in set(_members_read(condition_of(rule)))
        others = partial(_methods_of, reads_method) if restricts else None
        yield Part("operations", _named(rule.operations, lambda action: action.operation, others))
    if rule.effects is not None and len(set(rule.effects)) == 1:
        wants_read = rule.effects[0] == "read"
        yield Part("effects", lambda facts: (facts.action.effect == "read") is wants_read)
    if rule.hosts is not None:
        yield Part("hosts", _on_host(rule.hosts, restricts=rule.effect != "allow"))


def _methods_of(reads_method: bool, action: ToolAction) -> tuple[str, ...]:
    """The methods that an action sends, by the names of operations; any of them is a `request` to a rule that asks for one."""
    if action.sent is None:
        return ()
    return (*action.sent.operations, "request") if reads_method else action.sent.operations


def _named(
    globs: list[str], value: Callable[[ToolAction], str], others: Callable[[ToolAction], tuple[str, ...]] | None = None
) -> Test:
    """Whether a name fits, or one of the others under which an action may be meant."""
    fits = names_test(globs)
    if others is None:
        return lambda facts: fits(value(facts.action))

    def holds(facts: Facts) -> bool:
        action = facts.action
        return fits(value(action)) or bool((more := others(action)) and any(map(fits, more)))

    return holds


def _on_host(globs: list[str], *, restricts: bool) -> Test:
    """One of several hosts is enough to restrict, all must fit to allow; one that nobody knows beforehand may be any, so it is
    restricted and never allowed.  A name fits whatever the port."""
    fits = names_test([normal_glob(glob) for glob in globs])

    def holds(facts: Facts) -> bool:
        hosts = hosts_of(facts.action)
        if not hosts:
            return restricts and bool(facts.action.integration)
        found = (fits(host) or fits(without_port(host)) for host in hosts)
        return any(found) if restricts else all(found)

    return holds


def hosts_of(action: ToolAction) -> list[str]:
    """Whom an action would reach, `name` or `name:port` each."""
    told = [normal_host(part) for part in action.host.split(",") if part.strip()]
    reached = action.sent.host if action.sent is not None else ""
    return told if not reached or {reached, without_port(reached)} & set(told) else [*told, reached]


def _on_subject(subject: SubjectTest, effect: Verdict) -> Iterable[Part]:
    for member, globs, value in (
        ("subject.kinds", subject.kinds, lambda subject: subject.kind),
        ("subject.credentials", subject.credentials, lambda subject: subject.judged_credential),
        ("subject.via", subject.via, lambda subject: subject.road),
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
