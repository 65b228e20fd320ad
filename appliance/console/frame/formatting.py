"""Formats values for pages: times, durations, numbers, sizes, JSON and names of states.  `FILTERS` are the template filters."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from markupsafe import Markup, escape

from appliance.connectors import translate
from appliance.core import clock, texts
from appliance.core.texts import gettext as _
from appliance.core.texts import mark, mark_in, ngettext, pgettext

CUT_BYTES = 16 << 10
# (maximum age, unit, text for the past, text for the future), times in ms; console.js uses the same texts.
_AGES = (
    (60_000, 1_000, mark("%(count)s s ago"), mark("in %(count)s s")),
    (3_600_000, 60_000, mark("%(count)s min ago"), mark("in %(count)s min")),
    (86_400_000, 3_600_000, mark("%(count)s h ago"), mark("in %(count)s h")),
    (30 * 86_400_000, 86_400_000, mark("%(count)s d ago"), mark("in %(count)s d")),
)
# The color of a state's badge.
TONES: Mapping[str, str] = {
    "succeeded": "good", "running": "busy", "cancelling": "busy", "queued": "calm", "scheduled": "calm", "waiting": "wait",
    "retrying": "wait", "failed": "bad", "timed_out": "bad", "expired": "bad", "cancelled": "off", "skipped": "off",
    "pending": "off", "open": "bad", "acknowledged": "wait", "resolved": "good", "read": "calm",
    "idempotent": "wait", "write": "bad",
    "closed": "good", "half_open": "wait", "done": "good", "not_done": "off", "unknown": "wait",
    "identical": "good", "output_differs": "wait", "diverged": "bad", "not_recorded": "calm",
    "approved": "good", "rejected": "bad", "answered": "good",
    "error": "bad", "warn": "wait", "info": "calm", "debug": "off", "active": "good", "revoked": "off", "replaced": "wait",
    "uploading": "busy", "preparing": "busy", "ready": "calm", "published": "good", "superseded": "off", "unpublished": "off",
    "checking": "busy", "switched": "busy", "switched_back": "bad", "refused": "bad", "overtaken": "wait",
    "pending_dns": "wait", "verified": "busy", "cert_pending": "busy", "failing": "bad", "ok": "good", "missing": "wait",
    "wrong": "bad", "unchecked": "off", "passed": "good", "under_review": "wait", "withdrawn": "off",
    "legal_hold": "wait", "retained": "calm", "ended": "off", "used_up": "off", "complete": "good", "started": "busy",
    "disabled": "off", "used": "good", "trusted": "good", "untrusted": "wait",
    "allow": "good", "require_approval": "wait", "deny": "bad", "observe": "wait", "enforce": "good", "retired": "off",
    "not_active": "off", "draft_waiting": "wait",
    "suspended": "bad", "allowed": "good",
    "broken_off": "wait", "expires": "wait", "wrong_password": "bad", "wrong_code": "bad", "served": "good",
}  # fmt: skip

NAMES = {
    "pending_dns": mark_in("state", "waiting for DNS"), "cert_pending": mark_in("state", "waiting for certificate"),
    "unchecked": mark_in("state", "not checked"), "ok": mark_in("state", "OK"),
}  # fmt: skip

STATE = "state"  # The msgctxt of names of states and roles in the translation catalogue.
# Names shown like states, without a tone of their own: roles, kinds of approval requests, targets of kill switches, events of
# alerts, kinds of visitors, places where a version is checked, classes of failures, and what an execution waits for.
MORE_NAMES = (
    "owner", "builder", "operator", "viewer", "approver", "approval", "input", "choice", "tenant", "agent", "tool", "integration",
    "firing", "repeated", "test", "user", "member", "password", "preview", "live",
    "user_code", "connector", "policy", "memory", "timeout", "validation", "system",
    "event", "child", "timer", "retry", "slot", "paused",
)  # fmt: skip

_OFFICE, _OPEN = "vnd.openxmlformats-officedocument.", "vnd.oasis.opendocument."
_MARKS = {
    f"{_OFFICE}wordprocessingml.document": "DOCX", f"{_OFFICE}spreadsheetml.sheet": "XLSX",
    f"{_OFFICE}presentationml.presentation": "PPTX", f"{_OPEN}text": "ODT", f"{_OPEN}spreadsheet": "ODS",
    f"{_OPEN}presentation": "ODP", "msword": "DOC", "vnd.ms-excel": "XLS", "vnd.ms-outlook": "MSG", "plain": "TXT", "jpeg": "JPG",
    "svg+xml": "SVG", "markdown": "MD", "javascript": "JS", "x-ndjson": "JSON", "tab-separated-values": "TSV", "calendar": "ICS",
    "rfc822": "EML",
}  # fmt: skip
_MARKS_OF_KINDS = {"text": "TXT", "image": "IMG", "audio": "AUD", "video": "VID"}


def duration(ms: float | None) -> str:
    """A duration in milliseconds as `12 ms`, `3.4 s`, `2 min 5 s` or `1 h 3 min`; a dash for None."""
    if ms is None:
        return "\N{EN DASH}"
    if ms < 1000:
        return _("%(count)s ms", count=f"{ms:.0f}")
    if ms < 60_000:
        return _("%(count)s s", count=texts.format_decimal(f"{ms / 1000:.1f}"))
    minutes, seconds = divmod(int(ms // 1000), 60)
    if minutes < 60:
        both = _("%(minutes)s min %(seconds)s s", minutes=minutes, seconds=seconds)
        return both if seconds else _("%(count)s min", count=minutes)
    hours, minutes = divmod(minutes, 60)
    return _("%(hours)s h %(minutes)s min", hours=hours, minutes=minutes) if minutes else _("%(count)s h", count=hours)


def ago(ms: int) -> str:
    """A time in epoch ms relative to now, in one unit: `5 min ago`, `in 2 h`; beyond 30 days the date."""
    age = clock.now_ms() - ms
    size = abs(age)
    if size < 5_000:
        return _("just now") if age >= 0 else _("now")
    for below, unit, was, will_be in _AGES:
        if size < below:
            return _(was, count=size // unit) if age > 0 else _(will_be, count=round(size / unit))
    return clock.rfc3339(ms)[:10]


def phrases() -> str:
    """The texts that console.js needs, as JSON: relative times, and the confirmation after copying."""
    ages = [[_(was, count="#"), _(will_be, count="#")] for _below, _unit, was, will_be in _AGES]
    values = {"ages": ages, "justNow": _("just now"), "now": _("now"), "copied": _("Copied")}
    return json.dumps(values, ensure_ascii=False)


def moment(ms: int | None) -> Markup:
    """A `<time>` element with relative text and the exact time as its title, which the browser converts to local time."""
    if ms is None:
        return Markup("&ndash;")
    exact = clock.rfc3339(ms)
    return _time(exact, exact[:19], "", ago(ms))


def local_moment(exact: str) -> Markup:
    """A `<time>` element for an RFC 3339 time: date and minute in UTC, which the browser converts to local time."""
    return _time(exact, exact[:19], " data-local", exact[:16].replace("T", " "))


def day(ms: int) -> str:
    """The UTC date of a time in epoch ms, as `2027-01-31`."""
    return clock.rfc3339(ms)[:10]


def hour(ms: int) -> str:
    """A time in epoch ms as `2027-01-31 14:00`, in UTC."""
    return clock.rfc3339(ms)[:16].replace("T", " ")


def clock_time(ms: int) -> Markup:
    """A `<time>` element with the time of day, for log lines."""
    exact = clock.rfc3339(ms)
    return _time(exact, exact[:23], " data-clock", exact[11:23])


def _time(exact: str, title: str, attribute: str, text: str) -> Markup:
    """Lists have hundreds of these, and `Markup.format` takes five times as long."""
    exact, title = escape(exact), escape(title.replace("T", " "))
    return Markup(f'<time datetime="{exact}" title="{title} UTC"{attribute}>{escape(text)}</time>')  # noqa: S704  # all escaped


def number(value: float) -> str:
    """A number with thin spaces between thousands."""
    return texts.format_grouped(value)


def fixed(value: float, places: int = 2) -> str:
    """A number with a fixed number of decimals, such as `1 234.50`, with the reader's decimal separator."""
    return texts.format_fixed(value, places)


