"""Converts database values to JSON without rounding: numbers that JSON cannot represent exactly become text."""

import base64
import datetime
import decimal
import json
import math
import uuid
from typing import Any

MAX_EXACT_INTEGER = 2**53


def to_json(value: Any) -> Any:
    """Decimals and integers beyond 2^53 as text, times in RFC 3339 (without a zone when the column has none), bytes as
    base64, durations in seconds as text; values of other types as their text."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) <= MAX_EXACT_INTEGER else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case decimal.Decimal() | uuid.UUID():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(bytes(value)).decode()
        case datetime.datetime():
            return value.isoformat().replace("+00:00", "Z")
        case datetime.timedelta():
            return f"{value.total_seconds():.6f}".rstrip("0").rstrip(".")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case list() | tuple() | set() | frozenset():
            return [to_json(each) for each in value]
        case dict():
            return {str(key): to_json(each) for key, each in value.items()}
    return str(value)


def is_json_only(value: Any) -> bool:
    """Whether SQL can represent the value only as JSON: an object, or a list that contains objects or lists."""
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, dict | list) for each in value))


def as_json_text(value: Any) -> str:
    """The value as compact JSON text, for a JSON column."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
