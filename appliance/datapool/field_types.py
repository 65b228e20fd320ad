"""The field types: how a value is validated, stored, formatted, read from a spreadsheet cell and compared.

Stored forms: `decimal` is a 64-bit integer, the value times 10 to the power of its scale, so that comparing, sorting
and adding are exact on every database; `datetime` is epoch milliseconds; `date` is ISO text; `boolean` is 0 or 1;
`json` is canonical text (sorted keys), so that equal values have equal texts; every other type is text.
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
Converter: TypeAlias = Callable[[Any], Any]

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


class InvalidValue(ValueError):
    """A value does not fit its field; `code` is the error code, the text says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class FieldType:
    """One field type.

    `reader(options)` returns the function that parses a value into its stored form (raises Refused), `shower(options)` the
    one that formats it again (None: as stored), `comparer(options)` the one that parses a value to compare with.
    `parse_cell` converts a spreadsheet cell into a value for the reader.
    """

    storage: Literal["TEXT", "BIGINT", "DOUBLE PRECISION"]
    kind: Literal["text", "ordered", "plain"]
    options: frozenset[str]
    build_parser: Callable[[Options], Converter]
    build_formatter: Callable[[Options], Converter | None]
    build_comparison_parser: Callable[[Options], Converter]
    parse_cell: Converter


def _unchanged(value: Any) -> Any:
    return value


def _no_formatter(options: Options) -> Converter | None:
    return None


def parse_plain_text(value: Any) -> str:
    """Accept any text that both databases can store."""
    if type(value) is not str:
        raise InvalidValue("wrong_type", "must be a text")
    if "\x00" in value:
        raise InvalidValue("invalid_format", "must not contain a NUL character (U+0000)")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidValue("invalid_format", "must not contain an unpaired surrogate") from error
    return value


def _build_text_parser(options: Options) -> Converter:
    min_length, max_length = options.get("min_length", 0), options.get("max_length")

    def parse(value: Any) -> str:
        text = parse_plain_text(value)
        if max_length is not None and len(text) > max_length:
            raise InvalidValue("too_long", f"must have at most {max_length} characters, not {len(text)}")
        if len(text) < min_length:
            raise InvalidValue("too_short", f"must have at least {min_length} characters, not {len(text)}")
        return text

    return parse if options else parse_plain_text


def _build_pattern_parser(pattern: re.Pattern[str], max_length: int, sentence: str) -> Callable[[Options], Converter]:
    def parse(value: Any) -> str:
        text = parse_plain_text(value)
        if len(text) > max_length or not pattern.fullmatch(text):
            raise InvalidValue("invalid_format", sentence)
        return text

    return lambda options: parse


def _build_select_parser(options: Options) -> Converter:
    allowed = frozenset(options["options"])
    allowed_text = ", ".join(options["options"])[:300]

    def parse(value: Any) -> str:
        text = parse_plain_text(value)
        if text not in allowed:
            raise InvalidValue("not_an_option", f"must be one of {allowed_text}")
        return text

    return parse


def _build_bounded_parser(parse: Converter, options: Options) -> Converter:
    """`read` with a check against the options `min` and `max`."""
    minimum = parse(options["min"]) if options.get("min") is not None else None
    maximum = parse(options["max"]) if options.get("max") is not None else None
    if minimum is None and maximum is None:
        return parse

    def parse_bounded(value: Any) -> Any:
        stored = parse(value)
        if minimum is not None and stored < minimum:
            raise InvalidValue("too_small", f"must be at least {options['min']}")
        if maximum is not None and stored > maximum:
            raise InvalidValue("too_large", f"must be at most {options['max']}")
        return stored

    return parse_bounded


def _parse_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue("wrong_type", "must be a number")
    try:
        number = float(value)
    except OverflowError as error:
        raise InvalidValue("too_large", "is too large for a number") from error
    if number - number != 0:
        raise InvalidValue("wrong_type", "must be a finite number")
    if number != value:
        raise InvalidValue("too_precise", "cannot be stored exactly as a number; use a field of type integer or decimal")
    return number + 0.0  # turns -0.0 into 0.0


def _format_number(stored: float) -> int | float:
    return int(stored) if stored.is_integer() and abs(stored) <= SAFE_INTEGER else stored