def count(value: int, word: str, plural: str = "") -> str:
    """A count with its noun: `1 step`, `3 steps`."""
    return ngettext(f"%(num)s {word}", f"%(num)s {plural or word + 's'}", value)


@dataclass(frozen=True)
class TruncatedText:
    """A value as text; `size` is the full length in bytes if the text was truncated, else None."""

    text: str
    size: int | None = None


def pretty(value: Any, most: int = CUT_BYTES) -> TruncatedText:
    """A JSON value as indented text, truncated after `most` bytes; of a long value, little more than that is indented."""
    text = value if isinstance(value, str) else _indent(value, most)
    encoded = text.encode("utf8", "replace")
    if len(encoded) <= most:
        return TruncatedText(text)
    whole = len(encoded) if isinstance(value, str) else _indented_size(value)
    return TruncatedText(encoded[:most].decode("utf8", "ignore"), whole)


_INDENTED = json.JSONEncoder(ensure_ascii=False, indent=2)


def _indent(value: Any, most: int) -> str:
    """The beginning of a JSON value as indented text: all of it, or more than `most` characters."""
    text, parts = "", _INDENTED.iterencode(value)
    while len(text) <= most and (more := "".join(islice(parts, 100))):
        text += more
    return text


def _indented_size(value: Any) -> int:
    """The bytes of a JSON value as indented text, from its text on one line, which takes a tenth of the time."""
    size, items, indent = len(json.dumps(value, ensure_ascii=False).encode("utf8", "replace")), [value], 2
    while containers := [item for item in items if isinstance(item, dict | list | tuple)]:
        # The space after each comma goes; a line break and an indentation come before each item and the closing bracket.
        size += sum(len(each) * indent + indent for each in containers if each)
        items = [item for each in containers for item in (each.values() if isinstance(each, dict) else each)]
        indent += 2
    return size


