"""JSON Schema 2020-12 for settings and actions: every error at once, in linear time, without remote references."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from appliance.connectors.contract import Json
from appliance.core.errors import Detail

# Stand in for the schema's own mention in an error message, so that a secret value is never repeated in it.
_MASK = "the value"
# A pattern of a few characters may stand for megabytes of program (the library refuses more than 10 MiB), and nothing else
# runs while it is compiled: 60 ms for the largest.  Names in any script are that large, so a few may be.
MOST_PATTERNS, MOST_LARGE_PATTERNS = 200, 10
_LARGE = jsonschema_rs.RegexOptions(size_limit=1 << 20)


class SchemaInvalid(ValueError):
    """The schema itself is wrong, or refers to something outside itself."""


@dataclass(frozen=True)
class Schema:
    """A compiled JSON Schema."""

    validator: "jsonschema_rs.Draft202012Validator"

    def problems(self, value: Any, *, under: str = "") -> list[Detail]:
        """Every way in which `value` breaks the schema, named by keyword; pointers begin with `under`."""
        return [detail for error in self.validator.iter_errors(value) for detail in _details(error, under)]

    def first_problem(self, value: Any) -> Detail | None:
        """The first way in which `value` breaks the schema; None when it does not."""
        if self.validator.is_valid(value):
            return None
        return next(iter(detail for error in self.validator.iter_errors(value) for detail in _details(error, "")), None)


def compile_schema(schema: Json) -> Schema:
    """The schema, ready to judge; SchemaInvalid when it is none, refers elsewhere or has patterns that cannot be used."""
    _refuse_costly_patterns(schema)
    try:
        return Schema(
            jsonschema_rs.Draft202012Validator(
                dict(schema),
                validate_formats=True,
                offline=True,
                mask=_MASK,
                pattern_options=jsonschema_rs.RegexOptions(),
            )
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaInvalid(str(error).splitlines()[0]) from error


def _refuse_costly_patterns(schema: Any) -> None:
    patterns = _patterns_in(schema)
    if len(patterns) > MOST_PATTERNS:
        raise SchemaInvalid(f"it has more than {MOST_PATTERNS} patterns; use fewer")
    large = 0
    for pattern in patterns:
        large += _is_large(pattern)
        if large > MOST_LARGE_PATTERNS:
            raise SchemaInvalid(f"more than {MOST_LARGE_PATTERNS} of its patterns are very large; repeat less in them")


def _patterns_in(schema: Any) -> set[str]:
    """Every pattern there may be in it, wherever it stands."""
    found: set[str] = set()
    parts = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, Mapping):
            named = part.get("patternProperties")
            candidates = [part.get("pattern"), *(named if isinstance(named, Mapping) else ())]
            found.update(each for each in candidates if isinstance(each, str))
            parts.extend(part.values())
        elif isinstance(part, list | tuple):
            parts.extend(part)
    return found


def _is_large(pattern: str) -> bool:
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=_LARGE)
    except (jsonschema_rs.ValidationError, ValueError):
        return True
    return False


def _details(error: "jsonschema_rs.ValidationError", under: str) -> list[Detail]:
    """One finding, or one per member where members are missing or unexpected: the pointer then names the member."""
    where = under + "".join(f"/{pointer_token(part)}" for part in error.instance_path)
    kind = error.kind
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        return [Detail(f"{where}/{pointer_token(kind.property)}", kind.name, "This member is required.")]
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties):
        return [Detail(f"{where}/{pointer_token(name)}", kind.name, "This member is not known here.") for name in kind.unexpected]
    message = error.message[:500]
    return [Detail(where, kind.name, f"{message[:1].upper()}{message[1:]}.")]


def pointer_token(part: str | int) -> str:
    """One step of a JSON pointer (RFC 6901)."""
    return str(part).replace("~", "~0").replace("/", "~1")
