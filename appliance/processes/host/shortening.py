"""Shortens journal values for display."""

from typing import Any

from appliance.core.database import db

MAX_BYTES = 64 << 10
PREVIEW_CHARS = 1_000  # characters displayed of a longer value


def shorten(value: Any, most: int = MAX_BYTES) -> tuple[Any, int | None]:
    """(value, None), or for a value above `most` bytes the beginning of its JSON and the size of the whole in bytes."""
    if isinstance(value, bool | int | float) or value is None:
        return value, None
    text = db.dump_json(value)
    size = len(text.encode()) if len(text) * 4 > most else len(text)
    return (value, None) if size <= most else (f"{text[:PREVIEW_CHARS]}…", size)
