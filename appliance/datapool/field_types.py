"""The field types: how a value is checked and stored, shown, written as text, and compared.

Stored forms: `decimal` is a 64-bit integer, the value times 10 to the power of its scale, so that comparing, sorting
and adding are exact on every database; `datetime` is epoch milliseconds; `date` is ISO text; `boolean` is 0 or 1;
`json` is canonical text (keys sorted), so that equality is equality of texts; the rest is text.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from appliance.core import clock

Options: TypeAlias = Mapping[str, Any]
Step: TypeAlias = Callable[[Any], Any]

DEFAULT_SCALE = 6
MAX_SCALE = 12
LARGEST_DECIMAL = 10**18 - 1
LARGEST_INTEGER = 2**63 - 1
SAFE_INTEGER = 2**53
_DECIMAL = re.compile(r"([-+]?)(\d{1,40})(?:\.(\d{1,40}))?", re.ASCII)
_INTEGER = re.compile(r"[-+]?\d{1,20}", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DOTTED_DAY = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?=[T ]|$)", re.ASCII)
_DATETIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_EMAIL = re.compile(r"[^@\s<>\"',;:\\()\[\]]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
_URL = re.compile(r"https?://[^\s/?#\\<>\"]+[^\s\\<>\"]*", re.IGNORECASE)
ENTITY_ID = re.compile(r"ent_[0-9A-Za-z]{21}")


class Refused(ValueError):
    """A value does not fit its field; `code` is for programs, the text for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class FieldType:
    """One type.

    `reader(options)` makes the check from value to stored form (raises Refused), `shower(options)` the way back (None:
    as stored), `comparer(options)` the check of a value only compared with; `from_text` reads a spreadsheet cell.
    """

    storage: Literal["TEXT", "BIGINT", "DOUBLE PRECISION"]
    kind: Literal["text", "ordered", "plain"]
    options: frozenset[str]
    reader: Callable[[Options], Step]
    shower: Callable[[Options], Step | None]
    comparer: Callable[[Options], Step]
    from_text: Step


def _same(value: Any) -> Any:
    return value


def _as_stored(options: Options) -> Step | None:
    return None


def read_plain_text(value: Any) -> str:
    """Any text that every database can hold."""
    if type(value) is not str:
        raise Refused("wrong_type", "must be a text")
    if "\x00" in value:
        raise Refused("invalid_format", "must not contain the character U+0000")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Refused("invalid_format", "must not contain half a surrogate pair") from error
    return value


def _text(options: Options) -> Step:
    shortest, longest = options.get("min_length", 0), options.get("max_length")

    def read(value: Any) -> str:
        text = read_plain_text(value)
        if longest is not None and len(text) > longest:
            raise Refused("too_long", f"must have at most {longest} characters, not {len(text)}")
        if len(text) < shortest:
            raise Refused("too_short", f"must have at least {shortest} characters, not {len(text)}")
        return text

    return read if options else read_plain_text


def _pattern(pattern: re.Pattern[str], longest: int, sentence: str) -> Callable[[Options], Step]:
    def read(value: Any) -> str:
        text = read_plain_text(value)
        if len(text) > longest or not pattern.fullmatch(text):
            raise Refused("invalid_format", sentence)
        return text

    return lambda options: read


def _select(options: Options) -> Step:
    known = frozenset(options["options"])
    listed = ", ".join(options["options"])[:300]

    def read(value: Any) -> str:
        text = read_plain_text(value)
        if text not in known:
            raise Refused("not_an_option", f"must be one of {listed}")
        return text

    return read


def _bounded(read: Step, options: Options) -> Step:
    """`read`, then `min` and `max` of the options in their stored form."""
    lowest = read(options["min"]) if options.get("min") is not None else None
    highest = read(options["max"]) if options.get("max") is not None else None
    if lowest is None and highest is None:
        return read

    def read_bounded(value: Any) -> Any:
        stored = read(value)
        if lowest is not None and stored < lowest:
            raise Refused("too_small", f"must be at least {options['min']}")
        if highest is not None and stored > highest:
            raise Refused("too_large", f"must be at most {options['max']}")
        return stored

    return read_bounded


