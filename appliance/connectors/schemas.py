"""JSON Schema 2020-12 for settings and actions: every error at once, in linear time, without remote references."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from appliance.connectors.contract import Json
from appliance.core.errors import Detail

# Stand in for the schema's own mention in an error message, so that a secret value is never repeated in it.
_MASK = "the value"
# A pattern of a few characters may stand for a program of gigabytes, and nothing else runs while it is compiled.
MOST_PATTERN_BYTES = 1 << 20
MOST_PATTERNS = 200


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
    if _count_patterns(schema) > MOST_PATTERNS:
        raise SchemaInvalid(f"it has more than {MOST_PATTERNS} patterns; use fewer")
    try:
        return Schema(
            jsonschema_rs.Draft202012Validator(
                dict(schema),
                validate_formats=True,
                offline=True,
                mask=_MASK,
                pattern_options=jsonschema_rs.RegexOptions(size_limit=MOST_PATTERN_BYTES),
            )
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaInvalid(str(error).splitlines()[0]) from error


def _count_patterns(schema: Any) -> int:
    """How many patterns there may be in it, wherever they stand."""
    count, parts = 0, [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, Mapping):
            named = part.get("patternProperties")
            count += isinstance(part.get("pattern"), str) + (len(named) if isinstance(named, Mapping) else 0)
            parts.extend(part.values())
        elif isinstance(part, list | tuple):
            parts.extend(part)
    return count


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