def _parse_integer(value: Any) -> int:
    whole_float = isinstance(value, float) and value.is_integer() and abs(value) <= SAFE_INTEGER
    if whole_float or (isinstance(value, str) and _INTEGER.fullmatch(value)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue("wrong_type", "must be a whole number")
    if abs(value) > LARGEST_INTEGER:
        raise InvalidValue("too_large", "must fit into 64 bits")
    return value


def _format_integer(stored: int) -> int | str:
    return stored if abs(stored) <= SAFE_INTEGER else str(stored)


def get_scale(options: Options) -> int:
    """The number of digits after the decimal point of a decimal field."""
    return int(options.get("scale", DEFAULT_SCALE))


def _build_decimal_parser(options: Options) -> Converter:
    scale = get_scale(options)

    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
            raise InvalidValue("wrong_type", 'must be a decimal number, best written as a text such as "12.50"')
        match = _DECIMAL.fullmatch(value if isinstance(value, str) else _plain_digits(value))
        if match is None:
            raise InvalidValue("invalid_format", 'must be a decimal number such as "12.50"')
        sign, whole, fraction = match[1], match[2], (match[3] or "").rstrip("0")
        if len(fraction) > scale:
            raise InvalidValue("too_precise", f"must have at most {scale} digits after the decimal point; round it first")
        stored = int(whole + fraction.ljust(scale, "0"))
        if stored > LARGEST_DECIMAL:
            raise InvalidValue("too_large", f"must have at most {18 - scale} digits before the decimal point")
        return -stored if sign == "-" else stored

    return parse


def _plain_digits(value: float | Decimal) -> str:
    text = str(value)
    return format(Decimal(text), "f") if "e" in text or "E" in text else text


def build_decimal_formatter(options: Options) -> Converter:
    """The formatter of a decimal: with a declared scale exactly that many decimals, otherwise no trailing zeros."""
    scale, fixed = get_scale(options), "scale" in options

    def format_decimal(stored: int) -> str:
        digits = f"{abs(stored):0{scale + 1}d}"
        whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
        if not fixed:
            fraction = fraction.rstrip("0")
        return f"{'-' if stored < 0 else ''}{whole}{'.' if fraction else ''}{fraction}"

    return format_decimal


def _parse_boolean(value: Any) -> int:
    if value is True or value is False:
        return int(value)
    raise InvalidValue("wrong_type", "must be true or false")


@lru_cache(maxsize=8192)
def _check_date(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError as error:
        raise InvalidValue("invalid_format", f"{text} is not a valid date") from error
    return text


def _parse_date(value: Any) -> str:
    if type(value) is not str or not _DATE.fullmatch(value):
        raise InvalidValue("invalid_format", "must be a date such as 2026-01-31")
    return _check_date(value)


def _parse_comparison_date(value: Any) -> str:
    """Parse a date, or the UTC date of a time such as `$now`."""
    if isinstance(value, str) and _DATETIME.fullmatch(value):
        return clock.rfc3339(parse_datetime(value))[:10]
    return _parse_date(value)


def parse_datetime(value: Any) -> int:
    """Parse an RFC 3339 time into epoch milliseconds; smaller fractions are cut off."""
    if type(value) is str and _DATETIME.fullmatch(value):
        try:
            moment = datetime.fromisoformat(value.upper()).astimezone(UTC)
            if moment.year < 1000:
                raise InvalidValue("invalid_format", "must be a time after the year 999")
            return int(moment.replace(microsecond=0).timestamp()) * 1000 + moment.microsecond // 1000
        except (ValueError, OverflowError) as error:
            raise InvalidValue("invalid_format", f"{value} is not a valid time") from error
    raise InvalidValue("invalid_format", "must be a time with a zone, such as 2026-01-31T09:30:00Z")


_WITHOUT_ZONE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{1,2}:\d{2})(:\d{2}(?:\.\d{1,9})?)?)?", re.ASCII)


def normalize_time(text: str) -> str:
    """Normalize a time such as `2026-01-31 14:30` or `31.01.2026 14:30` to RFC 3339; one without a zone is taken as UTC.

    Any other text is returned stripped.
    """
    match = _WITHOUT_ZONE.fullmatch(_with_iso_day(text.strip()))
    return f"{match[1]}T{match[2] or '00:00':0>5}{match[3] or ':00'}Z" if match else text.strip()


