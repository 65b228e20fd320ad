"""What a draft would have changed: the recorded calls judged anew, without it and with it.

A record lacks some of what rules look at: secrets in inputs are blotted out, very large inputs were not kept, nor were
credentials and who trusted which skill.  A rule that depends on such a thing may hold or not; a call is counted as changed or
unchanged only if that makes no difference.  Calls that were refused left no record, so that a draft which allows more shows
nothing here.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

from appliance.conditions import UNKNOWN, Incomparable
from appliance.connectors import BLOT
from appliance.core import clock
from appliance.core.errors import InvalidCursor, ValidationFailed
from appliance.core.pages import decode_cursor, encode_cursor
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance.policies.compiled import Active, Compiled, CompiledRule, record_of
from appliance.governance.policies.decision import Facts, ToolAction, Verdict
from appliance.governance.policies.evaluation import Hit, judge
from appliance.governance.policies.language import Policy
from appliance.governance.policies.service import active_policies
from appliance.governance.subjects import SkillUsed, Subject
from appliance.integrations import PastCall, past_calls

TOOL = "execute_tenant_integration"
MOST_SCANNED = 20_000
MOST_SECONDS = 8.0
MOST_SHOWN = 500
MOST_OPEN = 6
_ORDER = "replay"

Outcome = Literal["unchanged", "changed", "undecidable"]
Known = Verdict | Literal["undecidable"]


@dataclass(frozen=True)
class ReplayRequest:
    """Which calls, times in epoch ms, [since, until): at most `limit` changed ones are listed, on from `cursor`."""

    since: int
    until: int
    limit: int = 100
    cursor: str | None = None


@dataclass(frozen=True)
class Rejudged:
    """A call of which the draft changes the verdict, or may: the verdicts and their rules, and what is not known."""

    call: PastCall
    outcome: Outcome
    before: Known
    after: Known
    rules: tuple[str, ...]
    unknown: tuple[str, ...] = ()


@dataclass
class Replayed:
    """What was found of the calls looked at; `next_cursor` leads on, and counts of several pages add up.

    `undecidable` lists the first calls of which nobody can say whether the draft changes them, `undecidable_count` counts all.
    """

    scanned: int = 0
    before: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)
    changed: list[Rejudged] = field(default_factory=list)
    undecidable: list[Rejudged] = field(default_factory=list)
    undecidable_count: int = 0
    oldest_at: int | None = None
    next_cursor: str | None = None


def replay(scope: TenantScope, draft: Policy, request: ReplayRequest) -> Replayed:
    """Judge the calls of a time anew, newest first, by what is active now and by the same with the draft enforced.

    It stops at the end, at `limit` changed calls, and after as many calls or seconds as one request may take.
    """
    if not 1 <= request.limit <= MOST_SHOWN:
        raise ValidationFailed(Sentence("limit is 1 to %(most_shown)s", most_shown=MOST_SHOWN), pointer="/limit")
    if request.since >= request.until:
        raise ValidationFailed("since is before until", pointer="/since")
    active = active_policies(scope)
    enforced = draft.model_copy(update={"mode": "enforce"})
    others = [each for each in active if each.name != draft.name]
    judges = _Judges(Compiled(active), Compiled([*others, Active(draft.name, 0, draft.digest(), enforced.document())]), draft.name)
    found, ends = Replayed(), clock.monotonic() + MOST_SECONDS
    place: tuple[int, str] | None = None
    if request.cursor is not None:
        at, call_id = decode_cursor(request.cursor, _ORDER, 2)
        if type(at) is not int or not isinstance(call_id, str):
            raise InvalidCursor("the cursor is not one of a replay; start again without it")
        place = (at, call_id)
    for call in _calls(scope, request, place, with_input=judges.reads_input):
        _count(found, judges.rejudge(call), request.limit)
        if len(found.changed) >= request.limit or found.scanned >= MOST_SCANNED or clock.monotonic() > ends:
            found.next_cursor = encode_cursor([call.created_at, call.id], _ORDER)
            break
    return found


def _calls(scope: TenantScope, request: ReplayRequest, place: tuple[int, str] | None, *, with_input: bool) -> Iterator[PastCall]:
    while batch := past_calls(scope, (request.since, request.until), place, with_input=with_input):
        yield from batch
        place = (batch[-1].created_at, batch[-1].id)


def _count(found: Replayed, judged: Rejudged, limit: int) -> None:
    found.scanned += 1
    found.oldest_at = judged.call.created_at
    found.before[judged.before] += 1
    found.after[judged.after] += 1
    shown = replace(judged, call=replace(judged.call, input=None))  # so that what is listed takes no room
    if judged.outcome == "changed":
        found.changed.append(shown)
    elif judged.outcome == "undecidable":
        found.undecidable_count += 1
        if len(found.undecidable) < min(limit, 20):
            found.undecidable.append(shown)


# -- one call


@dataclass(frozen=True)
class _Open:
    """A rule of which is not known whether it holds, and why not."""

    hit: Hit
    unknown: str


class _Judges:
    """The policies without the draft and with it."""

    def __init__(self, without: Compiled, with_it: Compiled, draft: str) -> None:
        self._without, self._with, self._own = without, with_it, f"{draft}/"
        self.reads_input = without.reads_input or with_it.reads_input

    def rejudge(self, call: PastCall) -> Rejudged:
        facts = facts_of(call)
        record = _record(call, facts)
        sides = [_standing(policies, facts, record) for policies in (self._without, self._with)]
        opened = {key: each for side, (_, open_) in enumerate(sides) for each in open_ for key in [self._key(side, each)]}
        if len(opened) > MOST_OPEN:
            return Rejudged(call, "undecidable", "undecidable", "undecidable", (), _told(opened.values()))
        pairs = set()
        rules: dict[str, None] = {}
        for chosen in product((False, True), repeat=len(opened)):
            holding = {key for key, holds in zip(opened, chosen, strict=True) if holds}
            judged = [
                judge([*hits, *(each.hit for each in open_ if self._key(side, each) in holding)], facts)
                for side, (hits, open_) in enumerate(sides)
            ]
            pairs.add((judged[0].verdict, judged[1].verdict))
            rules |= dict.fromkeys(judged[1].rules or judged[0].rules)
        before, after = ({pair[side] for pair in pairs} for side in (0, 1))
        differing = sum(one != other for one, other in pairs)
        outcome: Outcome = "unchanged" if not differing else "changed" if differing == len(pairs) else "undecidable"
        return Rejudged(call, outcome, _only(before), _only(after), tuple(rules), _told(opened.values()))

    def _key(self, side: int, each: _Open) -> tuple[int, str]:
        """A rule that stands on both sides holds on both or on neither; those of the draft are others than those it replaces."""
        named = each.hit.rule.named
        return (side if named.startswith(self._own) else 2, named)


def _only(verdicts: set[Verdict]) -> Known:
    return next(iter(verdicts)) if len(verdicts) == 1 else "undecidable"


def _told(opened: Iterable[_Open]) -> tuple[str, ...]:
    return tuple(sorted({f"{each.hit.rule.named}: {each.unknown}" for each in opened}))


def facts_of(call: PastCall) -> Facts:
    """What is known of who made a call and what it was; records without a decision are older than agents."""
    told = call.decision or {}
    via = told.get("via", "process" if call.execution_id else "rest")
    skills = tuple(SkillUsed(str(name), str(digest)) for name, digest in told.get("skills", ()))
    subject = Subject(
        told.get("actor", call.actor),
        via,
        told.get("agent", ""),
        told.get("run", ""),
        skills,
        tuple(told.get("tainted_by", ())),
        told.get("credential", ""),
    )
    given = call.input if isinstance(call.input, Mapping) else {}
    hosts = ", ".join(call.hosts)
    return Facts(subject, ToolAction(TOOL, call.effect, given, call.integration, call.action, call.connector, hosts))


def _record(call: PastCall, facts: Facts) -> dict[str, Any]:
    record = record_of(facts)
    record["input"] = _unblotted(call.input) if call.input is not None else UNKNOWN
    record["action"]["credential"] = UNKNOWN
    if not call.hosts:
        record["action"]["host"] = UNKNOWN
    for skill in record["subject"]["skills"]:
        skill["is_trusted"] = UNKNOWN
    return record


def _unblotted(value: Any) -> Any:
    """The value with what was blotted out as UNKNOWN; a blot in a member's name makes its whole object that."""
    if isinstance(value, str):
        return UNKNOWN if BLOT in value else value
    if isinstance(value, list):
        return [_unblotted(item) for item in value]
    if isinstance(value, dict):
        return UNKNOWN if any(BLOT in name for name in value) else {name: _unblotted(item) for name, item in value.items()}
    return value


