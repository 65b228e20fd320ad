"""Converts zeep's values to JSON, and describes the types of an operation for people."""

import base64
import datetime
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import isodate
from lxml import etree

_EXACT = 2**53
_MAX_DEPTH = 6


def to_json(value: Any) -> Any:
    """Convert a value to JSON: numbers JSON would round become text, times ISO 8601, bytes base64, unknown elements XML text."""
    match value:
        case None | bool() | str() | float():
            return value
        case int():
            return value if abs(value) <= _EXACT else str(value)
        case Decimal():
            return str(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case datetime.timedelta() | isodate.Duration():
            return isodate.duration_isoformat(value)
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case Mapping():
            return {str(name): to_json(each) for name, each in value.items()}
        case list() | tuple():
            return [to_json(each) for each in value]
    if isinstance(value, etree._Element):
        return etree.tostring(value, encoding="unicode")
    return str(value)


def members_of(kind: Any, depth: int = 0) -> list[dict[str, Any]]:
    """Return the elements and attributes of a type with name, type, and whether each is required and may repeat."""
    members = []
    attributes = [name for name, _ in getattr(kind, "attributes", ())]
    for name, element in [*getattr(kind, "elements", ()), *getattr(kind, "attributes", ())]:
        inner = getattr(element, "type", None)
        member: dict[str, Any] = {
            "name": str(name),
            "type": str(getattr(inner, "name", None) or "any"),
            "required": bool(element.required) if name in attributes else not getattr(element, "is_optional", False),
            "many": bool(getattr(element, "accepts_multiple", False)),
        }
        nested = members_of(inner, depth + 1) if depth < _MAX_DEPTH and inner is not None else []
        members.append({**member, **({"members": nested} if nested else {})})
    return members