def _with_iso_day(text: str) -> str:
    """The text with a leading `31.01.2026` (day, month, year) as `2026-01-31`."""
    dotted = _DOTTED_DAY.match(text)
    return f"{dotted[3]}-{int(dotted[2]):02}-{int(dotted[1]):02}{text[dotted.end() :]}" if dotted else text


def _parse_date_cell(text: str) -> str:
    """The date of a cell; database exports often write a date as its midnight."""
    day, _, time = _with_iso_day(text.strip()).replace("T", " ").partition(" ")
    return day if not time.strip("0:.Z") else text


def _parse_json(value: Any) -> str:
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue("invalid_format", "must be valid JSON without NaN and unpaired surrogates") from error
    return text


def _parse_number_cell(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


_BOOLEANS = dict.fromkeys(("true", "1", "yes", "ja"), True) | dict.fromkeys(("false", "0", "no", "nein"), False)


def _parse_boolean_cell(text: str) -> Any:
    return _BOOLEANS.get(text.strip().lower(), text)


def _parse_json_cell(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValue("invalid_format", "must be JSON") from error


def _text_type(build_parser: Callable[[Options], Converter], *options: str) -> FieldType:
    return FieldType(
        storage="TEXT", kind="text", options=frozenset(options), build_parser=build_parser, build_formatter=_no_formatter,
        build_comparison_parser=lambda _: parse_plain_text, parse_cell=_unchanged,
    )


FIELD_TYPES: dict[str, FieldType] = {
    "text": _text_type(_build_text_parser, "min_length", "max_length"),
    "select": _text_type(_build_select_parser, "options"),
    "email": _text_type(_build_pattern_parser(_EMAIL, 254, "must be an e-mail address such as name@example.com")),
    "url": _text_type(_build_pattern_parser(_URL, 2048, "must be a web address that starts with http:// or https://")),
    "relation": _text_type(_build_pattern_parser(ENTITY_ID, 25, "must be the id of an entity (ent_…)"), "collection"),
    "number": FieldType(
        storage="DOUBLE PRECISION",
        kind="ordered",
        options=frozenset({"min", "max"}),
        build_parser=lambda options: _build_bounded_parser(_parse_number, options),
        build_formatter=lambda _: _format_number,
        build_comparison_parser=lambda _: _parse_number,
        parse_cell=_parse_number_cell,
    ),
    "integer": FieldType(
        storage="BIGINT",
        kind="ordered",
        options=frozenset({"min", "max"}),
        build_parser=lambda options: _build_bounded_parser(_parse_integer, options),
        build_formatter=lambda _: _format_integer,
        build_comparison_parser=lambda _: _parse_integer,
        parse_cell=_unchanged,
    ),
    "decimal": FieldType(
        storage="BIGINT",
        kind="ordered",
        options=frozenset({"min", "max", "scale"}),
        build_parser=lambda options: _build_bounded_parser(_build_decimal_parser(options), options),
        build_formatter=build_decimal_formatter,
        build_comparison_parser=_build_decimal_parser,
        parse_cell=_unchanged,
    ),
    "boolean": FieldType(
        storage="BIGINT", kind="plain", options=frozenset(), build_parser=lambda _: _parse_boolean, build_formatter=lambda _: bool,
        build_comparison_parser=lambda _: _parse_boolean, parse_cell=_parse_boolean_cell,
    ),
    "date": FieldType(
        storage="TEXT", kind="ordered", options=frozenset(), build_parser=lambda _: _parse_date, build_formatter=_no_formatter,
        build_comparison_parser=lambda _: _parse_comparison_date, parse_cell=_parse_date_cell,
    ),
    "datetime": FieldType(
        storage="BIGINT",
        kind="ordered",
        options=frozenset(),
        build_parser=lambda _: parse_datetime,
        build_formatter=lambda _: clock.rfc3339,
        build_comparison_parser=lambda _: parse_datetime,
        parse_cell=normalize_time,
    ),
    "json": FieldType(
        storage="TEXT", kind="plain", options=frozenset(), build_parser=lambda _: _parse_json,
        build_formatter=lambda _: json.loads, build_comparison_parser=lambda _: _parse_json, parse_cell=_parse_json_cell,
    ),
}


def to_text(value: Any) -> str:
    """A formatted value as the text of a spreadsheet cell; `parse_cell` of its type is the inverse."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
