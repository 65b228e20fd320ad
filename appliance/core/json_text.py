"""JSON from outside: read strictly, and never deeper than is said."""

from typing import Any

from pydantic_core import from_json

from .errors import InvalidJson, PayloadTooLarge


def load_json(raw: bytes, max_depth: int) -> Any:
    """JSON text as Python data; InvalidJson says where it breaks, PayloadTooLarge that it is nested too deeply."""
    if raw.count(b"[") + raw.count(b"{") > max_depth and _depth(raw) > max_depth:
        raise PayloadTooLarge(f"the JSON is nested deeper than {max_depth} levels")
    try:
        return from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidJson(f"the body is not JSON: {error}") from error


def _depth(raw: bytes) -> int:
    """Deepest nesting of brackets outside texts."""
    depth = deepest = 0
    inside = escaped = False
    for byte in raw:
        if inside:
            inside = escaped or byte != 0x22
            escaped = byte == 0x5C and not escaped
        elif byte == 0x22:
            inside = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest
