"""Failures: which error of the contract each one raises, and that passwords are never sent or shown."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from gos_connector_ldap import LdapConnector
from gos_connector_ldap.ber import BerError, Reader, boolean, element, integer, octets
from gos_connector_ldap.session import MOST_MESSAGE
from hypothesis import example, given, settings
from hypothesis import strategies as st

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Json,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)
from appliance.connectors.testing import open_context

Directory = Any
Scripting = Callable[[Callable[[bytes], bytes | None]], Any]
PAGES = "1.2.840.113556.1.4.319"


def search_error(settings: Json, seconds: float = 20, **params: Any) -> ConnectorError:
    with open_context(seconds=seconds) as ctx, pytest.raises(ConnectorError) as caught:
        LdapConnector(settings).call("search", {"where": {"uid": "anna"}, **params}, ctx)
    assert caught.value.outcome == "not_done"
    password = settings.get("password")
    assert password is None or password not in caught.value.message + json.dumps(caught.value.details, ensure_ascii=False)
    return caught.value


def search_done(code: int, message: str = "", tag: int = 0x65, number: int = 1) -> bytes:
    """A message that ends a search."""
    return element(0x30, integer(number), element(tag, integer(code, 0x0A), octets(""), octets(message)))


def entry(number: int = 1) -> bytes:
    return element(0x30, integer(number), element(0x64, octets("uid=a,dc=x"), element(0x30)))


def page(cookie: bytes, number: int) -> bytes:
    control = element(0x30, octets(PAGES), octets(element(0x30, integer(0), octets(cookie))))
    done = element(0x65, integer(0, 0x0A), octets(""), octets(""))
    return element(0x30, integer(number), done, element(0xA0, control))


@pytest.mark.parametrize("encryption", ["tls", "starttls"])
@pytest.mark.parametrize("wrong", [{"password": "wrong-secret"}, {"bind_dn": "cn=nobody,dc=example,dc=com"}])
def test_a_wrong_user_or_password_is_reported(directory: Directory, encryption: str, wrong: Json) -> None:
    error = search_error({**getattr(directory, encryption), **wrong})
    assert type(error) is AuthError
    assert "does not accept `bind_dn` and `password` (invalidCredentials)" in error.message


@pytest.mark.parametrize("settings", [{"host": "127.0.0.1", "port": 1}, {"host": "no-such-host.invalid"}])
def test_an_address_without_a_directory_is_transient(settings: Json) -> None:
    assert type(search_error({**settings, "base_dn": ""})) is TransientError


def test_a_password_is_not_sent_in_clear_text(scripted: Scripting) -> None:
    server = scripted(lambda _: None)
    assert "not sent in clear text" in search_error({**server.settings, "bind_dn": "cn=a", "password": "very-secret"}).message
    assert server.received == []


def test_a_certificate_of_an_unknown_authority_is_refused(directory: Directory) -> None:
    for encryption in ("tls", "starttls"):
        settings = {name: value for name, value in getattr(directory, encryption).items() if name != "ca"}
        error = search_error(settings)
        assert type(error) is ConfigError
        assert "is not trusted" in error.message
        assert "to `ca`" in error.message


def test_a_certificate_for_another_host_is_refused(directory: Directory) -> None:
    assert "is not trusted" in search_error({**directory.tls, "host": "localhost"}).message


def test_mismatched_port_encryption_and_ca_are_reported(directory: Directory) -> None:
    assert "does not start TLS" in search_error({**directory.tls, "port": directory.off["port"]}).message
    assert "contains no PEM certificate" in search_error({**directory.tls, "ca": "nonsense"}).message


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (search_done(2, tag=0x78), "does not start TLS (protocolError)"),
        (search_done(0, tag=0x78) + b"more", "sent clear text after agreeing to TLS"),
        (search_done(0, tag=0x61), "not a StartTLS response"),
    ],
)
def test_no_password_is_sent_without_tls(scripted: Scripting, answer: bytes, expected: str) -> None:
    server = scripted(lambda _: answer)
    error = search_error({**server.settings, "tls": "starttls", "bind_dn": "cn=a", "password": "very-secret"})
    assert expected in error.message
    assert b"very-secret" not in b"".join(server.received)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (1, AuthError), (2, Rejected), (3, TransientError), (4, Rejected), (8, ConfigError), (13, ConfigError),
        (34, Rejected), (49, AuthError), (50, AuthError), (51, RateLimited), (52, TransientError), (53, Rejected),
        (80, SystemFailure), (999, Rejected),
    ],
)  # fmt: skip
def test_result_codes_map_to_contract_errors(scripted: Scripting, code: int, error: type[ConnectorError]) -> None:
    raised = search_error(scripted(lambda _: search_done(code, "because of that")).settings)
    assert type(raised) is error
    assert "because of that" in json.dumps(raised.details)
    assert raised.details["code"] == code


def test_a_silent_directory_fails_at_the_deadline(scripted: Scripting) -> None:
    waiting = threading.Event()

    def wait(_: bytes) -> bytes:
        waiting.wait(20)
        return b""

    error = search_error(scripted(wait).settings, seconds=1)
    waiting.set()
    assert type(error) is TransientError


def test_a_directory_that_disconnects_is_transient(scripted: Scripting) -> None:
    assert "closed the connection" in search_error(scripted(lambda _: None).settings).message
    assert "closed the connection" in search_error(scripted(lambda _: entry()[:-1]).settings, seconds=1).message
    error = search_error(scripted(lambda _: search_done(52, "closing", tag=0x78, number=0)).settings)
    assert (type(error), error.details["message"]) == (TransientError, "unavailable closing")


MALFORMED = {
    "not LDAP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "not a message": b"\x04\x02ab",
    "an indefinite length": b"\x30\x80\x02\x01\x01",
    "a length of nine bytes": b"\x30\x89" + bytes(9),
    "a long tag": b"\x1f\x81\x01\x00",
    "an empty message": b"\x30\x00",
    "a huge message": b"\x30\x84" + (MOST_MESSAGE + 1).to_bytes(4, "big"),
    "a part longer than its whole": b"\x30\x06\x02\x01\x01\x64\x20\x04",
    "another number": search_done(0, number=7),
    "another kind of answer": search_done(0, tag=0x61),
    "a number of five bytes": element(0x30, b"\x02\x05\x01\x01\x01\x01\x01", element(0x65)),
    "an entry without attributes": element(0x30, integer(1), element(0x64, octets("dc=x"))),
    "values that are no values": element(
        0x30, integer(1), element(0x64, octets("dc=x"), element(0x30, element(0x30, octets("cn"), element(0x31, integer(1)))))
    ),
    "no cookie": element(
        0x30,
        integer(1),
        element(0x65, integer(0, 0x0A), octets(""), octets("")),
        element(0xA0, element(0x30, octets(PAGES), octets(""))),
    ),
}


@pytest.mark.parametrize("lie", MALFORMED)
def test_a_malformed_answer_is_a_failure(scripted: Scripting, lie: str) -> None:
    error = search_error(scripted(lambda _: MALFORMED[lie]).settings)
    assert type(error) is SystemFailure
    assert "violated the LDAP protocol" in error.message or "of more than" in error.message


def test_endless_empty_pages_are_aborted(scripted: Scripting) -> None:
    numbers = iter(range(1, 1000))
    assert "paging does not end" in search_error(scripted(lambda _: page(b"again", next(numbers))).settings).message


def test_endless_references_are_aborted(scripted: Scripting) -> None:
    reference = element(0x30, integer(1), element(0x73, octets("ldap://127.0.0.2/")))
    assert "other servers" in search_error(scripted(lambda _: reference * 1001).settings).message


def test_results_without_paging_are_cut_at_the_limit(scripted: Scripting) -> None:
    server = scripted(lambda _: entry() * 20 + search_done(0))
    with open_context() as ctx:
        answer = LdapConnector(server.settings).call("search", {"limit": 7}, ctx)
    assert (len(answer["entries"]), answer["truncated"]) == (7, True)


def test_an_endless_answer_is_aborted(scripted: Scripting) -> None:
    noise = element(0x30, integer(1), element(0x79, bytes(1024 * 1024)))
    assert "sent more than" in search_error(scripted(lambda _: noise * 65).settings).message


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_parsed_or_rejected(content: bytes) -> None:
    reader = Reader(content)
    try:
        while reader.next_tag() is not None:
            reader.take()
    except BerError:
        return
    assert reader.next_tag() is None


@settings(deadline=None)
@example(-(2**31), 0, False)
@example(-128, 0, False)
@given(st.integers(-(2**31), 2**31 - 1), st.sampled_from([0, 1, 127, 128, 255, 256, 65_535, 65_536]), st.booleans())
def test_encoded_values_round_trip(number: int, size: int, truth: bool) -> None:
    content = b"x" * size
    reader = Reader(element(0x30, integer(number), octets(content), boolean(truth)))
    inner = Reader(reader.take(0x30))
    assert (inner.number(), inner.take(0x04), inner.take(0x01)) == (number, content, b"\xff" if truth else b"\x00")
    assert inner.next_tag() is None
