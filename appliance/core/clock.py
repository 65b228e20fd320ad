"""The clock of the appliance: epoch milliseconds, RFC 3339 text and durations."""

import os
import re
import time
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from pathlib import Path

from appliance.core.sentences import Sentence

from .errors import ValidationFailed

_DURATION = re.compile(r"(\d{1,15})(ms|s|m|h|d)", re.ASCII)
_ISO = re.compile(r"P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,3})?)S)?)?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[-+]\d\d:\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNIT = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_AT_ONCE_MS = 100  # Two clock readings further apart than this are repeated.
_ahead_ms = 0


def now_ms() -> int:
    """Wall time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000 + _ahead_ms


def move(ms: int) -> None:
    """Move this process's clock forward by `ms`; only for `appliance.testing`, to test long periods."""
    global _ahead_ms
    _ahead_ms += ms


def worked() -> float:
    """CPU seconds of this thread, without waiting."""
    return time.thread_time()


def monotonic() -> float:
    """Seconds on a clock that never goes back; for deadlines and durations."""
    return time.monotonic()


def since_boot_ms() -> int:
    """Milliseconds since the machine booted, including sleep; unaffected by changes of the wall clock."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000 + _ahead_ms


def apart_ms() -> int:
    """The difference between the wall clock and the time since boot; it changes when the wall clock is set."""
    while True:
        before = since_boot_ms()
        apart = now_ms() - before
        if since_boot_ms() - before < _AT_ONCE_MS:
            return apart


@cache
def boot_id() -> str:
    """An id of this boot of the machine; where the system provides none, a random one per process."""
    try:
        return Path(_BOOT_ID).read_text().strip()
    except OSError:  # Some containers hide this file.
        return os.urandom(16).hex()


def rfc3339(ms: int) -> str:
    """The time as RFC 3339 text, such as `2026-01-02T03:04:05.678Z`."""
    seconds, rest = divmod(ms, 1000)
    return f"{_to_the_second(seconds)}.{rest:03}Z"


@lru_cache(maxsize=2048)
def _to_the_second(seconds: int) -> str:
    """`2026-01-02T03:04:05`; cached, because the times in one answer are often close together."""
    return (_EPOCH + timedelta(0, seconds)).isoformat()[:19]


def minute(ms: int) -> str:
    """The time as `2026-01-02 03:04 UTC`, for readers whose time zone is unknown."""
    return (_EPOCH + timedelta(milliseconds=ms)).strftime("%Y-%m-%d %H:%M UTC")


def optional_rfc3339(ms: int | None) -> str | None:
    """`rfc3339`, or None for None."""
    return None if ms is None else rfc3339(ms)


def parse_rfc3339(text: str, *, pointer: str = "") -> int:
    """Milliseconds of an RFC 3339 time with a zone; ValidationFailed otherwise."""
    try:
        if not _TIME.fullmatch(text):
            raise ValueError("not RFC 3339")
        return (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)
    except ValueError as error:
        raise ValidationFailed(
            Sentence("%(text)s is not an RFC 3339 time with a zone, such as 2026-01-31T09:30:00Z", text=repr(text[:40])),
            pointer=pointer,
        ) from error


def parse_duration(text: str, *, pointer: str = "") -> int:
    """Milliseconds of `500ms`, `30s`, `10m`, `48h`, `90d` or an ISO 8601 duration; ValidationFailed otherwise."""
    if match := _DURATION.fullmatch(text):
        return int(match[1]) * _UNIT[match[2]]
    iso = _ISO.fullmatch(text)
    if iso and any(iso.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return int(days * 86_400_000 + hours * 3_600_000 + minutes * 60_000 + seconds * 1000)
    raise ValidationFailed(
        Sentence("%(text)s is not a duration; write it like 500ms, 30s, 10m, 48h or 90d", text=repr(text[:40])), pointer=pointer
    )
