"""Values of the journal as they are shown: whole while they are short, else their beginning and their size."""

from typing import Any

from appliance.core.database import db

SHOWN_BYTES = 64 << 10
BEGINNING = 1_000  # characters of what is longer


def shorten(value: Any, most: int = SHOWN_BYTES) -> tuple[Any, int | None]:
    """(value, None), or the beginning of its JSON as a text and the size of the whole in bytes."""
    if isinstance(value, bool | int | float) or value is None:
        return value, None
    text = db.dump_json(value)
    size = len(text.encode()) if len(text) * 4 > most else len(text)
    return (value, None) if size <= most else (f"{text[:BEGINNING]}…", size)
