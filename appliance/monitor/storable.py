"""Makes external text and JSON safe to store: valid UTF-8, secrets redacted, size limited."""

import json
import math
from collections.abc import Mapping
from typing import Any

from appliance.core import logs

_DEPTH = 16
_TEXT_BYTES = 1 << 20


def storable_text(text: str, most: int) -> str:
    """`text` redacted, then truncated to `most` bytes of UTF-8 (in this order, because half a secret would not be recognised).

    Lone surrogates, which JavaScript strings may contain, and NUL, which database servers refuse, are replaced.
    Text that needs no change is returned as it is: a Sentence stays one.
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
    """`value` as a compact JSON object of at most `most` bytes, with every text in it redacted.

    None becomes the empty object, a value that is not an object the member `value`, an oversized value a preview of its text.
    """
    if value is None:
        return "{}"
    members = value if isinstance(value, Mapping) else {"value": value}
    text = json.dumps(_clean(members, _DEPTH), separators=(",", ":"), ensure_ascii=False)
    if len(text) <= most and (text.isascii() or len(text.encode()) <= most):
        return text
    # A quarter: escaping may double the text, and a character may take two more bytes than counted.
    preview = {"truncated": True, "preview": storable_text(text, most // 4)}
    return json.dumps(preview, separators=(",", ":"), ensure_ascii=False)


def _clean(value: Any, depth: int) -> Any:
    """A copy without secrets; values that JSON cannot represent (NaN, foreign types, deep nesting) as text."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Mapping | list | tuple) and depth == 0:
        return "…"
    if isinstance(value, Mapping):
        return {storable_text(str(key), _TEXT_BYTES): _clean(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item, depth - 1) for item in value]
    return storable_text(str(value), _TEXT_BYTES)
