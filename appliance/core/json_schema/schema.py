"""A compiled JSON Schema 2020-12, and what is wrong with a value.

What the library (`jsonschema_rs`) cannot do, and what is done about it here:

- It holds the interpreter's lock while it compiles and validates, and cannot be interrupted.  So schemas are bounded before
  they are compiled (`graph`, `costs`), and a value is checked in this thread only where the work is proven small (`values`).
- `iter_errors` builds every error before it answers the first: 15 µs and 2 KB for each, more for the branches of an `anyOf`.
  So `is_valid` is asked first, which builds none, and errors are built here only where there cannot be many.
- A graph of references is walked through once for each way that leads to a part, so forty lines may take for ever.
- An `enum` of objects, or of several types, is compared one after the other.
- `unevaluatedProperties` judges what stands beside it again for every member, and nested ones multiply.
- Native recursion is not bounded: a value nested some thousand levels deep ends the process.
- What it prints of a value is masked; of a schema it prints everything, so an error is as large as its `enum`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import jsonschema_rs
from pydantic_core import from_json, to_json

from appliance.core.errors import Detail
from appliance.core.sentences import Sentence

from .checking import (
    MOST_CHECKS,
    MOST_ERRORS,
    MOST_LISTABLE,
    SMALL_BYTES,
    OutOfBounds,
    Question,
    current_worker,
    details_of,
    too_costly,
)
from .costs import Costs, estimate
from .graph import Document, Graph, TooLarge, read_document
from .patterns import TooManyPatterns, costs_of
from .values import Work, as_json, exact_work, quick_work

# Stand in for the schema's own mention in an error message, so that a secret value is never repeated in it.
_MASK = "the value"
_TOO_DEEP = "The value is nested too deeply, or holds something that JSON cannot."
# A value that makes more bytes than this is not looked at member by member before it goes to the worker.
_MOST_LOOKED_AT = 1 << 18
_MOST_KEPT_BYTES = 1 << 16
_MOST_NAMED = 30


class SchemaInvalid(ValueError):
    """The schema itself is wrong, refers to something outside itself, or costs too much."""


@dataclass(frozen=True)
class Schema:
    """A compiled JSON Schema.  `namespace` in its methods is the tenant that a long check counts for.

    Its methods may wait for a worker process, so never call them inside a write; Overloaded when that has no time.
    """

    validator: "jsonschema_rs.Draft202012Validator"
    source: Mapping[str, Any]
    costs: Costs

    def problems(self, value: Any, *, under: str = "", namespace: str = "") -> list[Detail]:
        """Ways in which `value` breaks the schema, named by keyword; pointers begin with `under`.

        Every way when the value is small.  Of a large one at most a hundred, or the first with a word about the others; one
        with the code `too_costly` when it could not be found out in time.
        """
        return [self._named(each, under) for each in self._problems(value, under, namespace)]

    def _problems(self, value: Any, under: str, namespace: str) -> list[Detail]:
        text = as_json(value)
        work = self._work_of(value, text)
        if not work.is_shallow or work.checks > MOST_CHECKS:
            return self._ask_worker(value, text, work, under, namespace)
        try:
            if self.validator.is_valid(value):
                return []
        except ValueError:  # a class of its own, such as a Sentence, is a text in JSON only
            if text is None:
                raise
            return self._problems(from_json(text), under, namespace)
        if work.errors > MOST_ERRORS:
            work = self._looked_at(value, text, work)
            if work.errors > MOST_ERRORS:
                return self._ask_worker(value, text, work, under, namespace)
        return list_problems(self.validator, value, under)

    def first_problem(self, value: Any, *, namespace: str = "") -> Detail | None:
        """The first way in which `value` breaks the schema; None when it does not."""
        return next(iter(self.problems(value, namespace=namespace)), None)

    def _work_of(self, value: Any, text: bytes | None) -> Work:
        if text is None:
            return exact_work(value, self.costs)
        work = quick_work(len(text), self.costs)
        return work if work.is_shallow and work.checks <= MOST_CHECKS else self._looked_at(value, text, work)

    def _looked_at(self, value: Any, text: bytes | None, work: Work) -> Work:
        """The work more exactly, where looking closer does not take long itself."""
        return exact_work(value, self.costs) if text is None or len(text) <= _MOST_LOOKED_AT else work

    def _ask_worker(self, value: Any, text: bytes | None, work: Work, under: str, namespace: str) -> list[Detail]:
        worker = current_worker()
        if text is None:
            return [Detail(under, "too_costly", _TOO_DEEP)]
        if worker is None:
            return [] if self.validator.is_valid(value) else list_problems(self.validator, value, under)
        lists = work.errors <= MOST_LISTABLE or len(text) <= SMALL_BYTES
        try:
            return details_of(worker.check(Question(self._text, text, namespace, lists)), under)
        except OutOfBounds as reason:
            return [too_costly(reason, under)]

    def _named(self, detail: Detail, under: str) -> Detail:
        """An unknown member with the members that are known in its place, where the schema lists a few of them there."""
        if detail.code != "additionalProperties":
            return detail
        schema: Any = self.source
        for part in detail.pointer.removeprefix(under).split("/")[1:-1]:
            inner = schema.get("properties") if isinstance(schema, Mapping) else None
            name = part.replace("~1", "/").replace("~0", "~")
            schema = inner.get(name) if isinstance(inner, Mapping) and name in inner else _items(schema, part)
        known = sorted(schema.get("properties") or ()) if isinstance(schema, Mapping) else []
        if not 0 < len(known) <= _MOST_NAMED:
            return detail
        return Detail(
            detail.pointer, detail.code, Sentence("This member is not known here; known are %(known)s.", known=", ".join(known))
        )

    @cached_property
    def _text(self) -> bytes:
        return to_json(self.source)


def _items(schema: Any, part: str) -> Any:
    return schema.get("items") if isinstance(schema, Mapping) and part.isdigit() else None


def compile_schema(schema: Mapping[str, Any]) -> Schema:
    """The schema, ready to validate; SchemaInvalid when it is none, refers elsewhere, or costs too much."""
    try:
        source = dict(schema)
        document = read_document(source)  # first: parts that are shared may be without end when they are written out
        text = as_json(source)
        if text is None or len(text) > _MOST_KEPT_BYTES:
            return _compile(source, document)
        return _compile_text(text)
    except (TooLarge, TooManyPatterns) as error:
        raise SchemaInvalid(str(error)) from error
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaInvalid(str(error).splitlines()[0]) from error


@lru_cache(maxsize=128)
def _compile_text(text: bytes) -> Schema:
    """Kept: schemas that were discovered or asked for are compiled at every call."""
    source = from_json(text)
    return _compile(source, read_document(source))


def _compile(source: dict[str, Any], document: Document) -> Schema:
    costs = estimate(Graph(source, document), costs_of(document.patterns))
    return Schema(make_validator(source), source, costs)


def make_validator(schema: dict[str, Any]) -> "jsonschema_rs.Draft202012Validator":
    """The library's own, of a schema that has passed `compile_schema`."""
    return jsonschema_rs.Draft202012Validator(
        schema, validate_formats=True, offline=True, mask=_MASK, pattern_options=jsonschema_rs.RegexOptions()
    )


