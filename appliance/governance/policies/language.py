"""The policy language: parses a policy into typed data and reports all of its errors at once."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from appliance import conditions
from appliance.conditions import AllOf, AnyOf, Compare, Condition, Inside, Placeholder
from appliance.connectors import to_nfc
from appliance.core import ids
from appliance.core.errors import ApplianceError, Detail, InvalidFilter, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.governance.approvals.human_requests import MAX_APPROVERS
from appliance.governance.policies.decision import Mode, Verdict
from appliance.governance.subjects import Credential, Kind, Via
from appliance.tenants import ROLES

MAX_RULES = 500
MAX_NAMES = 100
MAX_BYTES = 256 << 10
MAX_NAME = 300
MAX_STARS = 8
_SLUG = "^[a-z][a-z0-9]*(-[a-z0-9]+)*$"
_APPROVER = rf"^(role:({'|'.join(ROLES)})|user:.{{1,254}})$"

Glob = Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern=r"^[^\x00-\x20]+$")]
"""A name, or a pattern in which `*` matches any characters, including none; every other character matches itself."""
Globs = Annotated[list[Glob], Field(min_length=1, max_length=MAX_NAMES)]
Pointer = Annotated[str, Field(max_length=500, pattern="^(/([^~/]|~[01])*)+$")]
Approver = Annotated[str, Field(pattern=_APPROVER), AfterValidator(str.lower)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]

_TEXT, _FLAG = conditions.Field("text"), conditions.Field("plain")
_SKILL = {"name": _TEXT, "digest": _TEXT, "is_trusted": _FLAG}
_SUBJECT = {
    **dict.fromkeys(("actor", "kind", "credential", "service_account", "via", "agent", "run_id"), _TEXT),
    "tainted": _FLAG, "tainted_by": conditions.Field("text"), "skills": conditions.Field(inside=lambda: _SKILL),
}  # fmt: skip
_ACTION = dict.fromkeys(("tool", "effect", "integration", "operation", "connector", "host", "credential"), _TEXT)
_FACTS: Mapping[str, conditions.Field] = {
    "input": conditions.Field(inside=lambda: None),
    "subject": conditions.Field(inside=lambda: _SUBJECT),
    "action": conditions.Field(inside=lambda: _ACTION),
}


class _PolicyModel(BaseModel):
    """Base class: unknown members are refused, types are exact."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class SubjectTest(_PolicyModel):
    """The subjects a rule applies to; all members that are set must match.  `tainted`: only tainted, or only untainted runs."""

    kinds: Annotated[list[Kind], Field(min_length=1)] | None = None
    credentials: Annotated[
        list[Credential] | None,
        Field(min_length=1, description="The kind of the key: `agent` matches an agent key on every edge, including REST."),
    ] = None
    actors: Globs | None = None
    agents: Globs | None = None
    skills: Annotated[Globs, Field(description="Names or digests of the skills a run has loaded.")] | None = None
    via: Annotated[list[Via], Field(min_length=1)] | None = None
    tainted: bool | None = None


class RuleObligations(_PolicyModel):
    """Conditions attached to a permission; all are optional.  `approvers` and `needed` apply when an approval is requested."""

    approvers: Annotated[list[Approver], Field(min_length=1, max_length=MAX_APPROVERS)] | None = None
    needed: Annotated[int, Field(ge=1, le=10)] | None = None
    ttl_seconds: Annotated[int, Field(ge=60, le=90 * 86_400)] | None = None
    redact: Annotated[list[Pointer], Field(min_length=1, max_length=MAX_NAMES)] | None = None
    calls_per_hour: Count | None = None
    calls_per_run: Count | None = None
    cost_per_run: Annotated[float, Field(gt=0, le=1_000_000, strict=False, allow_inf_nan=False)] | None = None
    dry_run_first: bool | None = None

    @model_validator(mode="after")
    def _can_be_met(self) -> "RuleObligations":
        people = self.approvers or []
        if people and all(name.startswith("user:") for name in people) and len(set(people)) < (self.needed or 1):
            raise ValueError(f"{self.needed} people must approve but only {len(set(people))} are named; name more, or a role")
        return self


