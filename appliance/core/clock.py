"""The one clock: epoch milliseconds, RFC 3339 text and durations."""

import re
import time
from datetime import UTC, datetime

from .errors import ValidationFailed

_DURATION = re.compile(r"(\d{1,15})(ms|s|m|h|d)")
_ISO = re.compile(r"P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,3})?)S)?)?")
_UNIT = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def now_ms() -> int:
    """Wall time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def monotonic() -> float:
    """Seconds on a clock that never goes back; for deadlines and durations."""
    return time.monotonic()


def rfc3339(ms: int) -> str:
    """`2026-01-02T03:04:05.678Z`."""
    seconds, rest = divmod(ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


def optional_rfc3339(ms: int | None) -> str | None:
    """`rfc3339`, or None for None."""
    return None if ms is None else rfc3339(ms)


def parse_rfc3339(text: str, *, pointer: str = "") -> int:
    """Milliseconds of an RFC 3339 time with a zone; ValidationFailed otherwise."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("no time zone")
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise ValidationFailed(
            f"{text!r} is not an RFC 3339 time with a zone, such as 2026-01-31T09:30:00Z", pointer=pointer
        ) from error


def parse_duration(text: str, *, pointer: str = "") -> int:
    """Milliseconds of `500ms`, `30s`, `10m`, `48h`, `90d` or an ISO 8601 duration; ValidationFailed otherwise."""
    if match := _DURATION.fullmatch(text):
        return int(match[1]) * _UNIT[match[2]]
    iso = _ISO.fullmatch(text)
    if iso and any(iso.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return int(days * 86_400_000 + hours * 3_600_000 + minutes * 60_000 + seconds * 1000)
    raise ValidationFailed(f"{text!r} is not a duration; write it like 500ms, 30s, 10m, 48h or 90d", pointer=pointer)
