"""A session with a directory: encrypts, signs in and searches page by page (RFC 4511; paging: RFC 2696)."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from appliance.connectors.contract import ConfigError, ConnectorError, Context, Peer, SystemFailure, TransientError, Wire
from gos_connector_ldap.ber import (
    BOOLEAN,
    ENUMERATED,
    OCTETS,
    SEQUENCE,
    SET,
    BerError,
    Reader,
    boolean,
    element,
    integer,
    length_of,
    octets,
)
from gos_connector_ldap.result import CUT_OFF, SUCCESS, Result, error_of, read_result

_T = TypeVar("_T")
_BIND, _BIND_RESPONSE, _UNBIND = 0x60, 0x61, 0x42
_SEARCH, _ENTRY, _DONE, _REFERENCE = 0x63, 0x64, 0x65, 0x73
_EXTENDED, _EXTENDED_RESPONSE, _INTERMEDIATE = 0x77, 0x78, 0x79
_CONTROLS = 0xA0
_START_TLS = "1.3.6.1.4.1.1466.20037"
_PAGES = "1.2.840.113556.1.4.319"
MOST_MESSAGE = 16 * 1024 * 1024
_MOST_TOGETHER = 64 * 1024 * 1024
_MOST_REFERENCES = 1000
# Active Directory sends some empty pages; a directory that sends only empty pages would never finish.
_MOST_EMPTY_PAGES = 100

SCOPES = {"base": 0, "one": 1, "sub": 2}


@dataclass(frozen=True)
class Search:
    """A search; `conditions` is an encoded filter, and no `attributes` means all user attributes."""

    base: str
    scope: str
    conditions: bytes
    attributes: Sequence[str] = ()


@dataclass(frozen=True)
class Entry:
    """One entry with its values as raw bytes."""

    dn: str
    attributes: list[tuple[str, list[bytes]]]


@dataclass(frozen=True)
class SearchResult:
    """The entries of a search, whether there are more, and the URLs of servers that hold other parts of the tree."""

    entries: list[Entry]
    truncated: bool
    referrals: list[str]


class Session:
    """One connection, signed in; raises errors of the contract."""

    def __init__(self, peer: Peer, ctx: Context, bind_dn: str, password: str) -> None:
        self._wire = Wire(peer, ctx, max_bytes=_MOST_TOGETHER, advice="; request fewer entries or `attributes`")
        self._number = 0
        self._signed_in = bool(bind_dn)
        try:
            if peer.tls == "starttls":
                self._start_tls()
            if bind_dn:
                self._sign_in(bind_dn, password)
        except BaseException:
            self._wire.close()
            raise

    def close(self) -> None:
        """Send an unbind if the connection still works, and close it."""
        try:
            self._send(element(_UNBIND))
        except ConnectorError:
            return  # The directory closed the connection first.
        finally:
            self._wire.close()

    def search(self, query: Search, limit: int, page: int) -> SearchResult:
        """Return the first `limit` entries, read in pages of `page` entries; raise the contract's error on a failure."""
        collected = SearchResult([], False, [])
        cookie, empty = b"", 0
        while True:
            before = len(collected.entries)
            # One entry beyond the limit shows whether there are more.
            size = min(page, limit + 1 - before)
            result, cookie = self._read_page(query, size, cookie, collected, limit)
            if result is None:
                return SearchResult(collected.entries[:limit], True, collected.referrals)
            if result.code in CUT_OFF and collected.entries:
                return SearchResult(collected.entries, True, collected.referrals)
            if result.code != SUCCESS:
                raise error_of(result, str(self._wire.peer), signed_in=self._signed_in)
            if not cookie:
                return collected
            empty = empty + 1 if len(collected.entries) == before else 0
            if empty > _MOST_EMPTY_PAGES:
                raise SystemFailure(f"{self._wire.peer} sent more than {_MOST_EMPTY_PAGES} empty pages; its paging does not end.")

    # -- requests

    def _start_tls(self) -> None:
        number = self._send(element(_EXTENDED, octets(_START_TLS, 0x80)))
        tag, content, _ = self._receive_response(number)
        if tag != _EXTENDED_RESPONSE:
            raise self._wire.protocol_error("a message that is not a StartTLS response")
        result = self._parse(_parse_result, content)
        if result.code != SUCCESS:
            raise ConfigError(
                f"{self._wire.peer} does not start TLS ({result.name}); check whether `tls` must be tls, starttls or off.",
                details={"code": result.code, "message": result.message},
            )
        self._wire.encrypt()

    def _sign_in(self, bind_dn: str, password: str) -> None:
        number = self._send(element(_BIND, integer(3), octets(bind_dn), octets(password, 0x80)))
        tag, content, _ = self._receive_response(number)
        if tag != _BIND_RESPONSE:
            raise self._wire.protocol_error("a message that is not a bind response")
        result = self._parse(_parse_result, content)
        if result.code != SUCCESS:
            raise error_of(result, str(self._wire.peer), signed_in=True)

    def _read_page(
        self, query: Search, page: int, cookie: bytes, collected: SearchResult, limit: int
    ) -> tuple[Result | None, bytes]:
        """Add one page to `collected`; return its result and the next cookie, or no result beyond `limit` entries."""
        seconds = max(1, math.ceil(self._wire.seconds_left()))
        request = element(
            _SEARCH, octets(query.base), integer(SCOPES[query.scope], ENUMERATED), integer(0, ENUMERATED), integer(0),
            integer(seconds), boolean(False), query.conditions, element(SEQUENCE, *(octets(name) for name in query.attributes)),
        )  # fmt: skip
        page_request = element(SEQUENCE, integer(page), octets(cookie))
        # Not critical: a directory without paging sends everything at once.
        control = element(SEQUENCE, octets(_PAGES), octets(page_request))
        number = self._send(request, element(_CONTROLS, control))
        while True:
            tag, content, controls = self._receive_response(number)
            if tag == _ENTRY:
                collected.entries.append(self._parse(_parse_entry, content))
                if len(collected.entries) > limit:
                    return None, b""
            elif tag == _REFERENCE:
                collected.referrals.extend(self._parse(_parse_texts, content))
                if len(collected.referrals) > _MOST_REFERENCES:
                    raise SystemFailure(f"{self._wire.peer} refers to more than {_MOST_REFERENCES} other servers.")
            elif tag == _DONE:
                result = self._parse(_parse_result, content)
                return result, self._parse(_parse_cookie, controls)
            elif tag != _INTERMEDIATE:
                raise self._wire.protocol_error("a message that does not belong to a search")

    # -- messages

    def _send(self, *operation: bytes) -> int:
        self._number += 1
        self._wire.send(element(SEQUENCE, integer(self._number), *operation))
        return self._number

    def _receive_response(self, number: int) -> tuple[int, bytes, bytes]:
        """Return (tag, content, controls) of the next response to a request."""
        answered_number, tag, body, controls = self._parse(_parse_message, self._receive_message())
        if answered_number == 0:
            reason = self._disconnect_reason(body)
            raise TransientError(f"{self._wire.peer} announced that it closes the connection.", details={"message": reason})
        if answered_number != number:
            raise self._wire.protocol_error("a response to an unknown request")
        return tag, body, controls

    def _receive_message(self) -> bytes:
        """Return the content of the next message."""
        head = self._wire.read_exactly(2)
        while (lengths := self._parse(length_of, head)) is None:
            head += self._wire.read_exactly(1)
        if head[0] != SEQUENCE:
            raise self._wire.protocol_error("data that is not a message")
        _, size = lengths
        if size > MOST_MESSAGE:
            raise SystemFailure(
                f"{self._wire.peer} sent an entry of more than {MOST_MESSAGE // 2**20} MB; list only the `attributes` you need."
            )
        return self._wire.read_exactly(size)

    def _disconnect_reason(self, body: bytes) -> str:
        result = self._parse(_parse_result, body)
        return f"{result.name} {result.message}".strip()

    def _parse(self, parse: Callable[[bytes], _T], content: bytes) -> _T:
        try:
            return parse(content)
        except BerError as error:
            raise self._wire.protocol_error(str(error)) from error


