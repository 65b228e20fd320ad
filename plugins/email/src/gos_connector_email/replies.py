"""What an IMAP server sends (RFC 9051): lines with literals, as tokens and nested lists."""

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

# A parenthesis, a quoted string, or an atom; an atom may have a part in brackets, with spaces in it: BODY[HEADER.FIELDS (TO)].
_TOKEN = re.compile(rb'\s*(?:([()])|"((?:[^"\\]|\\.)*)"|((?:[^\s()"\[\]]|\[[^\]]*\])+))')
_LITERAL = re.compile(rb"\{(\d{1,12})\+?\}\Z")
_SHIFTED = re.compile(r"&([^-]*)-")
_TO_SHIFT = re.compile(r"&|[^\x20-\x7e]+")
DEEPEST = 20


class Unreadable(Exception):
    """The server's line is not of the grammar."""


@dataclass(frozen=True)
class Told:
    """One reply: its line cut at its literals, `line[0] literal[0] line[1] …`."""

    lines: tuple[bytes, ...]
    literals: tuple[bytes, ...] = ()

    @property
    def text(self) -> str:
        return self.lines[0].decode("utf-8", "replace")

    def tokens(self) -> list[Any]:
        """Atoms and texts as bytes, lists as lists; Unreadable when it does not add up."""
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
            if len(open_lists) > DEEPEST:
                raise Unreadable
        if len(open_lists) != 1:
            raise Unreadable
        return open_lists[0]

    def _flat(self) -> Iterator[bytes | str]:
        for index, line in enumerate(self.lines):
            at, end = 0, len(line.rstrip())
            while at < end:
                found = _TOKEN.match(line, at)
                if found is None:
                    raise Unreadable
                at = found.end()
                if found.group(1) is not None:
                    yield found.group(1).decode()
                elif found.group(2) is not None:
                    yield re.sub(rb"\\(.)", rb"\1", found.group(2))
                else:
                    yield found.group(3)
            if index < len(self.literals):
                yield self.literals[index]


def literal_size(line: bytes) -> int | None:
    """How many bytes of literal follow this line, None when it is complete."""
    found = _LITERAL.search(line)
    return int(found.group(1)) if found else None


def without_literal(line: bytes) -> bytes:
    return _LITERAL.sub(b"", line)


def pairs(tokens: Sequence[Any]) -> dict[str, Any]:
    """`name value name value …` by name in upper case."""
    if len(tokens) % 2 or not all(isinstance(name, bytes) for name in tokens[::2]):
        raise Unreadable
    return {name.decode("ascii", "replace").upper(): value for name, value in zip(tokens[::2], tokens[1::2], strict=True)}


def number(token: Any) -> int:
    if not isinstance(token, bytes) or not re.fullmatch(rb"\d{1,19}", token):
        raise Unreadable
    return int(token)


def decode_folder(name: bytes) -> str:
    """A folder's name out of IMAP's UTF-7; a name that is not in it, as UTF-8."""

    def plain(found: re.Match[str]) -> str:
        shifted = found.group(1)
        if not shifted:
            return "&"
        padded = shifted.replace(",", "/") + "=" * (-len(shifted) % 4)
        return base64.b64decode(padded, validate=True).decode("utf-16-be")

    try:
        return _SHIFTED.sub(plain, name.decode("ascii"))
    except ValueError:
        return name.decode("utf-8", "replace")


def encode_folder(name: str) -> bytes:
    """A folder's name in IMAP's UTF-7."""

    def shifted(found: re.Match[str]) -> str:
        if found.group() == "&":
            return "&-"
        coded = base64.b64encode(found.group().encode("utf-16-be")).decode("ascii").rstrip("=")
        return f"&{coded.replace('/', ',')}-"

    return _TO_SHIFT.sub(shifted, name).encode("ascii")
