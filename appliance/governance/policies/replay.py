"""Replays recorded calls against a draft policy: evaluates them with and without it, and lists the changed decisions.

A record lacks some of what rules inspect: secrets in inputs are redacted, very large inputs were not stored, nor were
credentials and trust in skills.  Where a rule depends on missing data, both possibilities are evaluated; a call counts as
changed or unchanged only if they agree.  Refused calls left no record, so a draft that allows more shows no changes here.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import product
from typing import Any, Literal

from appliance.conditions import UNKNOWN, Incomparable
from appliance.connectors import BLOT
from appliance.core import clock
from appliance.core.errors import InvalidCursor, ValidationFailed
from appliance.core.pages import decode_cursor, encode_cursor
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance.policies.accounts import find_account_behind
from appliance.governance.policies.compiled import Active, CompiledPolicies, CompiledRule, record_of
from appliance.governance.policies.decision import Facts, ToolAction, Verdict
from appliance.governance.policies.evaluation import Hit, combine
from appliance.governance.policies.language import Policy
from appliance.governance.policies.service import active_policies
from appliance.governance.subjects import SkillUsed, Subject
from appliance.integrations import RecordedCall, list_recorded_calls
from appliance.tenants.keys import lineage

TOOL = "execute_tenant_integration"
MAX_SCANNED = 20_000
MAX_SECONDS = 8.0
MAX_LISTED = 500
MAX_UNDETERMINED = 6
_ORDER = "replay"

ReplayResult = Literal["unchanged", "changed", "undecidable"]
ReplayVerdict = Verdict | Literal["undecidable"]


@dataclass(frozen=True)
class ReplayRequest:
    """The calls of [since, until), in epoch ms: lists at most `limit` changed ones, starting after `cursor`."""

    since: int
    until: int
    limit: int = 100
    cursor: str | None = None


@dataclass(frozen=True)
class ReplayedCall:
    """A call whose verdict the draft changes, or may change: both verdicts, the rules, and the missing data."""

    call: RecordedCall
    result: ReplayResult
    before: ReplayVerdict
    after: ReplayVerdict
    rules: tuple[str, ...]
    unknown: tuple[str, ...] = ()


@dataclass
class ReplayReport:
    """The result for the calls examined; `next_cursor` continues, and the counts of several pages add up.

    `undecidable` lists the first calls whose change cannot be determined, `undecidable_count` counts all of them.
    """

    scanned: int = 0
    before: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)
    changed: list[ReplayedCall] = field(default_factory=list)
    undecidable: list[ReplayedCall] = field(default_factory=list)
    undecidable_count: int = 0
    oldest_at: int | None = None
    next_cursor: str | None = None


def replay(scope: TenantScope, draft: Policy, request: ReplayRequest) -> ReplayReport:
    """Evaluate the calls of a period, newest first, with the active policies and with the draft enforced.

    Stops at the end of the period, at `limit` changed calls, or at the maximum of calls or seconds of one request.
    """
    if not 1 <= request.limit <= MAX_LISTED:
        raise ValidationFailed(Sentence("limit must be between 1 and %(most_shown)s", most_shown=MAX_LISTED), pointer="/limit")
    if request.since >= request.until:
        raise ValidationFailed("since must be before until", pointer="/since")
    active = active_policies(scope)
    enforced = draft.model_copy(update={"mode": "enforce"})
    others = [each for each in active if each.name != draft.name]
    evaluator = _Evaluator(
        scope,
        CompiledPolicies(active),
        CompiledPolicies([*others, Active(draft.name, 0, draft.digest(), enforced.document())]),
        draft.name,
    )
    report, ends = ReplayReport(), clock.monotonic() + MAX_SECONDS
    place: tuple[int, str] | None = None
    if request.cursor is not None:
        at, call_id = decode_cursor(request.cursor, _ORDER, 2)
        if type(at) is not int or not isinstance(call_id, str):
            raise InvalidCursor("the cursor does not belong to a replay; start again without it")
        place = (at, call_id)
    for call in _calls(scope, request, place, with_input=evaluator.reads_input):
        _count(report, evaluator.evaluate(call), request.limit)
        if len(report.changed) >= request.limit or report.scanned >= MAX_SCANNED or clock.monotonic() > ends:
            report.next_cursor = encode_cursor([call.created_at, call.id], _ORDER)
            break
    return report


def _calls(
    scope: TenantScope, request: ReplayRequest, place: tuple[int, str] | None, *, with_input: bool
) -> Iterator[RecordedCall]:
    while batch := list_recorded_calls(scope, (request.since, request.until), place, with_input=with_input):
        yield from batch
        place = (batch[-1].created_at, batch[-1].id)


def _count(report: ReplayReport, call: ReplayedCall, limit: int) -> None:
    report.scanned += 1
    report.oldest_at = call.call.created_at
    report.before[call.before] += 1
    report.after[call.after] += 1
    listed = replace(call, call=replace(call.call, input=None))  # the list would otherwise hold every input in memory
    if call.result == "changed":
        report.changed.append(listed)
    elif call.result == "undecidable":
        report.undecidable_count += 1
        if len(report.undecidable) < min(limit, 20):
            report.undecidable.append(listed)


# -- one call


@dataclass(frozen=True)
class _Undetermined:
    """A rule whose match is undetermined, and why."""

    hit: Hit
    unknown: str


class _Evaluator:
    """Evaluates calls against the policies without and with the draft."""

    def __init__(self, scope: TenantScope, without: CompiledPolicies, with_it: CompiledPolicies, draft: str) -> None:
        self._without, self._with, self._own = without, with_it, f"{draft}/"
        self._find_account = cache(partial(lineage.find_account_of, scope))
        self._find_account_behind = cache(partial(find_account_behind, scope))
        self._reads_account = without.reads_account or with_it.reads_account
        self._reads_account_behind = without.reads_account_behind or with_it.reads_account_behind
        self.reads_input = without.reads_input or with_it.reads_input

    def evaluate(self, call: RecordedCall) -> ReplayedCall:
        facts = call_facts(call)
        if self._reads_account:
            facts = replace(facts, account=self._find_account(facts.subject.actor))
        behind = self._find_account_behind(facts.subject.actor) if self._reads_account_behind else ""
        record = _record(call, replace(facts, account_behind=behind or ""))
        if behind is None:
            record["subject"]["service_account"] = UNKNOWN
        sides = [_match_rules(policies, facts, record) for policies in (self._without, self._with)]
        undetermined = {
            key: each
            for side, (_, undetermined_rules) in enumerate(sides)
            for each in undetermined_rules
            for key in [self._key(side, each)]
        }
        if len(undetermined) > MAX_UNDETERMINED:
            return ReplayedCall(call, "undecidable", "undecidable", "undecidable", (), _reasons(undetermined.values()))
        pairs = set()
        rules: dict[str, None] = {}
        for assumption in product((False, True), repeat=len(undetermined)):
            matching = {key for key, holds in zip(undetermined, assumption, strict=True) if holds}
            evaluations = [
                combine([*hits, *(each.hit for each in undetermined_rules if self._key(side, each) in matching)], facts)
                for side, (hits, undetermined_rules) in enumerate(sides)
            ]
            pairs.add((evaluations[0].verdict, evaluations[1].verdict))
            rules |= dict.fromkeys(evaluations[1].rules or evaluations[0].rules)
        before, after = ({pair[side] for pair in pairs} for side in (0, 1))
        differing = sum(one != other for one, other in pairs)
        result: ReplayResult = "unchanged" if not differing else "changed" if differing == len(pairs) else "undecidable"
        return ReplayedCall(
            call, result, _single_verdict(before), _single_verdict(after), tuple(rules), _reasons(undetermined.values())
        )

    def _key(self, side: int, each: _Undetermined) -> tuple[int, str]:
        """The identity of a rule: one in both sets matches in both or in neither; the draft's own rules count separately."""
        name = each.hit.rule.qualified_name
        return (side if name.startswith(self._own) else 2, name)


