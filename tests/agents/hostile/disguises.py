"""Encodings that hide instructions from text filters, and a reader that decodes all of them."""

import base64
import binascii
import codecs
import html
import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote

_PIECE = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_HEX = re.compile(r"(?:[0-9a-f]{2}){24,}")
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})")
_HIDDEN = re.compile("[\u200b\u200c\u200d\u2060\ufeff]")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _tags(text: str) -> str:
    return "".join(chr(0xE0000 + ord(letter)) for letter in text)


def _full_width(text: str) -> str:
    return "".join(chr(ord(letter) + 0xFEE0) if "!" <= letter <= "~" else letter for letter in text)


DISGUISES: dict[str, Callable[[str], str]] = {
    "": str,
    "nested": lambda text: json.dumps({"note": json.dumps({"inner": json.dumps([text])})}),
    "base64": _base64,
    "base64-twice": lambda text: _base64(_base64(text)),
    "rot13": lambda text: str(codecs.encode(text, "rot13")),
    "backwards": lambda text: f"\u202e{text[::-1]}\u202c",
    "zero-width": "\u200b".join,
    "tags": _tags,
    "full-width": _full_width,
    "html": html.escape,
    "percent": quote,
    "hex": lambda text: text.encode().hex(),
    "escapes": lambda text: "".join(f"\\u{ord(letter):04x}" for letter in text),
    "character-references": lambda text: "".join(f"&#{ord(letter)};" for letter in text),
}


def readings(text: str, depth: int = 3) -> Iterator[str]:
    """The text, and everything that may be hidden in it."""
    yield text
    if not depth:
        return
    decoded = [
        _HIDDEN.sub("", text),
        unicodedata.normalize("NFKC", text),
        html.unescape(text),
        unquote(text),
        _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text),
        "".join(chr(ord(letter) - 0xE0000) for letter in text if 0xE0020 <= ord(letter) <= 0xE007E),
        *_decoded(text),
    ]
    if depth == 3:
        decoded += [codecs.decode(text, "rot13"), text[::-1].strip("\u202e\u202c")]
    for each in dict.fromkeys(decoded):
        if each and each != text:
            yield from readings(each, depth - 1)


def _decoded(text: str) -> Iterator[str]:
    for pattern, decode in ((_HEX, bytes.fromhex), (_PIECE, _from_base64)):
        for piece in pattern.findall(text):
            try:
                yield decode(piece).decode("utf-8")
            except (ValueError, binascii.Error):
                continue


def _from_base64(piece: str) -> bytes:
    return base64.b64decode(piece + "=" * (-len(piece) % 4), altchars="-_" if set(piece) & set("-_") else None, validate=True)
