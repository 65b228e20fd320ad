"""Distinguished names and filters: how values become part of a filter, and when two names are the same (RFC 4514, 4515)."""

import re

Dn = tuple[tuple[tuple[str, str], ...], ...]
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789@._-")
_PART = re.compile(r"((?:\\.|[^\\,;+])*)([,;+]?)", re.DOTALL)
_SPACES = re.compile(" +")
_ESCAPED = re.compile(rb"\\([0-9A-Fa-f]{2})|\\(.)", re.DOTALL)


def escape_value(value: str | bytes) -> str:
    """A value as part of a filter, of which it can change nothing: every byte but letters, digits and @._- is escaped."""
    content = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return "".join(chr(byte) if byte in _PLAIN else f"\\{byte:02x}" for byte in content)


def equals(attribute: str, value: str | bytes) -> str:
    """The filter of entries whose attribute has this value."""
    return f"({attribute}={escape_value(value)})"


def any_of(filters: list[str]) -> str:
    """The filter of entries that match one of these, of which there is one at least."""
    return filters[0] if len(filters) == 1 else f"(|{''.join(filters)})"


def parse_dn(text: str) -> Dn:
    """A distinguished name in a form in which equal names are equal: without case, spaces around parts, and escapes."""
    names: list[tuple[tuple[str, str], ...]] = []
    parts: list[tuple[str, str]] = []
    for match in _PART.finditer(text):
        attribute, _, value = match[1].partition("=")
        parts.append((attribute.strip().lower(), _read_value(value)))
        if match[2] != "+":
            names.append(tuple(sorted(parts)))
            parts = []
        if not match[2]:
            break
    return tuple(names)


def _read_value(text: str) -> str:
    """A value without the spaces around it, of which an escaped one is part of it."""
    stripped = text.strip()
    if stripped.endswith("\\") and not stripped.endswith("\\\\"):
        stripped += " "  # the last space was escaped
    plain = _ESCAPED.sub(lambda each: bytes([int(each[1], 16)]) if each[1] else each[2], stripped.encode("utf-8", "replace"))
    return _SPACES.sub(" ", plain.decode("utf-8", "replace").casefold())
