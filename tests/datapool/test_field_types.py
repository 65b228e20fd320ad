"""Field types: what goes in comes out, and order is the order of the values."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.core import clock
from appliance.datapool.field_types import FIELD_TYPES, InvalidValue, parse_datetime, to_text

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
decimals = st.decimals(-(10**12) + 1, 10**12 - 1, places=6, allow_nan=False, allow_infinity=False)


def read(kind: str, value: Any, **options: Any) -> Any:
    return FIELD_TYPES[kind].build_parser(options)(value)


def format_value(kind: str, stored: Any, **options: Any) -> Any:
    formatter = FIELD_TYPES[kind].build_formatter(options)
    return formatter(stored) if formatter else stored


@given(first=decimals, second=decimals)
def test_decimals_are_exact_and_ordered_by_value(first: Decimal, second: Decimal) -> None:
    stored = [read("decimal", format(value, "f")) for value in (first, second)]
    assert (stored[0] < stored[1], stored[0] == stored[1]) == (first < second, first == second)
    assert Decimal(format_value("decimal", stored[0])) == first
    assert Decimal(format_value("decimal", stored[0] + stored[1])) == first + second
    assert "E" not in format_value("decimal", stored[0])
    assert read("decimal", format_value("decimal", stored[0])) == stored[0]


@pytest.mark.parametrize(
    ("value", "options", "formatted"),
    [
        ("12.5", {"scale": 2}, "12.50"), ("12.5", {}, "12.5"), (12, {"scale": 2}, "12.00"), (9.8, {}, "9.8"),
        ("-0.05", {"scale": 2}, "-0.05"),
        ("007", {"scale": 0}, "7"), (1e-5, {}, "0.00001"), ("-0", {"scale": 2}, "0.00"), ("1.10000000000000", {"scale": 1}, "1.1"),
        ("999999999999.999999", {}, "999999999999.999999"), (1e15, {"scale": 2}, "1000000000000000.00"),
    ],
)  # fmt: skip
def test_a_decimal_shows_its_scale(value: Any, options: Any, formatted: str) -> None:
    assert format_value("decimal", read("decimal", value, **options), **options) == formatted


@given(value=json_values)
def test_json_comes_back_equal(value: Any) -> None:
    stored = read("json", value)
    assert format_value("json", stored) == value


@given(moment=st.datetimes(min_value=datetime(1000, 1, 1), timezones=st.timezones()))  # noqa: DTZ001
def test_a_time_is_stored_to_the_millisecond(moment: Any) -> None:
    try:
        text = moment.isoformat(timespec="milliseconds")
        stored = parse_datetime(text)
    except InvalidValue:
        assert moment.utcoffset().total_seconds() % 60 or moment.year in (1000, 9999)
        return
    assert parse_datetime(clock.rfc3339(stored)) == stored
    assert abs(stored - moment.timestamp() * 1000) < 1.5


@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_comes_back_equal(number: float) -> None:
    assert format_value("number", read("number", number)) == number


@given(number=st.integers(-(2**63) + 1, 2**63 - 1))
def test_an_integer_comes_back_equal_or_as_text(number: int) -> None:
    formatted = format_value("integer", read("integer", number))
    assert int(formatted) == number
    assert isinstance(formatted, str) == (abs(number) > 2**53)
    assert read("integer", formatted) == number


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        ("text", 5, "wrong_type"), ("text", "\x00", "invalid_format"), ("decimal", "1e5", "invalid_format"),
        ("decimal", "1.0000001", "too_precise"), ("decimal", "1000000000000", "too_large"), ("decimal", True, "wrong_type"),
        ("decimal", "٣", "invalid_format"), ("decimal", "NaN", "invalid_format"), ("decimal", float("inf"), "invalid_format"),
        ("decimal", 0.1 + 0.2, "too_precise"), ("number", "5", "wrong_type"), ("number", True, "wrong_type"),
        ("number", 2**53 + 1, "too_precise"), ("number", 10**400, "too_large"), ("number", float("nan"), "wrong_type"),
        ("integer", 1.5, "wrong_type"), ("integer", "x", "wrong_type"), ("integer", 2**63, "too_large"),
        ("integer", 1e300, "wrong_type"),
        ("boolean", 0, "wrong_type"), ("date", "2026-1-1", "invalid_format"), ("date", "2026-02-29", "invalid_format"),
        ("date", "20260101", "invalid_format"), ("datetime", "2026-01-01T00:00:00", "invalid_format"),
        ("datetime", "2026-01-01T25:00:00Z", "invalid_format"), ("datetime", "0001-01-01T00:00:00+14:00", "invalid_format"),
        ("email", "a@b", "invalid_format"), ("email", "a b@example.com", "invalid_format"),
        ("url", "ftp://example.com", "invalid_format"),
        ("url", "javascript:alert(1)", "invalid_format"), ("url", "http://", "invalid_format"),
        ("url", "https://a b", "invalid_format"),
        ("relation", "ent_'; DROP", "invalid_format"), ("json", {"a": {1, 2}}, "invalid_format"),
        ("json", "\ud800", "invalid_format"),
    ],
)  # fmt: skip
def test_invalid_values_are_refused_with_a_code(kind: str, value: Any, code: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        read(kind, value, **({"collection": "x"} if kind == "relation" else {}))
    assert refusal.value.code == code


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("number", -2.5),
        ("integer", 7),
        ("decimal", "1.25"),
        ("boolean", False),
        ("json", {"a": [1, None]}),
        ("date", "2026-01-01"),
        ("text", " x "),
    ],
)
def test_the_text_of_a_value_is_read_back(kind: str, value: Any) -> None:
    assert read(kind, FIELD_TYPES[kind].parse_cell(to_text(value))) == read(kind, value)
