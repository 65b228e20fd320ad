"""Parses IMAP server replies (RFC 9051): lines with literals into tokens and nested lists."""

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

# A parenthesis, a quoted string or an atom; an atom may contain brackets with spaces in them: BODY[HEADER.FIELDS (TO)].
_TOKEN = re.compile(rb'\s*(?:([()])|"((?:[^"\\]|\\.)*)"|((?:[^\s()"\[\]]|\[[^\]]*\])+))')
_LITERAL = re.compile(rb"\{(\d{1,12})\+?\}\Z")
_SHIFTED = re.compile(r"&([^-]*)-")
_TO_SHIFT = re.compile(r"&|[^\x20-\x7e]+")
MAX_DEPTH = 20


class Unreadable(Exception):
    """The server's reply does not follow the IMAP grammar."""


@dataclass(frozen=True)
class Reply:
    """One reply, split at its literals: `lines[0] literals[0] lines[1] …`."""

    lines: tuple[bytes, ...]
    literals: tuple[bytes, ...] = ()

    @property
    def text(self) -> str:
        return self.lines[0].decode("utf-8", "replace")

    def tokens(self) -> list[Any]:
        """Atoms and strings as bytes, parenthesized lists as lists; Unreadable when parentheses do not match."""
        open_lists: list[list[Any]] = [[]]
        for part in self._flat():
            if part == "(":
                open_lists.append([])
            elif part == ")" and len(open_lists) > 1:
                closed = open_lists.pop()
                open_lists[-1].append(closed)
            elif isinstance(part, bytes):
                open_lists[-1].append(part)
            else:
                raise Unreadable
            if len(open_lists) > MAX_DEPTH:
                raise Unreadable
        if len(open_lists) != 1:
            raise Unreadable
        return open_lists[0]

    def _flat(self) -> Iterator[bytes | str]:
        for index, line in enumerate(self.lines):
            position, end = 0, len(line.rstrip())
            while position < end:
                match = _TOKEN.match(line, position)
                if match is None:
                    raise Unreadable
                position = match.end()
                if match.group(1) is not None:
                    yield match.group(1).decode()
                elif match.group(2) is not None:
                    yield re.sub(rb"\\(.)", rb"\1", match.group(2))
                else:
                    yield match.group(3)
            if index < len(self.literals):
                yield self.literals[index]


def literal_size(line: bytes) -> int | None:
    """The size in bytes of the literal that follows this line, or None when no literal follows."""
    match = _LITERAL.search(line)
    return int(match.group(1)) if match else None


def without_literal(line: bytes) -> bytes:
    return _LITERAL.sub(b"", line)


def pairs(tokens: Sequence[Any]) -> dict[str, Any]:
    """`name value name value …` as a dict by name in upper case."""
    if len(tokens) % 2 or not all(isinstance(name, bytes) for name in tokens[::2]):
        raise Unreadable
    return {name.decode("ascii", "replace").upper(): value for name, value in zip(tokens[::2], tokens[1::2], strict=True)}


def number(token: Any) -> int:
    if not isinstance(token, bytes) or not re.fullmatch(rb"\d{1,19}", token):
        raise Unreadable
    return int(token)


def decode_folder(name: bytes) -> str:
    """Decode a folder name from IMAP's modified UTF-7; a name that is not valid in it is read as UTF-8."""

    def decode(match: re.Match[str]) -> str:
        shifted = match.group(1)
        if not shifted:
            return "&"
        padded = shifted.replace(",", "/") + "=" * (-len(shifted) % 4)
        return base64.b64decode(padded, validate=True).decode("utf-16-be")

    try:
        return _SHIFTED.sub(decode, name.decode("ascii"))
    except ValueError:
        return name.decode("utf-8", "replace")


def encode_folder(name: str) -> bytes:
    """Encode a folder name in IMAP's modified UTF-7."""

    def encode(match: re.Match[str]) -> str:
        if match.group() == "&":
            return "&-"
        coded = base64.b64encode(match.group().encode("utf-16-be")).decode("ascii").rstrip("=")
        return f"&{coded.replace('/', ',')}-"

    return _TO_SHIFT.sub(encode, name).encode("ascii")
