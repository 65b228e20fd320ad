"""Which encoding a file that is imported has, by what its sender says and by how it begins."""

import codecs
from typing import BinaryIO, Literal

from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence
from appliance.formats import KNOWN

# Encodings of a CSV by the names that Python gives them; none that decodes more than text.
CHARSETS = frozenset(codecs.lookup(name).name for name in KNOWN)
_COMPRESSED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "ZIP (or XLSX)"}


def find_charset(file: BinaryIO, form: Literal["csv", "ndjson"], charset: str) -> str:
    """The encoding of an import, by its `charset` (empty: UTF-8, or UTF-16 where the file begins with its mark).

    ValidationFailed for a file that is compressed, an encoding that nobody knows, and one that the file does not have.
    """
    head = file.read(4)
    file.seek(0)
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            raise ValidationFailed(
                Sentence("the body is a %(name)s file, not text; unpack it and send what is in it", name=name), pointer="/body"
            )
    try:
        named = codecs.lookup(charset or "utf-8").name
    except (LookupError, ValueError) as error:
        raise ValidationFailed(
            Sentence("there is no charset %(charset)s; send the rows as UTF-8", charset=repr(charset[:60])), pointer="/charset"
        ) from error
    if named not in CHARSETS:
        raise ValidationFailed(
            Sentence("the charset %(charset)s is not read here; send the rows as UTF-8", charset=repr(charset[:60])),
            pointer="/charset",
        )
    is_utf16 = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and head != codecs.BOM_UTF32_LE
    if form == "ndjson" and (is_utf16 or named not in ("utf-8", "utf-8-sig", "ascii")):
        told = "UTF-16" if is_utf16 else charset[:60]
        raise ValidationFailed(
            Sentence("the body is %(told)s, and NDJSON is UTF-8 always; save it as UTF-8", told=told), pointer="/body"
        )
    if is_utf16 and charset and not named.startswith("utf-16"):
        raise ValidationFailed(
            Sentence("the body is UTF-16, not %(charset)s; send it with charset=utf-16", charset=charset[:60]), pointer="/charset"
        )
    return "utf-16" if is_utf16 else named
