"""What may be asked of a person: the shape of a request, its limits, and whether an answer fits it."""

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
TITLE, REASON, COMMENT, CHOICE = 200, 4_000, 4_000, 200
MOST_CHOICES, MOST_APPROVERS = 50, 50
DETAILS_BYTES, SCHEMA_BYTES, ANSWER_BYTES = 64 << 10, 32 << 10, 64 << 10
DEPTH, DETAILS_DEPTH = 32, 12
LONGEST_MS = 90 * 86_400_000
FREE_TEXT: Mapping[str, Any] = {"type": "string", "minLength": 1}

MEMBERS = ("kind", "title", "reason", "details", "schema", "choices", "approvers", "expires")
# Step code writes these schemas, and 24 members that refer to one another twice take half a second to check against, doubling
# with every further one.
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


@dataclass(frozen=True)
class Origin:
    """Where a request comes from: the execution, the step in it, and the host call of that attempt."""

    execution_id: str
    process_id: str
    step: str
    path: str
    iteration: str = ""
    call: int = 0
    attempt: int = 1


# A request that belongs to no execution.
NOWHERE = Origin("", "", "", "")


@dataclass(frozen=True)
class HumanRequest:
    """What is asked of people; `expires_at` is in epoch milliseconds, None means never.

    `schema` is JSON Schema of the answer to an `input`, `choices` are the possible ones to a `choice`.  `approvers` are
    `role:<role>` (that role or a higher one) and `user:<login>`; when there are any, nobody else decides.
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


def parse_request(given: Any, origin: Origin, now: int) -> HumanRequest:
    """The request that step code or a `human` step gives; ValidationFailed points at what is wrong with it.

    `{kind, title, reason?, details?, schema?, choices?, approvers?, expires?}`; an `input` without a schema asks for text.
    """
    if not isinstance(given, Mapping):
        raise ValidationFailed("a request to a person is an object with kind and title", pointer="")
    if unknown := [name for name in given if name not in MEMBERS]:
        name = str(unknown[0])[:60]
        raise ValidationFailed(
            Sentence("a request to a person has no %(name)s; it has %(members)s", name=repr(name), members=", ".join(MEMBERS)),
            pointer=f"/{name}",
        )
    kind = given.get("kind")
    if kind not in KINDS:
        raise ValidationFailed(Sentence("kind is one of %(kinds)s", kinds=', '.join(KINDS)), pointer="/kind")
    for member, owner in (("schema", "input"), ("choices", "choice")):
        if given.get(member) is not None and kind != owner:
            raise ValidationFailed(
                Sentence("%(member)s belongs to kind %(owner)s, not to %(kind)s", member=member, owner=owner, kind=kind),
                pointer=f"/{member}",
            )
    return HumanRequest(
        kind=cast(Kind, kind),
        title=_title(given.get("title")),
        origin=origin,
        reason=_text(given.get("reason") or "", "/reason", REASON),
        details=_details(given.get("details")),
        schema=check_schema(given.get("schema")) if kind == "input" else None,
        choices=_choices(given.get("choices")) if kind == "choice" else (),
        approvers=_list(given.get("approvers") or [], "/approvers", MOST_APPROVERS, _approver),
        expires_at=_moment(given.get("expires"), now),
    )


def check_answer(request: HumanRequest, answer: Any, *, namespace: str = "") -> Any:
    """The answer as it is kept; ValidationFailed with pointers under `/answer` when the request does not allow it."""
    if request.kind == "approval":
        if answer is not None:
            raise ValidationFailed("an approval takes a comment, not an answer", pointer="/answer")
        return None
    if _size_of(answer, "/answer") > ANSWER_BYTES:
        raise ValidationFailed(
            Sentence("an answer has at most %(answer_bytes)s KB", answer_bytes=ANSWER_BYTES >> 10), pointer="/answer"
        )
    _check_depth(answer, "/answer")
    if request.kind == "choice":
        if answer not in request.choices:
            raise ValidationFailed(f"the answer is one of {', '.join(request.choices)}"[:500], pointer="/answer")
    elif problems := compile_schema(dict(request.schema or FREE_TEXT)).problems(answer, under="/answer", namespace=namespace):
        raise ValidationFailed("the answer does not fit what was asked", details=problems[:100])
    return answer


def check_comment(comment: str) -> str:
    """The comment as it is kept; ValidationFailed when it is too long."""
    return _text(comment.strip(), "/comment", COMMENT)


def _title(given: Any) -> str:
    title = _text(given, "/title", TITLE)
    if not title.strip() or not title.isprintable():
        raise ValidationFailed("title is one line of text that says what is asked", pointer="/title")
    return title.strip()


def _text(given: Any, pointer: str, most: int) -> str:
    """A text fit to be kept and shown: secrets redacted."""
    if not isinstance(given, str) or len(given) > most:
        raise ValidationFailed(
            Sentence("%(pointer)s is a text of at most %(most)s characters", pointer=pointer[1:], most=most), pointer=pointer
        )
    return storable_text(given, 8 * most)


def _details(given: Any) -> Any:
    if _size_of(given, "/details") > DETAILS_BYTES:
        raise ValidationFailed(
            Sentence(
                "details have at most %(details_bytes)s KB; name a document or an entity instead", details_bytes=DETAILS_BYTES >> 10
            ),
            pointer="/details",
        )
    _check_depth(given, "/details", DETAILS_DEPTH)
    # Redacting lengthens a text by less than half.
    return None if given is None else json.loads(storable_json({"details": given}, 2 * DETAILS_BYTES))["details"]


def check_schema(given: Any) -> Mapping[str, Any]:
    """The schema of an answer; ValidationFailed when it cannot be used."""
    if given is None:
        return FREE_TEXT
    if not isinstance(given, Mapping):
        raise ValidationFailed("schema is a JSON Schema, an object", pointer="/schema")
    if _size_of(given, "/schema") > SCHEMA_BYTES:
        raise ValidationFailed(
            Sentence("schema has at most %(schema_bytes)s KB", schema_bytes=SCHEMA_BYTES >> 10), pointer="/schema"
        )
    _check_depth(given, "/schema")
    _refuse_references(given)
    try:
        _check_usable(json.dumps(given, sort_keys=True))
    except SchemaInvalid as error:
        raise ValidationFailed(
            Sentence("schema is no JSON Schema that can be used: %(error)s", error=str(error)[:300]), pointer="/schema"
        ) from error
    return given


@lru_cache(maxsize=256)
def _check_usable(schema: str) -> None:
    """SchemaInvalid.  Kept, so that who has checked before a write does not compile inside it."""
    compile_schema(json.loads(schema))


def _refuse_references(part: Any) -> None:
    if isinstance(part, Mapping):
        for name in _REFERENCES:
            # A member of `properties` may bear such a name; a reference is a text.
            if isinstance(part.get(name), str):
                raise ValidationFailed(
                    Sentence("schema may not use %(name)s; write out what it refers to", name=name), pointer="/schema"
                )
        part = list(part.values())
    if isinstance(part, list | tuple):
        for item in part:
            _refuse_references(item)


def _choices(given: Any) -> Sequence[str]:
    def choice(text: str, pointer: str) -> str:
        if not text.strip() or not text.isprintable() or len(text) > CHOICE:
            raise ValidationFailed(
                Sentence("a choice is one line of at most %(choice)s characters", choice=CHOICE), pointer=pointer
            )
        return storable_text(text, 8 * CHOICE)

    found = _list(given, "/choices", MOST_CHOICES, choice)
    if not found or len(set(found)) != len(found):
        raise ValidationFailed("choices are at least one text, each once", pointer="/choices")
    return found


def _approver(text: str, pointer: str) -> str:
    kind, _, name = text.partition(":")
    if (kind == "role" and name in ROLES) or (kind == "user" and 1 <= len(name) <= 254 and name.isprintable()):
        return text.lower()
    raise ValidationFailed(
        Sentence("%(text)s is neither role:%(roles)s nor user:<login>", text=repr(text[:60]), roles="|".join(ROLES)),
        pointer=pointer,
    )


def _list(given: Any, pointer: str, most: int, each: Callable[[str, str], str]) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or len(given) > most or not all(isinstance(item, str) for item in given):
        raise ValidationFailed(
            Sentence("%(pointer)s is a list of at most %(most)s texts", pointer=pointer[1:], most=most), pointer=pointer
        )
    return tuple(each(item, f"{pointer}/{index}") for index, item in enumerate(given))


def _moment(given: Any, now: int) -> int | None:
    if given is None:
        return None
    if not isinstance(given, str):
        raise ValidationFailed("expires is a duration such as 48h", pointer="/expires")
    span = clock.parse_duration(given, pointer="/expires")
    if not 1_000 <= span <= LONGEST_MS:
        raise ValidationFailed("expires is between 1s and 90d", pointer="/expires")
    return now + span


def _size_of(value: Any, pointer: str) -> int:
    try:
        return len(db.dump_json(value).encode())
    except (ValueError, TypeError, RecursionError) as error:
        raise ValidationFailed(
            Sentence("%(pointer)s is not JSON: %(error)s", pointer=pointer[1:], error=error), pointer=pointer
        ) from error


def _check_depth(value: Any, pointer: str, most: int = DEPTH) -> None:
    level = [value]
    for _ in range(most):
        level = [
            item
            for part in level
            if isinstance(part, Mapping | list | tuple)
            for item in (part.values() if isinstance(part, Mapping) else part)
        ]
        if not level:
            return
    raise ValidationFailed(
        Sentence("%(pointer)s may be nested %(most)s levels deep", pointer=pointer[1:], most=most), pointer=pointer
    )