def _single_verdict(verdicts: set[Verdict]) -> ReplayVerdict:
    return next(iter(verdicts)) if len(verdicts) == 1 else "undecidable"


def _reasons(undetermined: Iterable[_Undetermined]) -> tuple[str, ...]:
    return tuple(sorted({f"{each.hit.rule.qualified_name}: {each.unknown}" for each in undetermined}))


def call_facts(call: RecordedCall) -> Facts:
    """The facts of a recorded call; records without a decision predate agents."""
    decision = call.decision or {}
    via = decision.get("via", "process" if call.execution_id else "rest")
    skills = tuple(SkillUsed(str(name), str(digest)) for name, digest in decision.get("skills", ()))
    subject = Subject(
        actor=decision.get("actor", call.actor),
        via=via,
        agent=decision.get("agent", ""),
        run_id=decision.get("run", ""),
        skills=skills,
        tainted_by=tuple(decision.get("tainted_by", ())),
        credential=decision.get("credential", ""),
    )
    input_values = call.input if isinstance(call.input, Mapping) else {}
    hosts = ", ".join(call.hosts)
    return Facts(subject, ToolAction(
        tool=TOOL, effect=call.effect, input=input_values, integration=call.integration, operation=call.action,
        connector=call.connector, host=hosts,
    ))


