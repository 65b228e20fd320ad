"""Schemas and renderers of tool results: the same shapes as in the REST API, passed in by the composition root."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core.pages import Page


@dataclass(frozen=True)
class Shape:
    """The JSON Schema of a resource, and the function that renders a domain object accordingly."""

    schema: Mapping[str, Any]
    show: Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Shapes:
    """The shapes that the tools of docs/contract.md § 12 return."""

    execution: Shape
    line: Shape
    document: Shape
    version: Shape
    publication: Shape
    preview: Shape


def inputs(required: tuple[str, ...] = (), **members: Mapping[str, Any]) -> dict[str, Any]:
    """An object schema for tool arguments; unknown members are refused."""
    schema: dict[str, Any] = {"type": "object", "properties": members, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


def outputs(required: tuple[str, ...] = (), **members: Mapping[str, Any]) -> dict[str, Any]:
    """An object schema for a tool result; the members' `$defs` move to its top level, where their references point."""
    shared: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for name, member in {**members, "truncated": TRUNCATED}.items():
        plain[name] = _without_definitions(member, shared)
    schema = {"type": "object", "properties": plain, "required": list(required)}
    return {**schema, "$defs": shared} if shared else schema


TRUNCATED = {"type": "array", "items": {"type": "string"}, "description": "Members that were truncated because of their size."}
TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}


def with_truncated(shape: Shape) -> dict[str, Any]:
    """The schema of one resource that may be truncated."""
    return {**shape.schema, "properties": {**shape.schema["properties"], "truncated": TRUNCATED}}


def listed(shape: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a page: `items`, and `next_cursor` if there are more."""
    items = {"type": "array", "items": dict(shape), **({"$defs": shape["$defs"]} if "$defs" in shape else {})}
    if "$defs" in shape:
        items["items"] = {key: value for key, value in shape.items() if key != "$defs"}
    return outputs(("items",), items=items, next_cursor=TEXT, total=COUNT)


def page(page: Page[Any], show: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Render a page according to the schema of `listed`."""
    more = {"next_cursor": page.next_cursor, "total": page.total}
    return {"items": [show(item) for item in page.items]} | {name: value for name, value in more.items() if value is not None}


def _without_definitions(member: Mapping[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    shared |= member.get("$defs", {})
    return {key: value for key, value in member.items() if key != "$defs"}