def _standing(policies: Compiled, facts: Facts, record: Mapping[str, Any]) -> tuple[list[Hit], list[_Open]]:
    """The enforced rules that hold, and those of which is not known whether they do."""
    hits: list[Hit] = []
    opened: list[_Open] = []
    for rule in policies.rules:
        if not rule.is_enforced:
            continue
        if rule.fault:
            hits.append(Hit(rule, rule.fault))
            continue
        unknown = _unknown(rule, facts)
        if unknown is None:
            continue
        fault = ""
        try:
            holds = True if rule.when is None else rule.when(record)
        except Incomparable as error:
            holds, fault = True, str(error)
        if holds is None:
            unknown = unknown or "what it looks at was not kept, or was blotted out"
        if holds is not False and unknown:
            opened.append(_Open(Hit(rule, fault), unknown))
        elif holds:
            hits.append(Hit(rule, fault))
    return hits, opened


def _unknown(rule: CompiledRule, facts: Facts) -> str | None:
    """Why the tests of a rule cannot be decided, empty when they hold, None when they do not."""
    unknown = ""
    trusting = Facts(_trusting(facts.subject), facts.action)
    for part in (*rule.on_action, *rule.on_subject):
        if part.name == "hosts" and not facts.action.host:
            unknown = "the host was not recorded"
        elif part.name == "subject.skills" and part.holds(facts) != part.holds(trusting):
            unknown = "who trusted the skills was not recorded"
        elif not part.holds(facts):
            return None
    return unknown


def _trusting(subject: Subject) -> Subject:
    return replace(subject, skills=tuple(replace(each, is_trusted=True) for each in subject.skills))
