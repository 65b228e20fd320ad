"""Normalizes host names for comparison: case, trailing dots, IDNA, user information, notations of IP addresses."""

import re
import socket
from functools import lru_cache

import httpx

from appliance.connectors.network.addresses import Address, innermost, parse_address

_NUMBERS = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}")
"""The notations of an IPv4 address that the C library accepts: one to four parts, decimal, octal or hexadecimal."""


@lru_cache(4096)
def normal_host(text: str) -> str:
    """Normalize `name` or `name:port` to the form that rules compare; an IPv6 address has brackets."""
    text = text.strip().lower().rpartition("@")[2]
    if parse_address(text) is not None and ":" in text and not text.startswith("["):
        return _normal_name(text)
    name, colon, port = text.rpartition(":")
    if not (colon and port.isdecimal() and (":" not in name or name.endswith("]"))):
        return _normal_name(text)
    return f"{_normal_name(name)}:{int(port)}"


def normal_glob(glob: str) -> str:
    """Normalize a host pattern for comparison; labels without a wildcard are converted to ASCII like those of names."""
    if "*" not in glob:
        return normal_host(glob)
    labels = glob.lower().rstrip(".").split(".")
    return ".".join(label if "*" in label or label.isascii() else _ascii(label) for label in labels)


def without_port(host: str) -> str:
    """Return a normalized host without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and (":" not in name or name.endswith("]")) else host


def _normal_name(name: str) -> str:
    name = name.rstrip(".")
    address = parse_address(name)
    if address is None and _NUMBERS.fullmatch(name):
        address = _as_number(name)
    if address is not None:
        plain = innermost(address)
        return f"[{plain}]" if plain.version == 6 else str(plain)
    return name if name.isascii() else _ascii(name)


def _as_number(name: str) -> Address | None:
    try:
        return parse_address(socket.inet_ntoa(socket.inet_aton(name)))
    except OSError:
        return None


def _ascii(name: str) -> str:
    """Convert a name to ASCII (IDNA), as the HTTP client does; unchanged when it is invalid."""
    try:
        return httpx.URL(scheme="http", host=name).raw_host.decode("ascii").rstrip(".")
    except (httpx.InvalidURL, UnicodeError, ValueError):
        return name
