"""The one clock: epoch milliseconds, RFC 3339 text and durations."""

import os
import re
import time
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from appliance.core.sentences import Sentence

from .errors import ValidationFailed

_DURATION = re.compile(r"(\d{1,15})(ms|s|m|h|d)", re.ASCII)
_ISO = re.compile(r"P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,3})?)S)?)?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[-+]\d\d:\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNIT = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_AT_ONCE_MS = 100  # a thread that is held up for longer between two clocks reads them again
_ahead_ms = 0


def now_ms() -> int:
    """Wall time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000 + _ahead_ms


def move(ms: int) -> None:
    """Let this process believe that it is `ms` later; for `appliance.testing` alone, which tests what takes days."""
    global _ahead_ms
    _ahead_ms += ms


def worked() -> float:
    """Seconds this thread has computed, waiting left out."""
    return time.thread_time()


def monotonic() -> float:
    """Seconds on a clock that never goes back; for deadlines and durations."""
    return time.monotonic()


def since_boot_ms() -> int:
    """Milliseconds since the machine began, those of its sleep too; nobody sets it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000 + _ahead_ms


def apart_ms() -> int:
    """How far the wall clock is ahead of the time since the machine began; another number says that it was set."""
    while True:
        before = since_boot_ms()
        apart = now_ms() - before
        if since_boot_ms() - before < _AT_ONCE_MS:
            return apart


@cache
def boot_id() -> str:
    """Names this machine since it began; another one after it was booted again, or in each process where the machine has none."""
    try:
        return Path(_BOOT_ID).read_text().strip()
    except OSError:  # a container that hides it
        return os.urandom(16).hex()


def rfc3339(ms: int) -> str:
    """`2026-01-02T03:04:05.678Z`."""
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")[:-6] + "Z"


def minute(ms: int) -> str:
    """`2026-01-02 03:04 UTC`, for somebody whose time zone nobody knows."""
    return (_EPOCH + timedelta(milliseconds=ms)).strftime("%Y-%m-%d %H:%M UTC")


def optional_rfc3339(ms: int | None) -> str | None:
    """`rfc3339`, or None for None."""
    return None if ms is None else rfc3339(ms)


def parse_rfc3339(text: str, *, pointer: str = "") -> int:
    """Milliseconds of an RFC 3339 time with a zone; ValidationFailed otherwise."""
    try:
        if not _TIME.fullmatch(text):
            raise ValueError("another form")
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