def _read_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused("wrong_type", "must be a number")
    try:
        number = float(value)
    except OverflowError as error:
        raise Refused("too_large", "is too large for a number") from error
    if number - number != 0:
        raise Refused("wrong_type", "must be a finite number")
    if number != value:
        raise Refused("too_precise", "cannot be held exactly by a number; use a field of type integer or decimal")
    return number + 0.0  # turns -0.0 into 0.0


def _show_number(stored: float) -> int | float:
    return int(stored) if stored.is_integer() and abs(stored) <= SAFE_INTEGER else stored


def _read_integer(value: Any) -> int:
    whole_float = isinstance(value, float) and value.is_integer() and abs(value) <= SAFE_INTEGER
    if whole_float or (isinstance(value, str) and _INTEGER.fullmatch(value)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused("wrong_type", "must be a whole number")
    if abs(value) > LARGEST_INTEGER:
        raise Refused("too_large", "must fit into 64 bits")
    return value


def _show_integer(stored: int) -> int | str:
    return stored if abs(stored) <= SAFE_INTEGER else str(stored)


def scale_of(options: Options) -> int:
    """Digits after the point that a decimal field keeps."""
    return int(options.get("scale", DEFAULT_SCALE))


def _read_decimal(options: Options) -> Step:
    scale = scale_of(options)

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
            raise Refused("wrong_type", 'must be a decimal number, best written as a text such as "12.50"')
        match = _DECIMAL.fullmatch(value if isinstance(value, str) else _plain_digits(value))
        if match is None:
            raise Refused("invalid_format", 'must be a decimal number such as "12.50"')
        sign, whole, fraction = match[1], match[2], (match[3] or "").rstrip("0")
        if len(fraction) > scale:
            raise Refused("too_precise", f"must have at most {scale} digits after the point; round it first")
        stored = int(whole + fraction.ljust(scale, "0"))
        if stored > LARGEST_DECIMAL:
            raise Refused("too_large", f"must have at most {18 - scale} digits before the point")
        return -stored if sign == "-" else stored

    return read


def _plain_digits(value: float | Decimal) -> str:
    text = str(value)
    return format(Decimal(text), "f") if "e" in text or "E" in text else text


def show_decimal(options: Options) -> Step:
    """With a declared scale exactly that many digits after the point, otherwise no trailing zeros."""
    scale, fixed = scale_of(options), "scale" in options

    def show(stored: int) -> str:
        digits = f"{abs(stored):0{scale + 1}d}"
        whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
        if not fixed:
            fraction = fraction.rstrip("0")
        return f"{'-' if stored < 0 else ''}{whole}{'.' if fraction else ''}{fraction}"

    return show


def _read_boolean(value: Any) -> int:
    if value is True or value is False:
        return int(value)
    raise Refused("wrong_type", "must be true or false")


@lru_cache(maxsize=8192)
def _check_date(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError as error:
        raise Refused("invalid_format", f"{text} is not a day of the calendar") from error
    return text


def _read_date(value: Any) -> str:
    if type(value) is not str or not _DATE.fullmatch(value):
        raise Refused("invalid_format", "must be a date such as 2026-01-31")
    return _check_date(value)


def _compare_date(value: Any) -> str:
    """A date, or the day (UTC) of a time, such as `$now`."""
    if isinstance(value, str) and _DATETIME.fullmatch(value):
        return clock.rfc3339(read_datetime(value))[:10]
    return _read_date(value)


def read_datetime(value: Any) -> int:
    """Epoch milliseconds of an RFC 3339 time; more precise fractions are cut."""
    if type(value) is str and _DATETIME.fullmatch(value):
        try:
            moment = datetime.fromisoformat(value.upper()).astimezone(UTC)
            if moment.year < 1000:
                raise Refused("invalid_format", "must be a time after the year 999")
            return int(moment.replace(microsecond=0).timestamp()) * 1000 + moment.microsecond // 1000
        except (ValueError, OverflowError) as error:
            raise Refused("invalid_format", f"{value} is not a time of the calendar") from error
    raise Refused("invalid_format", "must be a time with a zone, such as 2026-01-31T09:30:00Z")


_WITHOUT_ZONE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{1,2}:\d{2})(:\d{2}(?:\.\d{1,9})?)?)?", re.ASCII)


