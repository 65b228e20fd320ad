"""Turns a document's schemas into bounded, self-contained JSON Schemas; pure.

References are inlined.  A part that is recursive, too deep or too large becomes a schema that accepts any value, since the
foreign system validates the value anyway.
"""

from collections.abc import Mapping
from typing import Any

from gos_connector_openapi.document import Document

Schema = dict[str, Any]

_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_DEEPEST = 16
_MOST_MEMBERS = 400
_LONGEST_TEXT = 160
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_CHOICES = (("allOf", "allOf"), ("anyOf", "anyOf"), ("oneOf", "anyOf"))


class Shaper:
    """Inlines the references of schemas, each within a number of parts.

    With `for_input` the schema is for a caller's input: read-only members are left out, bounds and lists of values stay.
    Otherwise it is for a system's answers, which may contain undocumented values and members; unless `strict`, members may
    also be missing or null, which many documents do not declare.
    """

    def __init__(self, document: Document, *, for_input: bool, most_parts: int, strict: bool = True) -> None:
        self._document, self._for_input, self._most, self._strict = document, for_input, most_parts, strict
        self._left = 0

    def shape(self, schema: Any) -> Schema:
        """The self-contained schema."""
        self._left = self._most
        return self._shape(schema, (), sealed=True)

    def _shape(self, schema: Any, around: tuple[str, ...], *, sealed: bool) -> Schema:
        """`around` lists the enclosing references, "" for every other level; `sealed` means it may forbid further members."""
        self._left -= 1
        if not isinstance(schema, Mapping) or self._left < 0 or len(around) > _DEEPEST:
            return {"not": {}} if schema is False else {}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return {} if reference in around else self._shape(self._document.lookup(reference), (*around, reference), sealed=sealed)
        out: Schema = {}
        description = schema.get("description")
        if isinstance(description, str) and description.strip():
            out["description"] = " ".join(description.split())[:_LONGEST_TEXT]
        self._add_type(out, schema)
        self._add_object(out, schema, around, sealed)
        if "items" in schema:
            out["items"] = self._shape(schema["items"], (*around, ""), sealed=True)
        for name, becomes in _CHOICES:
            parts = schema.get(name)
            if isinstance(parts, list) and 0 < len(parts) <= _MOST_MEMBERS:
                inner = [self._shape(part, (*around, ""), sealed=sealed and becomes == "anyOf") for part in parts]
                out[becomes] = [*out.get(becomes, []), *inner] if becomes == "allOf" or becomes not in out else out[becomes]
        return nullable(out) if schema.get("nullable") is True or schema.get("x-nullable") is True else out

    def _add_type(self, out: Schema, schema: Mapping[str, Any]) -> None:
        kinds = schema.get("type")
        listed = kinds if isinstance(kinds, list) else [kinds]
        known = [kind for kind in listed if isinstance(kind, str) and kind in _TYPES]
        if known and len(known) == len(listed):
            out["type"] = known[0] if len(known) == 1 else list(dict.fromkeys(known))
        if not self._for_input:
            return
        if isinstance(schema.get("enum"), list) and 0 < len(schema["enum"]) <= _MOST_MEMBERS:
            out["enum"] = list(schema["enum"])
        if "const" in schema:
            out["const"] = schema["const"]
        for name in _BOUNDS:
            if _is_number(schema.get(name)) and (name != "multipleOf" or schema[name] > 0):
                out[name] = schema[name]
        for name in _COUNTS:
            if type(schema.get(name)) is int and schema[name] >= 0:
                out[name] = schema[name]

    def _add_object(self, out: Schema, schema: Mapping[str, Any], around: tuple[str, ...], sealed: bool) -> None:
        properties = schema.get("properties")
        members = properties if isinstance(properties, Mapping) else {}
        if len(members) > _MOST_MEMBERS:
            return
        hidden = {name for name, part in members.items() if self._is_hidden(part)}
        if members:
            out["properties"] = {
                str(name): self._member(part, (*around, "")) for name, part in members.items() if name not in hidden
            }
        required = schema.get("required")
        if isinstance(required, list) and self._strict:
            names = [name for name in required if isinstance(name, str) and name not in hidden]
            if names and len(names) <= _MOST_MEMBERS:
                out["required"] = list(dict.fromkeys(names))
        others = schema.get("additionalProperties")
        if isinstance(others, Mapping):
            out["additionalProperties"] = self._shape(others, (*around, ""), sealed=True)
        elif others is False and self._for_input and sealed and "patternProperties" not in schema:
            out["additionalProperties"] = False

    def _member(self, part: Any, around: tuple[str, ...]) -> Schema:
        shaped = self._shape(part, around, sealed=True)
        return shaped if self._strict else nullable(shaped)

    def _is_hidden(self, part: Any) -> bool:
        member = self._document.resolve(part)
        return isinstance(member, Mapping) and member.get("readOnly" if self._for_input else "writeOnly") is True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def nullable(schema: Schema) -> Schema:
    """The schema, extended to accept null."""
    if "enum" in schema and None not in schema["enum"]:
        schema = {**schema, "enum": [*schema["enum"], None]}
    kinds = schema.get("type")
    if kinds is not None:
        listed = kinds if isinstance(kinds, list) else [kinds]
        schema = {**schema, "type": list(dict.fromkeys([*listed, "null"]))}
    if any(name in schema for name in ("allOf", "anyOf", "const")):
        return {"anyOf": [schema, {"type": "null"}]}
    return schema