class Rule(_PolicyModel):
    """One rule: its `effect` on which actions of which subjects, and why."""

    id: Annotated[str, Field(pattern=_SLUG, max_length=63)]
    effect: Verdict
    subject: SubjectTest | None = None
    tools: Globs | None = None
    integrations: Globs | None = None
    operations: Globs | None = None
    effects: Annotated[list[Literal["read", "write"]], Field(min_length=1)] | None = None
    hosts: Globs | None = None
    when: Annotated[dict[str, Any], Field(description="A filter over {input, subject, action}.")] | None = None
    obligations: RuleObligations | None = None
    reason: Annotated[str, Field(min_length=1, max_length=500)]

    @model_validator(mode="after")
    def _deny_is_all(self) -> "Rule":
        if self.effect == "deny" and self.obligations is not None:
            raise ValueError("a rule that denies cannot have obligations; remove them, or use require_approval")
        return self


class Policy(_PolicyModel):
    """A named set of rules; with mode `observe`, they are evaluated and reported, but decide nothing."""

    name: Annotated[str, Field(pattern=_SLUG, max_length=63)]
    description: Annotated[str, Field(max_length=2000)] = ""
    mode: Mode
    rules: Annotated[list[Rule], Field(min_length=1, max_length=MAX_RULES)]

    def document(self) -> dict[str, Any]:
        """The policy as it is stored and written to a file, without empty members."""
        document = self.model_dump(exclude_none=True)
        return document if document["description"] else {name: value for name, value in document.items() if name != "description"}

    def digest(self) -> str:
        """`sha256:` of the policy's content, independent of its formatting."""
        text = json.dumps(self.document(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def parse_policy(document: Any, name: str) -> Policy:
    """Parse the policy `name` from a YAML or JSON document, whose own `name` may be omitted.

    ValidationFailed lists every error, each with a JSON pointer and what to do.
    """
    ids.check_slug(name, pointer="/name")
    if not isinstance(document, Mapping):
        raise ValidationFailed("a policy must be an object with mode and rules", pointer="")
    if (own := document.get("name", name)) != name:
        raise ValidationFailed(
            Sentence(
                "the policy's name is %(own)s instead of %(name)s; remove name, or make them equal",
                own=repr(str(own)[:60]), name=repr(name),
            ),
            pointer="/name",
        )
    _check_size(document)
    try:
        policy = Policy.model_validate({**document, "name": name})
    except ValidationError as error:
        raise _refusal(name, [_detail(problem) for problem in error.errors(include_url=False)]) from error
    if details := [*_duplicate_ids(policy), *_find_errors(policy)]:
        raise _refusal(name, details)
    return policy


def condition_of(rule: Rule, pointer: str = "") -> Condition | None:
    """The rule's parsed `when`; InvalidFilter."""
    return None if rule.when is None else conditions.parse(to_nfc(rule.when), _FACTS, pointer=f"{pointer}/when")


def policy_schema() -> dict[str, Any]:
    """JSON Schema of a policy file, in which `name` may be omitted."""
    schema = Policy.model_json_schema()
    schema["required"] = [name for name in schema["required"] if name != "name"]
    return {name: part for name, part in schema.items() if name != "title"}


def _check_size(document: Mapping[str, Any]) -> None:
    try:
        size = len(json.dumps(document, allow_nan=False).encode())
    except (ValueError, TypeError, RecursionError) as error:
        raise ValidationFailed(Sentence("the policy is not JSON: %(error)s", error=error), pointer="") from error
    if size > MAX_BYTES:
        raise ValidationFailed(
            Sentence("a policy may be at most %(max_bytes)s KiB; split it into two", max_bytes=MAX_BYTES >> 10), pointer=""
        )


def _refusal(name: str, details: list[Detail]) -> ApplianceError:
    more = Sentence(" (and %(details)s more, see details)", details=len(details) - 1) if len(details) > 1 else ""
    first = details[0]
    return ValidationFailed(
        Sentence(
            "the policy %(name)s is not valid, %(pointer)s: %(message)s%(more)s",
            name=name, pointer=first.pointer or "/", message=first.message, more=more,
        ),
        details=details,
    )


def _detail(problem: Any) -> Detail:
    pointer = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in problem["loc"])
    return Detail(pointer, "validation_failed", _describe_error(problem))


def _describe_error(problem: Any) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "missing":
        return "this member is required; add it"
    if kind == "extra_forbidden":
        return Sentence("unknown member; valid members are %(loc)s", loc=', '.join(_members_at(problem['loc'][:-1])))
    if kind == "too_short":
        return "an empty list matches nothing; omit the member to match anything"
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], "the value has an invalid format; see docs/policies.md")
    text = str(problem["msg"]).removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