def with_zone(text: str) -> str:
    """A time as it is stored, such as `2026-01-31 14:30` or `31.01.2026 14:30`: one that names no zone is taken for UTC.

    Anything else stays.
    """
    found = _WITHOUT_ZONE.fullmatch(_with_iso_day(text.strip()))
    return f"{found[1]}T{found[2] or '00:00':0>5}{found[3] or ':00'}Z" if found else text.strip()


def _with_iso_day(text: str) -> str:
    """`31.01.2026` at the beginning is a day, month and year wherever it is written."""
    dotted = _DOTTED_DAY.match(text)
    return f"{dotted[3]}-{int(dotted[2]):02}-{int(dotted[1]):02}{text[dotted.end() :]}" if dotted else text


def _cell_date(text: str) -> str:
    """Exports of databases write a day as its midnight."""
    day, _, time = _with_iso_day(text.strip()).replace("T", " ").partition(" ")
    return day if not time.strip("0:.Z") else text


def _read_json(value: Any) -> str:
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused("invalid_format", "must be JSON that can be stored (no NaN, no half surrogate pairs)") from error
    return text


def _cell_number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


_BOOLEANS = dict.fromkeys(("true", "1", "yes", "ja"), True) | dict.fromkeys(("false", "0", "no", "nein"), False)


def _cell_boolean(text: str) -> Any:
    return _BOOLEANS.get(text.strip().lower(), text)


def _cell_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused("invalid_format", "must be JSON") from error


def _text_like(read: Callable[[Options], Step], *options: str) -> FieldType:
    return FieldType("TEXT", "text", frozenset(options), read, _as_stored, lambda _: read_plain_text, _same)


FIELD_TYPES: dict[str, FieldType] = {
    "text": _text_like(_text, "min_length", "max_length"),
    "select": _text_like(_select, "options"),
    "email": _text_like(_pattern(_EMAIL, 254, "must be an e-mail address such as name@example.com")),
    "url": _text_like(_pattern(_URL, 2048, "must be a web address that begins with http:// or https://")),
    "relation": _text_like(_pattern(ENTITY_ID, 25, "must be the id of an entity (ent_…)"), "collection"),
    "number": FieldType(
        "DOUBLE PRECISION",
        "ordered",
        frozenset({"min", "max"}),
        lambda options: _bounded(_read_number, options),
        lambda _: _show_number,
        lambda _: _read_number,
        _cell_number,
    ),
    "integer": FieldType(
        "BIGINT",
        "ordered",
        frozenset({"min", "max"}),
        lambda options: _bounded(_read_integer, options),
        lambda _: _show_integer,
        lambda _: _read_integer,
        _same,
    ),
    "decimal": FieldType(
        "BIGINT",
        "ordered",
        frozenset({"min", "max", "scale"}),
        lambda options: _bounded(_read_decimal(options), options),
        show_decimal,
        _read_decimal,
        _same,
    ),
    "boolean": FieldType(
        "BIGINT", "plain", frozenset(), lambda _: _read_boolean, lambda _: bool, lambda _: _read_boolean, _cell_boolean
    ),
    "date": FieldType("TEXT", "ordered", frozenset(), lambda _: _read_date, _as_stored, lambda _: _compare_date, _cell_date),
    "datetime": FieldType(
        "BIGINT",
        "ordered",
        frozenset(),
        lambda _: read_datetime,
        lambda _: clock.rfc3339,
        lambda _: read_datetime,
        with_zone,
    ),
    "json": FieldType("TEXT", "plain", frozenset(), lambda _: _read_json, lambda _: json.loads, lambda _: _read_json, _cell_json),
}


def to_text(value: Any) -> str:
    """A shown value as the text of a spreadsheet cell; `from_text` of its type reads it back."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
