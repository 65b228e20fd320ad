"""Compiles a JSON Schema 2020-12 and lists the problems of a value.

Limits of the library (`jsonschema_rs`), and how they are handled here:

- It holds the interpreter's lock while it compiles and validates, and cannot be interrupted.  So schemas are limited before
  they are compiled (`graph`, `costs`), and a value is checked in this thread only if the work is proven small (`values`).
- `iter_errors` builds every error before it returns the first: 15 µs and 2 KB each, more for the branches of an `anyOf`.
  So `is_valid`, which builds none, runs first, and errors are built here only if there cannot be many.
- A graph of references is traversed once per path to a part, so forty lines may take forever.
- An `enum` of objects, or of mixed types, is compared one by one.
- `unevaluatedProperties` repeats the checks of its neighbours for every member, and nested ones multiply.
- Native recursion is unbounded: a value nested a few thousand levels deep crashes the process.
- Error messages mask the value but quote the schema in full, so an error is as large as its `enum`.
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
from .messages import to_sentence
from .patterns import TooManyPatterns, costs_of
from .values import Work, as_json, exact_work, quick_work

# Replaces the value in the library's error messages, so that no secret is repeated in them.
_MASK = "the value"
_TOO_DEEP = Sentence("The value is nested too deeply, or holds something that JSON cannot.")
# A larger value goes to the worker without counting its members first.
_MAX_INLINE_BYTES = 1 << 18
_MAX_CACHED_BYTES = 1 << 16
_MAX_NAMED = 30


class SchemaInvalid(ValueError):
    """The schema is invalid, refers to something outside itself, or is too expensive."""


@dataclass(frozen=True)
class Schema:
    """A compiled JSON Schema.  `namespace` in its methods is the tenant that a long check counts for.

    Its methods may wait for a worker process, so never call them inside a write; Overloaded when no worker is free.
    """

    validator: "jsonschema_rs.Draft202012Validator"
    source: Mapping[str, Any]
    costs: Costs

    def problems(self, value: Any, *, under: str = "", namespace: str = "") -> list[Detail]:
        """The problems of `value`, with the keyword as code; pointers begin with `under`.

        All problems of a small value; of a large one at most a hundred, or the first with a note about the others; a single one
        with the code `too_costly` if the check ran out of time.
        """
        return [self._with_location(each, under) for each in self._problems(value, under, namespace)]

    def _problems(self, value: Any, under: str, namespace: str) -> list[Detail]:
        text = as_json(value)
        work = self._work_of(value, text)
        if not work.is_shallow or work.checks > MOST_CHECKS:
            return self._ask_worker(value, text, work, under, namespace)
        try:
            if self.validator.is_valid(value):
                return []
        except ValueError:  # a subclass of str, such as a Sentence, becomes a plain string only as JSON
            if text is None:
                raise
            return self._problems(from_json(text), under, namespace)
        if work.errors > MOST_ERRORS:
            work = self._looked_at(value, text, work)
            if work.errors > MOST_ERRORS:
                return self._ask_worker(value, text, work, under, namespace)
        return list_problems(self.validator, value, under)

    def first_problem(self, value: Any, *, namespace: str = "") -> Detail | None:
        """The first problem of `value`; None if it is valid."""
        return next(iter(self.problems(value, namespace=namespace)), None)

    def _work_of(self, value: Any, text: bytes | None) -> Work:
        if text is None:
            return exact_work(value, self.costs)
        work = quick_work(len(text), self.costs)
        return work if work.is_shallow and work.checks <= MOST_CHECKS else self._looked_at(value, text, work)

    def _looked_at(self, value: Any, text: bytes | None, work: Work) -> Work:
        """The work more exactly, if that does not take long itself."""
        return exact_work(value, self.costs) if text is None or len(text) <= _MAX_INLINE_BYTES else work

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

    def _with_location(self, detail: Detail, under: str) -> Detail:
        """Add the known members to a problem about an unknown one, if the schema lists only a few there."""
        if detail.code != "additionalProperties":
            return detail
        schema: Any = self.source
        for part in detail.pointer.removeprefix(under).split("/")[1:-1]:
            inner = schema.get("properties") if isinstance(schema, Mapping) else None
            name = part.replace("~1", "/").replace("~0", "~")
            schema = inner.get(name) if isinstance(inner, Mapping) and name in inner else _items(schema, part)
        known = sorted(schema.get("properties") or ()) if isinstance(schema, Mapping) else []
        if not 0 < len(known) <= _MAX_NAMED:
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
    """Compile a schema; SchemaInvalid if it is invalid, refers outside itself, or is too expensive."""
    try:
        source = dict(schema)
        document = read_document(source)  # first, because shared parts may be endless once written out
        text = as_json(source)
        if text is None or len(text) > _MAX_CACHED_BYTES:
            return _compile(source, document)
        return _compile_text(text)
    except (TooLarge, TooManyPatterns) as error:
        raise SchemaInvalid(str(error)) from error
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaInvalid(str(error).splitlines()[0]) from error


@lru_cache(maxsize=128)
def _compile_text(text: bytes) -> Schema:
    """Cached, because discovered and requested schemas are compiled at every call."""
    source = from_json(text)
    return _compile(source, read_document(source))


def _compile(source: dict[str, Any], document: Document) -> Schema:
    costs = estimate(Graph(source, document), costs_of(document.patterns))
    return Schema(make_validator(source), source, costs)


def make_validator(schema: dict[str, Any]) -> "jsonschema_rs.Draft202012Validator":
    """The library's validator of a schema that has passed `compile_schema`."""
    return jsonschema_rs.Draft202012Validator(
        schema, validate_formats=True, offline=True, mask=_MASK, pattern_options=jsonschema_rs.RegexOptions()
    )


def list_problems(validator: "jsonschema_rs.Draft202012Validator", value: Any, under: str = "") -> list[Detail]:
    """Every problem of an invalid value, at least one."""
    details = [detail for error in validator.iter_errors(value) for detail in _details(error, under)]
    return details or [Detail(under, "schema", "The value does not fit its schema.")]


def first_error(validator: "jsonschema_rs.Draft202012Validator", value: Any) -> list[Detail]:
    """The problems of the first error, without building the others; none if the value is valid."""
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return list(_details(error, ""))
    return []


def _details(error: "jsonschema_rs.ValidationError", under: str) -> list[Detail]:
    """The problems of one error: one per missing or unexpected member, whose pointer then names the member, otherwise one."""
    where = under + "".join(f"/{pointer_token(part)}" for part in error.instance_path)
    kind = error.kind
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        return [Detail(f"{where}/{pointer_token(kind.property)}", kind.name, "This member is required.")]
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties):
        return [Detail(f"{where}/{pointer_token(name)}", kind.name, "This member is not known here.") for name in kind.unexpected]
    message = error.message[:500]
    return [Detail(where, kind.name, to_sentence(kind.name, f"{message[:1].upper()}{message[1:]}."))]


def pointer_token(part: str | int) -> str:
    """One step of a JSON pointer (RFC 6901)."""
    return str(part).replace("~", "~0").replace("/", "~1")