def cell(value: Any) -> str:
    """A value as text for a table cell, truncated after 120 characters."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:119]}…"


def compact(value: Any) -> str:
    """A value as JSON on one line, truncated after 200 characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:199]}…"


def members(fields: Any) -> list[tuple[str, str]]:
    """The fields of a log line as (name, text) pairs."""
    return [(str(name), cell(value)) for name, value in fields.items()] if isinstance(fields, Mapping) else []


def size(bytes_: int) -> str:
    """A size in bytes as `820 B`, `16 KB`, `1.2 MB` or `270.6 GB` (powers of 1000)."""
    if bytes_ < 1000:
        return f"{bytes_} B"
    if bytes_ < 1_000_000:
        return f"{bytes_ / 1000:.0f} KB"
    width, unit = (1_000_000, "MB") if bytes_ < 1_000_000_000 else (1_000_000_000, "GB")
    return f"{texts.format_decimal(f'{bytes_ / width:.1f}')} {unit}"


def file_mark(media_type: str) -> str:
    """A short label for a media type, such as `PDF`, `DOCX` or `JSON`; at most four letters."""
    kind, _slash, name = media_type.partition("/")
    if name in _MARKS:
        return _MARKS[name]
    return name.upper() if len(name) <= 4 and name.isalnum() else _MARKS_OF_KINDS.get(kind, "FILE")


@dataclass(frozen=True)
class Columns:
    """SVG path data of a column chart: empty intervals, successes, and failures at the foot of each column."""

    none: str
    good: str
    bad: str


def columns_of(points: Sequence[tuple[int, Any]], width: float, height: float, gap: float) -> Columns:
    """A column chart of (time, count) points; one path per series, because lists draw a chart in every row."""
    counts = [point.count for _at, point in points]
    most, empty = max([1, *counts]), _empty_columns(len(points), width, height, gap)
    each = width / max(1, len(points))
    none, good, bad = [], [], []
    for index, count in enumerate(counts):
        if not count:
            none.append(empty[index])
            continue
        x, wide = round(index * each, 2), round(each - gap, 2)
        tall = max(3.0, count / most * height)
        wrong = round(points[index][1].failures / count * tall, 2)
        good.append(f"M{x} {round(height - tall, 2)}h{wide}v{round(tall - wrong, 2)}h-{wide}z")
        if wrong:
            bad.append(f"M{x} {round(height - wrong, 2)}h{wide}v{wrong}h-{wide}z")
    return Columns("".join(none), "".join(good), "".join(bad))


@lru_cache(100, typed=True)
def _empty_columns(count: int, width: float, height: float, gap: float) -> tuple[str, ...]:
    """The paths of the columns of a chart that has nothing in them; most charts of a list have the same."""
    each = width / max(1, count)
    wide = round(each - gap, 2)
    return tuple(f"M{round(index * each, 2)} {height - 2}h{wide}v2h-{wide}z" for index in range(count))


def state_name(state: str) -> str:
    """The name of a state in the reader's language: `timed_out` as "timed out"."""
    return pgettext(STATE, english_name(state).replace("%", "%%"))


def english_name(state: str) -> str:
    """The English name of a state, which is its id in the translation catalogue."""
    return NAMES.get(state, state.replace("_", " "))


def sentence(text: str) -> str:
    """A coded error's message in the reader's language, with a capital and without a full stop: it stands inside a line."""
    translated = texts.translate(text)
    return f"{translated[:1].upper()}{translated[1:]}".rstrip(".")


def advice(text: str) -> str:
    """Sentences that the appliance keeps or makes for programs too, in the reader's language, with their full stops."""
    return texts.translate(text)


def tone(state: str) -> str:
    """The color of a state's badge."""
    return TONES.get(state, "calm")


FILTERS: Mapping[str, Callable[..., Any]] = {
    "duration": duration, "moment": moment, "clock_time": clock_time, "number": number, "fixed": fixed, "count_of": count,
    "pretty": pretty, "compact": compact, "cell": cell, "members": members, "size": size, "state_name": state_name,
    "sentence": sentence, "advice": advice, "translated": translate, "tone": tone, "columns_of": columns_of, "file_mark": file_mark,
    "day": day, "hour": hour, "local_moment": local_moment,
}  # fmt: skip
