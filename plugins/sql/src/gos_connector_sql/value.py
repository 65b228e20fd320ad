"""Values of a database as JSON, nothing rounded: what a number cannot hold travels as text."""

import base64
import datetime
import decimal
import json
import math
import uuid
from typing import Any

EXACT = 2**53


def to_json(value: Any) -> Any:
    """Decimals and integers beyond 2^53 as text, times in RFC 3339 (without zone where the column has none), bytes as
    base64, durations in seconds as text; what else there is by its text."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) <= EXACT else str(value)
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
    """Whether the value has no counterpart in SQL but JSON: an object, or a list that holds one or a list."""
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, dict | list) for each in value))


def as_json_text(value: Any) -> str:
    """A value for a JSON column."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
