"""What connectors read from HTTP responses: the error of a status, the time to wait, JSON."""

from typing import Any

import pytest

from appliance.connectors.contract import (
    AuthError,
    ConnectorError,
    HttpAnswer,
    RateLimited,
    Rejected,
    TransientError,
    parse_json,
    retry_after,
    status_error,
)


def answer(status: int, content: bytes = b"", **headers: str) -> HttpAnswer:
    return HttpAnswer(status, {name.replace("_", "-"): value for name, value in headers.items()}, content, "http://x.test/")


@pytest.mark.parametrize(
    ("status", "headers", "kind", "outcome"),
    [
        (400, {}, Rejected, "not_done"),
        (401, {}, AuthError, "not_done"),
        (403, {}, AuthError, "not_done"),
        (408, {}, TransientError, "not_done"),
        (425, {}, TransientError, "not_done"),
        (429, {}, RateLimited, "not_done"),
        (500, {}, TransientError, "unknown"),
        (501, {}, Rejected, "not_done"),
        (503, {}, TransientError, "not_done"),
        (503, {"retry_after": "3"}, RateLimited, "not_done"),
        (504, {}, TransientError, "unknown"),
        (505, {}, Rejected, "not_done"),
        (302, {}, Rejected, "not_done"),
    ],
)
def test_a_status_is_an_error(status: int, headers: dict[str, str], kind: type[ConnectorError], outcome: str) -> None:
    error = status_error(answer(status, b"why", **headers))
    assert (type(error), error.outcome, error.details) == (kind, outcome, {"status": status, "body": "why"})
    assert error.message.startswith("The service ")
    assert f"({status})" in error.message


def test_a_request_that_changes_nothing_has_a_known_outcome() -> None:
    assert status_error(answer(500), changes=False).outcome == "not_done"


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500])
def test_the_systems_reason_ends_the_message(status: int) -> None:
    error = status_error(answer(status), "Shop", reason="Not so.", details={"code": 7})
    assert error.message.startswith("Shop ")
    assert error.message.endswith(": Not so.")
    assert error.details == {"code": 7}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        ("1.5", 1.5),
        ("9" * 400, 1e9),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:00:00 -0000", 0.0),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("\u0667", None),
    ],
)
def test_the_time_to_wait_is_read(text: str, seconds: float | None) -> None:
    assert retry_after(answer(429, retry_after=text)) == seconds
    assert retry_after(answer(429, x_wait=text), "x-wait") == seconds
    assert retry_after(answer(429)) is None


@pytest.mark.parametrize("content", [b"NaN", b"[Infinity]", b"{", b"\xff", b"[" * 100_000])
def test_only_standard_json_is_parsed(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the message is json's
        parse_json(content)


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"[1, 2.5]", [1, 2.5]),
        (b"9007199254740993", "9007199254740993"),
        (b"9007199254740992", 2**53),
        (b"0.10000000000000000001", "0.10000000000000000001"),
        (b"1e999", "1e999"),
    ],
)
def test_numbers_that_would_be_rounded_are_returned_as_text(content: bytes, value: Any) -> None:
    assert parse_json(content, exact=True) == value
