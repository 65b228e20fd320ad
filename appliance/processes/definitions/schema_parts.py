"""Building blocks of the JSON Schemas for editors."""

from typing import Any

JsonSchema = dict[str, Any]

TEXT: JsonSchema = {"type": "string", "pattern": r"\S"}
EXPRESSION: JsonSchema = {
    "type": "string",
    "pattern": r"^=\s*\S",
    "description": "An expression: JavaScript after the equals sign.",
}
DURATION: JsonSchema = {
    "type": "string",
    "pattern": r"^(\d{1,15}(ms|s|m|h|d)|P(\d+(\.\d+)?D)?(T(\d+(\.\d+)?H)?(\d+(\.\d+)?M)?(\d+(\.\d+)?S)?)?)$",
    "examples": ["500ms", "30s", "10m", "48h", "90d", "PT1H30M"],
}
ANY: JsonSchema = {"description": "Any value; texts that begin with = are expressions, {{ … }} in a text is filled in."}
SLUG: JsonSchema = {"type": "string", "pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$", "maxLength": 63}
NAME: JsonSchema = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,62}$"}
FLAG: JsonSchema = {"type": "boolean"}
STEPS: JsonSchema = {"$ref": "#/$defs/steps"}
INTERPOLATED: JsonSchema = {"type": "string", "pattern": r"^=|\{\{[\s\S]*\}\}", "description": "A text with an expression in it."}


def object_schema(properties: JsonSchema, required: tuple[str, ...] = (), **more: Any) -> JsonSchema:
    """An object with these members and no others; `more` are further keywords."""
    schema: JsonSchema = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": list(required)} if required else {}) | more


def list_of(items: JsonSchema, **more: Any) -> JsonSchema:
    return {"type": "array", "items": items, **more}


def one_of(*names: str) -> JsonSchema:
    """Exactly one of these members must be present."""
    return {"oneOf": [{"required": [name]} for name in names]}


def integer(low: int, high: int) -> JsonSchema:
    return {"type": "integer", "minimum": low, "maximum": high}


def or_expression(literal: JsonSchema) -> JsonSchema:
    """A literal of this form, or an expression that yields one at run time."""
    return {"anyOf": [EXPRESSION, literal]}


def or_interpolated(literal: JsonSchema) -> JsonSchema:
    """A literal of this form, or a text with an expression in it."""
    return {"anyOf": [INTERPOLATED, literal]}


def without(*names: str) -> JsonSchema:
    """None of these members may be present."""
    return {"not": {"anyOf": [{"required": [name]} for name in names]}}


def if_present(name: str, then: JsonSchema) -> JsonSchema:
    """`then` applies if the member is present."""
    return {"if": {"required": [name]}, "then": then}


def optional(part: JsonSchema) -> JsonSchema:
    """This, or null, which means the same as absent."""
    if isinstance(part.get("type"), str) and "enum" not in part:
        return {**part, "type": [part["type"], "null"]}
    return {"anyOf": [part, {"type": "null"}]}
