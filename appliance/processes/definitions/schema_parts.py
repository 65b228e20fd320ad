"""Building blocks of the JSON Schemas for editors."""

from typing import Any

Shape = dict[str, Any]

TEXT: Shape = {"type": "string", "pattern": r"\S"}
EXPRESSION: Shape = {"type": "string", "pattern": r"^=\s*\S", "description": "An expression: JavaScript after the equals sign."}
DURATION: Shape = {
    "type": "string",
    "pattern": r"^(\d{1,15}(ms|s|m|h|d)|P(\d+(\.\d+)?D)?(T(\d+(\.\d+)?H)?(\d+(\.\d+)?M)?(\d+(\.\d+)?S)?)?)$",
    "examples": ["500ms", "30s", "10m", "48h", "90d", "PT1H30M"],
}
ANY: Shape = {"description": "Any value; texts that begin with = are expressions, {{ … }} in a text is filled in."}
SLUG: Shape = {"type": "string", "pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$", "maxLength": 63}
NAME: Shape = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,62}$"}
FLAG: Shape = {"type": "boolean"}
STEPS: Shape = {"$ref": "#/$defs/steps"}
FILLED: Shape = {"type": "string", "pattern": r"^=|\{\{[\s\S]*\}\}", "description": "A text with an expression in it."}


def shape(properties: Shape, required: tuple[str, ...] = (), **more: Any) -> Shape:
    """An object with these members and no others; `more` are further keywords."""
    schema: Shape = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": list(required)} if required else {}) | more


def listed(items: Shape, **more: Any) -> Shape:
    return {"type": "array", "items": items, **more}


def one_of(*names: str) -> Shape:
    """Exactly one of these members must be present."""
    return {"oneOf": [{"required": [name]} for name in names]}


def whole(low: int, high: int) -> Shape:
    return {"type": "integer", "minimum": low, "maximum": high}


def or_expression(literal: Shape) -> Shape:
    """A literal of this form, or an expression that yields one at run time."""
    return {"anyOf": [EXPRESSION, literal]}


def or_filled(literal: Shape) -> Shape:
    """A literal of this form, or a text with an expression in it."""
    return {"anyOf": [FILLED, literal]}


def excluding(*names: str) -> Shape:
    """None of these members may be present."""
    return {"not": {"anyOf": [{"required": [name]} for name in names]}}


def when_there(name: str, then: Shape) -> Shape:
    """`then` applies if the member is present."""
    return {"if": {"required": [name]}, "then": then}


def optional(part: Shape) -> Shape:
    """This, or null, which means the same as absent."""
    if isinstance(part.get("type"), str) and "enum" not in part:
        return {**part, "type": [part["type"], "null"]}
    return {"anyOf": [part, {"type": "null"}]}
