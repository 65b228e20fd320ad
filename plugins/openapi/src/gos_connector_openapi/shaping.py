"""Turns a document's schemas into bounded, self-contained JSON Schemas; pure.

References are inlined.  A part that is recursive, too deep or too large becomes a schema that accepts any value, since the
foreign system validates the value anyway.
"""

from collections.abc import Mapping
from typing import Any

from gos_connector_openapi.document import Document

Schema = dict[str, Any]

_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_MAX_DEPTH = 16
_MAX_MEMBERS = 400
_MAX_TEXT_LENGTH = 160
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_CHOICES = (("allOf", "allOf"), ("anyOf", "anyOf"), ("oneOf", "anyOf"))


class Shaper:
    """Inlines the references of schemas, each within a number of parts.

    With `for_input` the schema is for a caller's input: read-only members are left out, bounds and lists of values stay.
    Otherwise it is for a system's answers, which may contain undocumented values and members; unless `strict`, members may
    also be missing or null, which many documents do not declare.
    """

    def __init__(self, document: Document, *, for_input: bool, max_parts: int, strict: bool = True) -> None:
        self._document, self._for_input, self._max_parts, self._strict = document, for_input, max_parts, strict
        self._parts_left = 0

    def shape(self, schema: Any) -> Schema:
        """The self-contained schema."""
        self._parts_left = self._max_parts
        return self._shape(schema, (), sealed=True)

    def _shape(self, schema: Any, enclosing: tuple[str, ...], *, sealed: bool) -> Schema:
        """`around` lists the enclosing references, "" for every other level; `sealed` means it may forbid further members."""
        self._parts_left -= 1
        if not isinstance(schema, Mapping) or self._parts_left < 0 or len(enclosing) > _MAX_DEPTH:
            return {"not": {}} if schema is False else {}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in enclosing:
                return {}
            return self._shape(self._document.lookup(reference), (*enclosing, reference), sealed=sealed)
        out: Schema = {}
        description = schema.get("description")
        if isinstance(description, str) and description.strip():
            out["description"] = " ".join(description.split())[:_MAX_TEXT_LENGTH]
        self._add_type(out, schema)
        self._add_object(out, schema, enclosing, sealed)
        if "items" in schema:
            out["items"] = self._shape(schema["items"], (*enclosing, ""), sealed=True)
        for name, becomes in _CHOICES:
            parts = schema.get(name)
            if isinstance(parts, list) and 0 < len(parts) <= _MAX_MEMBERS:
                inner = [self._shape(part, (*enclosing, ""), sealed=sealed and becomes == "anyOf") for part in parts]
                out[becomes] = [*out.get(becomes, []), *inner] if becomes == "allOf" or becomes not in out else out[becomes]
        return nullable(out) if schema.get("nullable") is True or schema.get("x-nullable") is True else out

    def _add_type(self, out: Schema, schema: Mapping[str, Any]) -> None:
        kinds = schema.get("type")
        listed = kinds if isinstance(kinds, list) else [kinds]
        valid = [kind for kind in listed if isinstance(kind, str) and kind in _TYPES]
        if valid and len(valid) == len(listed):
            out["type"] = valid[0] if len(valid) == 1 else list(dict.fromkeys(valid))
        if not self._for_input:
            return
        if isinstance(schema.get("enum"), list) and 0 < len(schema["enum"]) <= _MAX_MEMBERS:
            out["enum"] = list(schema["enum"])
        if "const" in schema:
            out["const"] = schema["const"]
        for name in _BOUNDS:
            if _is_number(schema.get(name)) and (name != "multipleOf" or schema[name] > 0):
                out[name] = schema[name]
        for name in _COUNTS:
            if type(schema.get(name)) is int and schema[name] >= 0:
                out[name] = schema[name]

    def _add_object(self, out: Schema, schema: Mapping[str, Any], enclosing: tuple[str, ...], sealed: bool) -> None:
        properties = schema.get("properties")
        members = properties if isinstance(properties, Mapping) else {}
        if len(members) > _MAX_MEMBERS:
            return
        hidden = {name for name, part in members.items() if self._is_hidden(part)}
        if members:
            out["properties"] = {
                str(name): self._member(part, (*enclosing, "")) for name, part in members.items() if name not in hidden
            }
        required = schema.get("required")
        if isinstance(required, list) and self._strict:
            names = [name for name in required if isinstance(name, str) and name not in hidden]
            if names and len(names) <= _MAX_MEMBERS:
                out["required"] = list(dict.fromkeys(names))
        others = schema.get("additionalProperties")
        if isinstance(others, Mapping):
            out["additionalProperties"] = self._shape(others, (*enclosing, ""), sealed=True)
        elif others is False and self._for_input and sealed and "patternProperties" not in schema:
            out["additionalProperties"] = False

    def _member(self, part: Any, enclosing: tuple[str, ...]) -> Schema:
        shaped = self._shape(part, enclosing, sealed=True)
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