def _record(call: RecordedCall, facts: Facts) -> dict[str, Any]:
    record = record_of(facts)
    record["input"] = _mark_redacted(call.input) if call.input is not None else UNKNOWN
    record["action"]["credential"] = UNKNOWN
    if not call.hosts:
        record["action"]["host"] = UNKNOWN
    for skill in record["subject"]["skills"]:
        skill["is_trusted"] = UNKNOWN
    return record


def _mark_redacted(value: Any) -> Any:
    """The value with redacted parts as UNKNOWN; a redaction in a member's name makes its whole object UNKNOWN."""
    if isinstance(value, str):
        return UNKNOWN if BLOT in value else value
    if isinstance(value, list):
        return [_mark_redacted(item) for item in value]
    if isinstance(value, dict):
        return UNKNOWN if any(BLOT in name for name in value) else {name: _mark_redacted(item) for name, item in value.items()}
    return value


def _match_rules(policies: CompiledPolicies, facts: Facts, record: Mapping[str, Any]) -> tuple[list[Hit], list[_Undetermined]]:
    """The enforced rules that match, and those whose match is undetermined."""
    hits: list[Hit] = []
    undetermined: list[_Undetermined] = []
    for rule in policies.rules:
        if not rule.is_enforced:
            continue
        if rule.error:
            hits.append(Hit(rule, rule.error))
            continue
        unknown = _why_undetermined(rule, facts)
        if unknown is None:
            continue
        fault = ""
        try:
            holds = True if rule.when is None else rule.when(record)
        except Incomparable as error:
            holds, fault = True, str(error)
        if holds is None:
            unknown = unknown or "the data it inspects was not stored, or was redacted"
        if holds is not False and unknown:
            undetermined.append(_Undetermined(Hit(rule, fault), unknown))
        elif holds:
            hits.append(Hit(rule, fault))
    return hits, undetermined


def _why_undetermined(rule: CompiledRule, facts: Facts) -> str | None:
    """Why a rule's predicates are undetermined; empty if they hold, None if they do not."""
    unknown = ""
    trusting = replace(facts, subject=_trust_all(facts.subject))
    for part in (*rule.on_action, *rule.on_subject):
        if part.name == "hosts" and not facts.action.host:
            unknown = "the host was not recorded"
        elif part.name == "subject.skills" and part.holds(facts) != part.holds(trusting):
            unknown = "trust in the skills was not recorded"
        elif not part.holds(facts):
            return None
    return unknown


def _trust_all(subject: Subject) -> Subject:
    return replace(subject, skills=tuple(replace(each, is_trusted=True) for each in subject.skills))
