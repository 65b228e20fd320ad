"""The format of a request to people, its limits, and the validation of answers."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ValidationFailed
from appliance.core.json_schema import SchemaInvalid, compile_schema
from appliance.core.sentences import Sentence
from appliance.monitor import storable_json, storable_text
from appliance.tenants import ROLES

Kind = Literal["approval", "input", "choice"]
KINDS: tuple[Kind, ...] = ("approval", "input", "choice")
MAX_TITLE, MAX_REASON, MAX_COMMENT, MAX_CHOICE = 200, 4_000, 4_000, 200
MAX_CHOICES, MAX_APPROVERS = 50, 50
DETAILS_BYTES, SCHEMA_BYTES, ANSWER_BYTES = 64 << 10, 32 << 10, 64 << 10
DEPTH, DETAILS_DEPTH = 32, 12
MAX_TTL_MS = 90 * 86_400_000
FREE_TEXT: Mapping[str, Any] = {"type": "string", "minLength": 1}

MEMBERS = ("kind", "title", "reason", "details", "schema", "choices", "approvers", "expires")
# Step code writes these schemas: 24 members that each refer to the next one twice take half a second to evaluate, and every
# further one doubles that.
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


@dataclass(frozen=True)
class Origin:
    """Where a request comes from: the execution, its step, and the host call of that attempt."""

    execution_id: str
    process_id: str
    step: str
    path: str
    iteration: str = ""
    call: int = 0
    attempt: int = 1


# A request that belongs to no execution.
NO_ORIGIN = Origin("", "", "", "")


@dataclass(frozen=True)
class HumanRequest:
    """A request to people; `expires_at` is in epoch milliseconds, None means never.

    `schema` is the JSON Schema of the answer to an `input`, `choices` are the allowed answers to a `choice`.  `approvers` are
    `role:<role>` (that role or a higher one) and `user:<login>`; if there are any, only they may decide.
    """

    kind: Kind
    title: str
    origin: Origin
    reason: str = ""
    details: Any = None
    schema: Mapping[str, Any] | None = None
    choices: Sequence[str] = ()
    approvers: Sequence[str] = ()
    expires_at: int | None = None


def parse_request(raw: Any, origin: Origin, now: int) -> HumanRequest:
    """Parse a request of step code or a `human` step; ValidationFailed points at the error.

    `{kind, title, reason?, details?, schema?, choices?, approvers?, expires?}`; an `input` without a schema asks for text.
    """
    if not isinstance(raw, Mapping):
        raise ValidationFailed("a request to a person must be an object with kind and title", pointer="")
    if unknown := [name for name in raw if name not in MEMBERS]:
        name = str(unknown[0])[:60]
        raise ValidationFailed(
            Sentence(
                "a request to a person has no member %(name)s; its members are %(members)s",
                name=repr(name), members=", ".join(MEMBERS),
            ),
            pointer=f"/{name}",
        )
    kind = raw.get("kind")
    if kind not in KINDS:
        raise ValidationFailed(Sentence("kind must be one of %(kinds)s", kinds=', '.join(KINDS)), pointer="/kind")
    for member, owner in (("schema", "input"), ("choices", "choice")):
        if raw.get(member) is not None and kind != owner:
            raise ValidationFailed(
                Sentence("%(member)s belongs to kind %(owner)s, not to %(kind)s", member=member, owner=owner, kind=kind),
                pointer=f"/{member}",
            )
    return HumanRequest(
        kind=cast(Kind, kind),
        title=_parse_title(raw.get("title")),
        origin=origin,
        reason=_parse_text(raw.get("reason") or "", "/reason", MAX_REASON),
        details=_parse_details(raw.get("details")),
        schema=check_schema(raw.get("schema")) if kind == "input" else None,
        choices=_parse_choices(raw.get("choices")) if kind == "choice" else (),
        approvers=_parse_list(raw.get("approvers") or [], "/approvers", MAX_APPROVERS, _parse_approver),
        expires_at=_parse_expiry(raw.get("expires"), now),
    )


def check_answer(request: HumanRequest, answer: Any, *, namespace: str = "") -> Any:
    """The answer to store; ValidationFailed with pointers under `/answer` if the request does not allow it."""
    if request.kind == "approval":
        if answer is not None:
            raise ValidationFailed("an approval takes a comment, not an answer", pointer="/answer")
        return None
    if _size_of(answer, "/answer") > ANSWER_BYTES:
        raise ValidationFailed(
            Sentence("an answer may be at most %(answer_bytes)s KB", answer_bytes=ANSWER_BYTES >> 10), pointer="/answer"
        )
    _check_depth(answer, "/answer")
    if request.kind == "choice":
        if answer not in request.choices:
            choices = ", ".join(request.choices)[:450]
            raise ValidationFailed(Sentence("the answer must be one of %(choices)s", choices=choices), pointer="/answer")
    elif problems := compile_schema(dict(request.schema or FREE_TEXT)).problems(answer, under="/answer", namespace=namespace):
        raise ValidationFailed("the answer does not match the requested format", details=problems[:100])
    return answer


def check_comment(comment: str) -> str:
    """The comment to store; ValidationFailed if it is too long."""
    return _parse_text(comment.strip(), "/comment", MAX_COMMENT)


def _parse_title(raw: Any) -> str:
    title = _parse_text(raw, "/title", MAX_TITLE)
    if not title.strip() or not title.isprintable():
        raise ValidationFailed("title must be one line of text that says what the request is about", pointer="/title")
    return title.strip()


def _parse_text(raw: Any, pointer: str, max_length: int) -> str:
    """A text that is safe to store and show: secrets are redacted."""
    if not isinstance(raw, str) or len(raw) > max_length:
        raise ValidationFailed(
            Sentence("%(pointer)s must be a text of at most %(most)s characters", pointer=pointer[1:], most=max_length),
            pointer=pointer,
        )
    return storable_text(raw, 8 * max_length)


def _parse_details(raw: Any) -> Any:
    if _size_of(raw, "/details") > DETAILS_BYTES:
        raise ValidationFailed(
            Sentence(
                "details may be at most %(details_bytes)s KB; refer to a document or an entity instead",
                details_bytes=DETAILS_BYTES >> 10,
            ),
            pointer="/details",
        )
    _check_depth(raw, "/details", DETAILS_DEPTH)
    # Redaction lengthens a text by less than half.
    return None if raw is None else json.loads(storable_json({"details": raw}, 2 * DETAILS_BYTES))["details"]


def check_schema(raw: Any) -> Mapping[str, Any]:
    """The schema of an answer; ValidationFailed if it cannot be used."""
    if raw is None:
        return FREE_TEXT
    if not isinstance(raw, Mapping):
        raise ValidationFailed("schema must be a JSON Schema object", pointer="/schema")
    if _size_of(raw, "/schema") > SCHEMA_BYTES:
        raise ValidationFailed(
            Sentence("schema may be at most %(schema_bytes)s KB", schema_bytes=SCHEMA_BYTES >> 10), pointer="/schema"
        )
    _check_depth(raw, "/schema")
    _refuse_references(raw)
    try:
        _check_usable(json.dumps(raw, sort_keys=True))
    except SchemaInvalid as error:
        raise ValidationFailed(
            Sentence("schema is not a usable JSON Schema: %(error)s", error=str(error)[:300]), pointer="/schema"
        ) from error
    return raw


@lru_cache(maxsize=256)
def _check_usable(schema: str) -> None:
    """SchemaInvalid.  Cached, so that a schema validated before a write is not compiled again inside it."""
    compile_schema(json.loads(schema))


def _refuse_references(part: Any) -> None:
    if isinstance(part, Mapping):
        for name in _REFERENCES:
            # A member of `properties` may have such a name; only a string value makes it a reference.
            if isinstance(part.get(name), str):
                raise ValidationFailed(
                    Sentence("schema may not use %(name)s; write out the schema it refers to", name=name), pointer="/schema"
                )
        part = list(part.values())
    if isinstance(part, list | tuple):
        for item in part:
            _refuse_references(item)


def _parse_choices(raw: Any) -> Sequence[str]:
    def parse_choice(text: str, pointer: str) -> str:
        if not text.strip() or not text.isprintable() or len(text) > MAX_CHOICE:
            raise ValidationFailed(
                Sentence("a choice must be one line of at most %(choice)s characters", choice=MAX_CHOICE), pointer=pointer
            )
        return storable_text(text, 8 * MAX_CHOICE)

    choices = _parse_list(raw, "/choices", MAX_CHOICES, parse_choice)
    if not choices or len(set(choices)) != len(choices):
        raise ValidationFailed("choices must be a list of one or more texts without duplicates", pointer="/choices")
    return choices


def _parse_approver(text: str, pointer: str) -> str:
    kind, _, name = text.partition(":")
    if (kind == "role" and name in ROLES) or (kind == "user" and 1 <= len(name) <= 254 and name.isprintable()):
        return text.lower()
    raise ValidationFailed(
        Sentence("%(text)s is neither role:%(roles)s nor user:<login>", text=repr(text[:60]), roles="|".join(ROLES)),
        pointer=pointer,
    )


def _parse_list(raw: Any, pointer: str, max_items: int, parse_item: Callable[[str, str], str]) -> tuple[str, ...]:
    if not isinstance(raw, list | tuple) or len(raw) > max_items or not all(isinstance(item, str) for item in raw):
        raise ValidationFailed(
            Sentence("%(pointer)s must be a list of at most %(most)s texts", pointer=pointer[1:], most=max_items), pointer=pointer
        )
    return tuple(parse_item(item, f"{pointer}/{index}") for index, item in enumerate(raw))


def _parse_expiry(raw: Any, now: int) -> int | None:
    if raw is None:
        return None
    if not isinstance(raw, str):
        raise ValidationFailed("expires must be a duration such as 48h", pointer="/expires")
    span = clock.parse_duration(raw, pointer="/expires")
    if not 1_000 <= span <= MAX_TTL_MS:
        raise ValidationFailed("expires must be between 1s and 90d", pointer="/expires")
    return now + span


def _size_of(value: Any, pointer: str) -> int:
    try:
        return len(db.dump_json(value).encode())
    except (ValueError, TypeError, RecursionError) as error:
        raise ValidationFailed(
            Sentence("%(pointer)s is not JSON: %(error)s", pointer=pointer[1:], error=error), pointer=pointer
        ) from error


def _check_depth(value: Any, pointer: str, max_depth: int = DEPTH) -> None:
    level = [value]
    for _ in range(max_depth):
        level = [
            item
            for part in level
            if isinstance(part, Mapping | list | tuple)
            for item in (part.values() if isinstance(part, Mapping) else part)
        ]
        if not level:
            return
    raise ValidationFailed(
        Sentence("%(pointer)s may be nested at most %(most)s levels deep", pointer=pointer[1:], most=max_depth), pointer=pointer
    )
