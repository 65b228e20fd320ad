"""Compiled policies: every rule as a list of predicates, with the matching rules cached per action."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

from appliance import conditions
from appliance.conditions import AllOf, AnyOf, Compare, Condition, Inside
from appliance.connectors import to_nfc
from appliance.connectors.network import normal_glob, normal_host, without_port
from appliance.core.errors import ApplianceError
from appliance.governance.policies.decision import Facts, ToolAction, Verdict
from appliance.governance.policies.language import Policy, Rule, RuleObligations, SubjectTest, condition_of, parse_policy
from appliance.governance.subjects import SkillUsed, Subject

READABLE = frozenset({"method", "url", "query", "path", "headers"})
"""Members of an HTTP action's input that can be read whatever the body's encoding."""
LANGUAGE = "3"  # incremented when the meaning of a rule or a default changes
_MAX_CACHED = 2_048

Test = Callable[[Facts], bool]
NamesTest = Callable[[str], bool]


@dataclass(frozen=True)
class Predicate:
    """One predicate of a rule, named after the rule's member it comes from."""

    name: str
    holds: Test


@dataclass(frozen=True, eq=False)
class CompiledRule:
    """A rule; it matches if all of `on_action`, `on_subject` and `when` hold.  `named` is `policy/rule`."""

    qualified_name: str
    effect: Verdict
    reason: str
    duties: RuleObligations
    is_enforced: bool
    is_for_tainted: bool
    is_for_skills: bool
    on_action: tuple[Predicate, ...]
    on_subject: tuple[Predicate, ...]
    when: conditions.Test | None
    reads: frozenset[str] = frozenset()
    """The members of the input that `when` inspects."""
    reads_account: bool = False
    """Whether its actors may name a service account."""
    reads_account_behind: bool = False
    """Whether `when` inspects the service account."""
    error: str = ""
    """Why the rule cannot be read; everything it could apply to is denied."""

    @property
    def looks_at_request(self) -> bool:
        """Whether the rule inspects the request an action sends."""
        return any(part.name in ("operations", "hosts") for part in self.on_action)

    def records(self, facts: Facts, record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The records `when` is evaluated on: the action as requested, and the alternative readings of what it sends."""
        sent = facts.action.sent
        if sent is None or not self.reads:
            return [record]
        input_values = record["input"]
        others = sent.bodies_of(input_values) if self.effect == "allow" else sent.inputs(input_values)
        return [record, *({**record, "input": each} for each in others)]

    def holds_when(self, facts: Facts, record: Mapping[str, Any]) -> bool:
        """Whether `when` holds: to restrict, one reading of the action is enough; to allow, all must match.  An opaque body could
        contain anything."""
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
    """An active version of a policy; `document` is as stored."""

    name: str
    version: int
    digest: str
    document: Mapping[str, Any]


class CompiledPolicies:
    """A compiled set of policies; `version` identifies the exact versions of these policies."""

    def __init__(self, active: Iterable[Active]) -> None:
        ordered = sorted(active, key=lambda each: each.name)
        self.version = version_of((each.name, each.version, each.digest) for each in ordered)
        self.rules: tuple[CompiledRule, ...] = tuple(rule for each in ordered for rule in _compile_policy(each))
        self._matches: dict[tuple[Any, ...], tuple[CompiledRule, ...]] = {}

    @cached_property
    def looks_at_requests(self) -> bool:
        """Whether any rule inspects the request an action sends: its operation, host or input."""
        return any(rule.error or rule.reads or rule.looks_at_request for rule in self.rules)

    @cached_property
    def looks_at_kin(self) -> bool:
        """Whether any rule restricts an integration by name."""
        return any(rule.effect != "allow" and any(part.name == "integrations" for part in rule.on_action) for rule in self.rules)

    @cached_property
    def reads_input(self) -> bool:
        """Whether any rule has a `when` condition."""
        return any(rule.when is not None for rule in self.rules)

    @cached_property
    def reads_account(self) -> bool:
        """Whether any rule may name a service account as an actor, so that it must be known whom a key belongs to."""
        return any(rule.reads_account for rule in self.rules)

    @cached_property
    def reads_account_behind(self) -> bool:
        """Whether any condition inspects the service account, so that it must be known who has started an execution."""
        return any(rule.reads_account_behind for rule in self.rules)

    def matching_rules(self, facts: Facts) -> tuple[CompiledRule, ...]:
        """The rules whose predicates on the action hold; cached, since the same few actions recur."""
        action = facts.action
        sent = (action.sent.methods, action.sent.host) if action.sent is not None else None
        key = (action.tool, action.integration, action.operation, action.effect, action.host, action.kin, sent)
        rules = self._matches.get(key)
        if rules is None:
            rules = tuple(rule for rule in self.rules if all(part.holds(facts) for part in rule.on_action))
            if len(self._matches) >= _MAX_CACHED:
                self._matches = {}
            self._matches[key] = rules
        return rules


def version_of(parts: Iterable[tuple[str, int, str]]) -> str:
    """A stable identifier of a set of (policy, version, digest)."""
    text = json.dumps([LANGUAGE, *sorted(parts)], separators=(",", ":"))
    return "pol_" + hashlib.sha256(text.encode()).hexdigest()[:32]


def record_of(facts: Facts) -> dict[str, Any]:
    """The record that `when` is evaluated on."""
    subject, action = facts.subject, facts.action
    credential = subject.policy_credential
    return {
        "input": to_nfc(action.input),
        "subject": {
            "actor": subject.actor, "kind": subject.kind, "via": "mcp" if credential == "agent" else subject.via,
            "credential": credential, "service_account": facts.account_behind.removeprefix("service:") or None,
            "agent": subject.agent, "run_id": subject.run_id,
            "tainted": subject.is_tainted, "tainted_by": list(subject.tainted_by), "skills": [asdict(s) for s in subject.skills],
        },
        "action": {
            "tool": action.tool, "effect": "read" if action.effect == "read" else "write", "integration": action.integration,
            "operation": action.operation, "connector": action.connector, "host": action.host, "credential": action.credential,
        },
    }  # fmt: skip


def name_matcher(globs: Iterable[str]) -> NamesTest:
    """A predicate for names that match one of the globs, in which `*` matches any characters; linear in the name's length."""
    exact = frozenset(glob for glob in globs if "*" not in glob)
    patterns = [glob.split("*") for glob in globs if "*" in glob]
    if not patterns:
        return exact.__contains__
    if any(set(parts) == {""} for parts in patterns):
        return lambda name: True
    return lambda name: name in exact or any(_matches_glob(name, parts) for parts in patterns)


def _matches_glob(name: str, parts: list[str]) -> bool:
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


# -- compiling one rule


def _compile_policy(active: Active) -> list[CompiledRule]:
    try:
        policy = parse_policy(active.document, active.name)
    except ApplianceError as error:  # written for another release, so what it forbids is unknown
        is_observed = active.document.get("mode") == "observe"
        fault = f"version {active.version} of it cannot be read ({error.message}); activate another version"
        return [CompiledRule(
            qualified_name=active.name, effect="deny", reason="", duties=RuleObligations(), is_enforced=not is_observed,
            is_for_tainted=False, is_for_skills=False, on_action=(), on_subject=(), when=None, error=fault,
        )]
    return [compile_rule(policy, rule) for rule in policy.rules]


def compile_rule(policy: Policy, rule: Rule) -> CompiledRule:
    """Compile a rule of a parsed policy."""
    subject = rule.subject or SubjectTest()
    condition = condition_of(rule)
    return CompiledRule(
        qualified_name=f"{policy.name}/{rule.id}", effect=rule.effect, reason=rule.reason,
        duties=rule.obligations or RuleObligations(), is_enforced=policy.mode == "enforce", is_for_tainted=subject.tainted is True,
        is_for_skills=subject.skills is not None, on_action=tuple(_on_action(rule)),
        on_subject=tuple(_on_subject(subject, rule.effect)),
        when=None if condition is None else conditions.compile_test(condition), reads=frozenset(_members_read(condition, "input")),
        reads_account=any(glob.startswith(("s", "*")) and glob != "system" for glob in subject.actors or ()),
        reads_account_behind="service_account" in _members_read(condition, "subject"),
    )  # fmt: skip


def _members_read(condition: Condition | None, part_read: str) -> Iterable[str]:
    """The members of the input, or of the subject, that a condition inspects."""
    match condition:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _members_read(part, part_read)
        case Inside(name, _, inner) if name == part_read:
            yield from _names_of(inner)


def _names_of(condition: Condition) -> Iterable[str]:
    match condition:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _names_of(part)
        case Inside(name, _, _) | Compare(name, _, _):
            yield name


def _on_action(rule: Rule) -> Iterable[Predicate]:
    restricts = rule.effect != "allow"
    if rule.tools is not None:
        yield Predicate("tools", _match_name(rule.tools, lambda action: action.tool))
    if rule.integrations is not None:
        others = (lambda action: action.kin) if restricts else None
        yield Predicate("integrations", _match_name(rule.integrations, lambda action: action.integration, others))
    if rule.operations is not None:
        reads_method = "method" in set(_members_read(condition_of(rule), "input"))
        others = partial(_methods_of, reads_method) if restricts else None
        yield Predicate("operations", _match_name(rule.operations, lambda action: action.operation, others))
    if rule.effects is not None and len(set(rule.effects)) == 1:
        wants_read = rule.effects[0] == "read"
        yield Predicate("effects", lambda facts: (facts.action.effect == "read") is wants_read)
    if rule.hosts is not None:
        yield Predicate("hosts", _on_host(rule.hosts, restricts=rule.effect != "allow"))


def _methods_of(reads_method: bool, action: ToolAction) -> tuple[str, ...]:
    """The operation names of the methods an action sends; a rule that inspects the method also sees each as `request`."""
    if action.sent is None:
        return ()
    return (*action.sent.operations, "request") if reads_method else action.sent.operations


def _match_name(
    globs: list[str], value: Callable[[ToolAction], str], others: Callable[[ToolAction], tuple[str, ...]] | None = None
) -> Test:
    """A predicate on the action's name, or on any of the `others` the action may stand for."""
    fits = name_matcher(globs)
    if others is None:
        return lambda facts: fits(value(facts.action))

    def holds(facts: Facts) -> bool:
        action = facts.action
        return fits(value(action)) or bool((more := others(action)) and any(map(fits, more)))

    return holds


def _on_host(globs: list[str], *, restricts: bool) -> Test:
    """A predicate on the action's hosts: to restrict, one match is enough; to allow, all must match.  An unknown host counts as
    any host, so it is restricted and never allowed.  A name matches with any port."""
    fits = name_matcher([normal_glob(glob) for glob in globs])

    def holds(facts: Facts) -> bool:
        hosts = hosts_of(facts.action)
        if not hosts:
            return restricts and bool(facts.action.integration)
        matches = (fits(host) or fits(without_port(host)) for host in hosts)
        return any(matches) if restricts else all(matches)

    return holds


def hosts_of(action: ToolAction) -> list[str]:
    """The hosts an action would reach, each as `name` or `name:port`."""
    hosts = [normal_host(part) for part in action.host.split(",") if part.strip()]
    sent_host = action.sent.host if action.sent is not None else ""
    return hosts if not sent_host or {sent_host, without_port(sent_host)} & set(hosts) else [*hosts, sent_host]


def _on_subject(subject: SubjectTest, effect: Verdict) -> Iterable[Predicate]:
    for member, globs, value in (
        ("subject.kinds", subject.kinds, lambda subject: subject.kind),
        ("subject.credentials", subject.credentials, lambda subject: subject.policy_credential),
        ("subject.via", subject.via, lambda subject: subject.policy_via),
        ("subject.agents", subject.agents, lambda subject: subject.agent),
    ):
        if globs is not None:
            yield Predicate(member, _by_subject(list(globs), value))
    if subject.actors is not None:
        yield Predicate("subject.actors", _on_actor(subject.actors))
    if subject.skills is not None:
        yield Predicate("subject.skills", _on_skills(subject.skills, restricts=effect != "allow"))
    if (is_tainted := subject.tainted) is not None:
        yield Predicate("subject.tainted", lambda facts: facts.subject.is_tainted is is_tainted)


def _by_subject(globs: list[str], value: Callable[[Subject], str]) -> Test:
    fits = name_matcher(globs)
    return lambda facts: fits(value(facts.subject))


def _on_actor(globs: list[str]) -> Test:
    """A predicate on the actor, and on the service account that its key belongs to."""
    fits = name_matcher(globs)
    return lambda facts: fits(facts.subject.actor) or (bool(facts.account) and fits(facts.account))


def _on_skills(globs: list[str], *, restricts: bool) -> Test:
    """A predicate on a run's skills: to restrict, one match is enough; to allow, the run has loaded only matching skills, each
    trusted by a person or named by its digest."""
    fits = name_matcher(globs)

    def matches(skill: SkillUsed) -> bool:
        return fits(skill.digest) or ((skill.is_trusted or restricts) and fits(skill.name))

    def holds(facts: Facts) -> bool:
        skills = facts.subject.skills
        return any(map(matches, skills)) if restricts else bool(skills) and all(map(matches, skills))

    return holds