def list_problems(validator: "jsonschema_rs.Draft202012Validator", value: Any, under: str = "") -> list[Detail]:
    """Every problem; there is at least one in a value that is not valid."""
    details = [detail for error in validator.iter_errors(value) for detail in _details(error, under)]
    return details or [Detail(under, "schema", "The value does not fit its schema.")]


def first_error(validator: "jsonschema_rs.Draft202012Validator", value: Any) -> list[Detail]:
    """The problems of the first error that is met, without building the others; none when the value is valid."""
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return list(_details(error, ""))
    return []


def _details(error: "jsonschema_rs.ValidationError", under: str) -> list[Detail]:
    """One finding, or one per member where members are missing or unexpected: the pointer then names the member."""
    where = under + "".join(f"/{pointer_token(part)}" for part in error.instance_path)
    kind = error.kind
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        return [Detail(f"{where}/{pointer_token(kind.property)}", kind.name, "This member is required.")]
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties):
        return [Detail(f"{where}/{pointer_token(name)}", kind.name, "This member is not known here.") for name in kind.unexpected]
    message = error.message[:500]
    return [Detail(where, kind.name, Sentence("%(message)s%(message2)s.", message=message[:1].upper(), message2=message[1:]))]


def pointer_token(part: str | int) -> str:
    """One step of a JSON pointer (RFC 6901)."""
    return str(part).replace("~", "~0").replace("/", "~1")
