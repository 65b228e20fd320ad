"""Sample values for documentation: a small value that fits a schema, with required members only; best effort."""

from collections.abc import Mapping
from typing import Any

_MAX_DEPTH = 6


def sample_of(schema: Mapping[str, Any], depth: int = 0) -> Any:
    """The constant, default or first listed value, or the simplest value of the type."""
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if schema.get("enum"):
        return schema["enum"][0]
    if depth < _MAX_DEPTH and ("allOf" in schema or "anyOf" in schema):
        return sample_of(_merged(schema), depth + 1)
    kinds = schema.get("type", "object" if "properties" in schema else "string")
    kind = kinds[0] if isinstance(kinds, list) else kinds
    if kind == "object":
        members = schema.get("properties", {})
        required = schema.get("required", ()) if depth < _MAX_DEPTH else ()
        return {name: sample_of(members.get(name, {}), depth + 1) for name in required}
    if kind == "array":
        least = min(schema.get("minItems", 0), 3)
        return [sample_of(schema.get("items", {}), depth + 1)] * least if depth < _MAX_DEPTH else []
    if kind in ("integer", "number"):
        return max(schema.get("minimum", 1), min(1, schema.get("maximum", 1)))
    return {"boolean": True, "null": None}.get(kind, _text(schema))


def _merged(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema merged with its `allOf` parts and its first alternative; only members are merged deeply."""
    merged = {name: part for name, part in schema.items() if name not in ("allOf", "anyOf")}
    for part in [*schema.get("allOf", ()), *schema.get("anyOf", ())[:1]]:
        members = {**merged.get("properties", {}), **part.get("properties", {})}
        required = [*merged.get("required", ()), *part.get("required", ())]
        merged = {**merged, **part, "properties": members, "required": list(dict.fromkeys(required))}
        if not members:
            del merged["properties"]
    return merged


def _text(schema: Mapping[str, Any]) -> str:
    examples = {"date-time": "2026-01-31T12:00:00Z", "date": "2026-01-31", "email": "a@example.com", "uri": "https://example.com/"}
    text = examples.get(str(schema.get("format")), "text")
    return text.ljust(min(schema.get("minLength", 0), 100), "x")[: schema.get("maxLength", 100)]
