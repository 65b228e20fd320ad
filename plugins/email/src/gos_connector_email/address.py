"""Addresses and header lines of a message that is sent: what could end a line or open another is refused."""

import re
from collections.abc import Iterable
from email.header import Header
from email.utils import formataddr
from typing import Any

from appliance.connectors.contract import ConfigError

# An atom, dots in it allowed: nothing that could end an SMTP command or a header.
_LOCAL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}")
_DOMAIN = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,75}")
# What the connector writes itself, or what would change who gets the message or how it is read.
_OWN = {
    *("from", "sender", "to", "cc", "bcc", "reply-to", "subject", "date", "message-id", "mime-version", "return-path", "received"),
}


def spelled(address: str) -> str:
    """The address as it goes over the wire: its domain in ASCII; ConfigError when it is none."""
    local, at, domain = address.rpartition("@")
    try:
        ascii_domain = domain.encode("idna").decode("ascii") if not domain.isascii() else domain
    except UnicodeError as error:
        raise ConfigError(f"The domain of {address[:200]!r} cannot be written in ASCII; check the address.") from error
    if not at or not _LOCAL.fullmatch(local) or not _DOMAIN.fullmatch(ascii_domain):
        raise ConfigError(f"{address[:200]!r} is no address that can be sent to; write it as name@example.com.")
    return f"{local}@{ascii_domain}"


def address_of(given: Any) -> str:
    """The address of a text, or of an object with `address` and `name`."""
    return spelled(given if isinstance(given, str) else given["address"])


def header(name: str, value: str) -> bytes:
    """One header as lines of ASCII."""
    plain(value, name)
    if value.isascii() and "=?" not in value and len(name) + len(value) < 900:
        # Folded by nobody: white space of an identifier list must stay where it is.
        return f"{name}: {value}\r\n".encode("ascii")
    return f"{name}: {Header(value, 'utf-8', header_name=name).encode(linesep=chr(13) + chr(10))}\r\n".encode("ascii")


def address_header(name: str, given: Iterable[Any]) -> bytes:
    """A header of addresses with their names, one a line."""
    return f"{name}: {(',' + chr(13) + chr(10) + ' ').join(_shown(each) for each in given)}\r\n".encode("ascii")


def own_header(name: str, value: str) -> bytes:
    """A header the sender adds; ConfigError for one that is the connector's."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name[:80]!r} is no name of a header.")
    if name.lower() in _OWN or name.lower().startswith(("content-", "resent-", "dkim-")):
        raise ConfigError(f"The header {name} is written by the connector; leave it out of `headers`.")
    return header(name, value)


def plain(value: str, what: str) -> str:
    """The text itself; ConfigError when it holds a line break or another control character."""
    if _CONTROL.search(value):
        raise ConfigError(f"{what} contains a line break or a control character; remove it.")
    return value


def _shown(given: Any) -> str:
    address = address_of(given)
    name = plain(given.get("name", ""), "A name") if isinstance(given, dict) else ""
    if name.isascii() and "=?" not in name:
        return formataddr((name, address))
    return f"{Header(name, 'utf-8', maxlinelen=70).encode(linesep=chr(13) + chr(10))} <{address}>"
