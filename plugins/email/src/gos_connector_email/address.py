"""Addresses and header lines of outgoing messages; refuses values that could inject a header or an SMTP command."""

import re
from collections.abc import Iterable
from email.header import Header
from email.utils import formataddr
from typing import Any

from appliance.connectors.contract import ConfigError

# An atom, dots allowed: no character that could end an SMTP command or a header.
_LOCAL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}")
_DOMAIN = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,75}")
# Headers the connector writes itself, and headers that would change who receives the message or how it is parsed.
_OWN = {
    *("from", "sender", "to", "cc", "bcc", "reply-to", "subject", "date", "message-id", "mime-version", "return-path", "received"),
}


def normalize(address: str) -> str:
    """The address with its domain in ASCII, as SMTP needs it; ConfigError when it is not a valid address."""
    local, at, domain = address.rpartition("@")
    try:
        ascii_domain = domain.encode("idna").decode("ascii") if not domain.isascii() else domain
    except UnicodeError as error:
        raise ConfigError(f"The domain of {address[:200]!r} cannot be written in ASCII; check the address.") from error
    if not at or not _LOCAL.fullmatch(local) or not _DOMAIN.fullmatch(ascii_domain):
        raise ConfigError(f"{address[:200]!r} is not a valid address; write it as name@example.com.")
    return f"{local}@{ascii_domain}"


def address_of(value: Any) -> str:
    """The address of a string, or of an object with `address` and `name`."""
    return normalize(value if isinstance(value, str) else value["address"])


def header(name: str, value: str) -> bytes:
    """One header as ASCII lines, encoded and folded where needed."""
    require_plain(value, name)
    if value.isascii() and "=?" not in value and len(name) + len(value) < 900:
        # Not folded: white space in a list of identifiers must stay where it is.
        return f"{name}: {value}\r\n".encode("ascii")
    return f"{name}: {Header(value, 'utf-8', header_name=name).encode(linesep=chr(13) + chr(10))}\r\n".encode("ascii")


def address_header(name: str, addresses: Iterable[Any]) -> bytes:
    """A header with addresses and their names, one per line."""
    return f"{name}: {(',' + chr(13) + chr(10) + ' ').join(_format(each) for each in addresses)}\r\n".encode("ascii")


def own_header(name: str, value: str) -> bytes:
    """A custom header; ConfigError for headers that the connector writes itself."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name[:80]!r} is not a valid header name.")
    if name.lower() in _OWN or name.lower().startswith(("content-", "resent-", "dkim-")):
        raise ConfigError(f"The header {name} is written by the connector; leave it out of `headers`.")
    return header(name, value)


def require_plain(value: str, what: str) -> str:
    """`value` unchanged; ConfigError when it contains a line break or another control character."""
    if _CONTROL.search(value):
        raise ConfigError(f"{what} contains a line break or a control character; remove it.")
    return value


def _format(value: Any) -> str:
    address = address_of(value)
    name = require_plain(value.get("name", ""), "A name") if isinstance(value, dict) else ""
    if name.isascii() and "=?" not in name:
        return formataddr((name, address))
    return f"{Header(name, 'utf-8', maxlinelen=70).encode(linesep=chr(13) + chr(10))} <{address}>"
