"""Text and JSON that come from outside, made fit to be kept: valid UTF-8, secrets redacted, bounded."""

import json
import math
from collections.abc import Mapping
from typing import Any

from appliance.core import logs

_DEPTH = 16
_TEXT_BYTES = 1 << 20


def storable_text(text: str, most: int) -> str:
    """`text` redacted, then cut to `most` bytes of UTF-8 (in this order: half a secret would not be recognised).

    Lone surrogates, which JavaScript strings may hold, and NUL, which no server database takes, are replaced.  A text with
    nothing to change is answered as it came: a Sentence stays one.
    """
    redacted = logs.redact(text).replace("\x00", "\ufffd")
    if redacted == text:
        redacted = text
    if redacted.isascii() and len(redacted) <= most:
        return redacted
    encoded = redacted.encode("utf8", "replace")
    if len(encoded) <= most:
        decoded = encoded.decode()
        return text if decoded == text else decoded
    return encoded[: most - 3].decode("utf8", "ignore") + "…"


def storable_json(value: Any, most: int) -> str:
    """`value` as a compact JSON object of at most `most` bytes, every text in it redacted.

    None is the empty object, what is no object becomes its member `value`, what is too large a preview of its text.
    """
    if value is None:
        return "{}"
    members = value if isinstance(value, Mapping) else {"value": value}
    text = json.dumps(_clean(members, _DEPTH), separators=(",", ":"), ensure_ascii=False)
    if len(text) <= most and (text.isascii() or len(text.encode()) <= most):
        return text
    # A quarter: escaping may double the text and a character may take two bytes more than it counts.
    preview = {"truncated": True, "preview": storable_text(text, most // 4)}
    return json.dumps(preview, separators=(",", ":"), ensure_ascii=False)


def _clean(value: Any, depth: int) -> Any:
    """A copy without secrets; what JSON cannot carry (NaN, foreign types, too deep nesting) as text."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Mapping | list | tuple) and depth == 0:
        return "…"
    if isinstance(value, Mapping):
        return {storable_text(str(key), _TEXT_BYTES): _clean(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item, depth - 1) for item in value]
    return storable_text(str(value), _TEXT_BYTES)