_PATTERNS = {
    _SLUG: "use lower-case letters, digits and single hyphens, begin with a letter, at most 63 characters",
    _APPROVER: f"name role:{'|'.join(ROLES)} or user:<login>",
    r"^[^\x00-\x20]+$": "a name or pattern cannot contain spaces; remove them, or replace them with *",
    "^(/([^~/]|~[01])*)+$": "write a JSON pointer into the result, such as /customer/iban",
}


def _members_at(place: tuple[str | int, ...]) -> Iterator[str]:
    path = [part for part in place if isinstance(part, str)]
    parts: Mapping[tuple[str, ...], type[_PolicyModel]] = {
        (): Policy, ("rules",): Rule, ("rules", "subject"): SubjectTest, ("rules", "obligations"): RuleObligations,
    }  # fmt: skip
    yield from parts[tuple(path)].model_fields


def _duplicate_ids(policy: Policy) -> Iterator[Detail]:
    earlier: set[str] = set()
    for index, rule in enumerate(policy.rules):
        if rule.id in earlier:
            yield Detail(
                f"/rules/{index}/id",
                "validation_failed",
                Sentence("there are two rules with the id %(id)s; give each its own id", id=repr(rule.id)),
            )
        earlier.add(rule.id)


def _find_errors(policy: Policy) -> Iterator[Detail]:
    for index, rule in enumerate(policy.rules):
        here = f"/rules/{index}"
        for field in ("tools", "integrations", "operations", "hosts"):
            yield from _too_many_stars(getattr(rule, field), f"{here}/{field}")
        for field in ("actors", "agents", "skills"):
            yield from _too_many_stars(getattr(rule.subject, field) if rule.subject else None, f"{here}/subject/{field}")
        try:
            condition = condition_of(rule, here)
        except InvalidFilter as error:
            yield from error.details
            continue
        if condition is not None:
            yield from (Detail(f"{here}/when", "invalid_filter", message) for message in dict.fromkeys(_misuses(condition)))


def _too_many_stars(globs: list[str] | None, pointer: str) -> Iterator[Detail]:
    for index, glob in enumerate(globs or ()):
        if glob.count("*") > MAX_STARS:
            yield Detail(
                f"{pointer}/{index}",
                "validation_failed",
                Sentence("a pattern may contain at most %(max_stars)s stars; shorten it", max_stars=MAX_STARS),
            )


def _misuses(condition: Condition, *, top: bool = True) -> Iterator[str]:
    match condition:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _misuses(part, top=top)
        case Inside(_, _, inner):
            yield from _misuses(inner, top=False)
        case Compare(field, _, value):
            if top:
                yield f'{field} is an object; compare what is inside it, such as {{"input": {{"total": {{"_gt": 100}}}}}}'
            if any(isinstance(part, Placeholder) for part in (value if isinstance(value, tuple) else (value,))):
                yield "a policy cannot use $actor, $request and $now; compare subject and action, or write \\$ for a literal $"
