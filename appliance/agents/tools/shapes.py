"""How tools show what they answer: the very shapes of the REST API, handed over by the composition root."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core.pages import Page


@dataclass(frozen=True)
class Shape:
    """One shape: its JSON Schema, and what makes it from a domain's object."""

    schema: Mapping[str, Any]
    show: Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Shapes:
    """The shapes that the tools of CONTRACT § 12 answer in."""

    execution: Shape
    line: Shape
    document: Shape
    version: Shape
    publication: Shape
    preview: Shape


def inputs(required: tuple[str, ...] = (), **members: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of arguments; unknown members are refused."""
    schema: dict[str, Any] = {"type": "object", "properties": members, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


def outputs(required: tuple[str, ...] = (), **members: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an answer; `$defs` of its members move to its own, where their references lead."""
    shared: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for name, member in {**members, "truncated": TRUNCATED}.items():
        plain[name] = _without_definitions(member, shared)
    schema = {"type": "object", "properties": plain, "required": list(required)}
    return {**schema, "$defs": shared} if shared else schema


TRUNCATED = {"type": "array", "items": {"type": "string"}, "description": "Members that were cut because they are too long."}
TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}


def with_truncated(shape: Shape) -> dict[str, Any]:
    """The schema of one resource that may be cut."""
    return {**shape.schema, "properties": {**shape.schema["properties"], "truncated": TRUNCATED}}


def listed(shape: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a page: `items`, and `next_cursor` while there is more."""
    items = {"type": "array", "items": dict(shape), **({"$defs": shape["$defs"]} if "$defs" in shape else {})}
    if "$defs" in shape:
        items["items"] = {key: value for key, value in shape.items() if key != "$defs"}
    return outputs(("items",), items=items, next_cursor=TEXT, total=COUNT)


def page(found: Page[Any], show: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """A page as `listed` says."""
    more = {"next_cursor": found.next_cursor, "total": found.total}
    return {"items": [show(item) for item in found.items]} | {name: value for name, value in more.items() if value is not None}


def _without_definitions(member: Mapping[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    shared |= member.get("$defs", {})
    return {key: value for key, value in member.items() if key != "$defs"}