def _parse_message(content: bytes) -> tuple[int, int, bytes, bytes]:
    """Return (number, tag, content, controls) of a message."""
    reader = Reader(content)
    number = reader.number()
    tag = reader.next_tag() or 0
    body = reader.take()
    return number, tag, body, reader.take(_CONTROLS) if reader.next_tag() == _CONTROLS else b""


def _parse_result(content: bytes) -> Result:
    return read_result(Reader(content))


def _parse_entry(content: bytes) -> Entry:
    reader = Reader(content)
    dn = reader.text()
    inner = Reader(reader.take(SEQUENCE))
    attributes = []
    while inner.next_tag() is not None:
        attribute = Reader(inner.take(SEQUENCE))
        attributes.append((attribute.text(), list(_read_values(Reader(attribute.take(SET))))))
    return Entry(dn, attributes)


def _read_values(reader: Reader) -> Iterator[bytes]:
    while reader.next_tag() is not None:
        yield reader.take(OCTETS)


def _parse_texts(content: bytes) -> list[str]:
    return [value.decode("utf-8", "replace") for value in _read_values(Reader(content))]


def _parse_cookie(controls: bytes) -> bytes:
    """Return the cookie of the next page; empty after the last page, or when the directory has no paging."""
    reader = Reader(controls)
    while reader.next_tag() is not None:
        control = Reader(reader.take(SEQUENCE))
        kind = control.text()
        if control.next_tag() == BOOLEAN:
            control.take(BOOLEAN)
        if kind == _PAGES:
            inner = Reader(Reader(control.take(OCTETS)).take(SEQUENCE))
            inner.number()
            return inner.take(OCTETS)
    return b""
