"""Determines the encoding of an imported file from its declared charset and its first bytes."""

import codecs
from typing import BinaryIO, Literal

from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence
from appliance.formats import ENCODINGS

# Accepted encodings of a CSV, by Python's names. Codecs that do more than decode text are left out.
CHARSETS = frozenset(codecs.lookup(name).name for name in ENCODINGS)
_COMPRESSED_MAGIC = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "ZIP (or XLSX)"}


def detect_charset(file: BinaryIO, form: Literal["csv", "ndjson"], charset: str) -> str:
    """The encoding of an import with this `charset` (empty: UTF-8, or UTF-16 when the file starts with a byte order mark).

    ValidationFailed for a compressed file, an unknown charset, or one that contradicts the byte order mark.
    """
    head = file.read(4)
    file.seek(0)
    for magic, name in _COMPRESSED_MAGIC.items():
        if head.startswith(magic):
            raise ValidationFailed(
                Sentence("the body is a %(name)s file, not text; unpack it and send its content", name=name), pointer="/body"
            )
    try:
        codec = codecs.lookup(charset or "utf-8").name
    except (LookupError, ValueError) as error:
        raise ValidationFailed(
            Sentence("the charset %(charset)s is unknown; send the rows as UTF-8", charset=repr(charset[:60])), pointer="/charset"
        ) from error
    if codec not in CHARSETS:
        raise ValidationFailed(
            Sentence("the charset %(charset)s is not supported; send the rows as UTF-8", charset=repr(charset[:60])),
            pointer="/charset",
        )
    is_utf16 = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and head != codecs.BOM_UTF32_LE
    if form == "ndjson" and (is_utf16 or codec not in ("utf-8", "utf-8-sig", "ascii")):
        encoding = "UTF-16" if is_utf16 else charset[:60]
        raise ValidationFailed(
            Sentence("the body is %(encoding)s, but NDJSON must be UTF-8; save it as UTF-8", encoding=encoding), pointer="/body"
        )
    if is_utf16 and charset and not codec.startswith("utf-16"):
        raise ValidationFailed(
            Sentence("the body is UTF-16, not %(charset)s; send it with charset=utf-16", charset=charset[:60]), pointer="/charset"
        )
    return "utf-16" if is_utf16 else codec
