"""Detects the encoding of a text: by byte order mark, else UTF-8 if all of it decodes, else the most likely one."""

import codecs
import io
from io import BufferedReader

from .errors import ContentInvalid

SAMPLE, CHUNK = 256 << 10, 1 << 20
# The encodings considered by the detection, most likely first.
DETECTABLE_ENCODINGS = (
    "cp1252",
    "cp1250",
    "cp1251",
    "cp1253",
    "cp1254",
    "shift_jis",
    "euc_jp",
    "gb18030",
    "big5",
    "euc_kr",
    "koi8_r",
)
ENCODINGS = (
    "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "ascii", "latin-1", "iso8859-2", "iso8859-5", "iso8859-7",
    "iso8859-9", "iso8859-15", "cp437", "cp850", "cp852", "cp866", "cp1255", "cp1256", "cp1257", "cp1258", "mac_roman", "cp932",
    *DETECTABLE_ENCODINGS,
)  # fmt: skip
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def load() -> None:
    """Load every encoding and the detector, because the worker cannot open files later."""
    import charset_normalizer  # noqa: F401

    for name in (*ENCODINGS, "idna"):
        codecs.lookup(name)


def detect_encoding(content: BufferedReader, encoding: str | None) -> str:
    """The given encoding, or the detected one; rewinds the content."""
    if encoding is not None:
        try:
            name = codecs.lookup(encoding).name
        except (LookupError, ValueError) as error:
            raise ContentInvalid(
                f"the encoding {encoding[:60]!r} is unknown; use one of {', '.join(sorted(set(ENCODINGS)))}"
            ) from error
        head = content.read(4)
        content.seek(0)
        return "utf-8-sig" if name == "utf-8" and head.startswith(codecs.BOM_UTF8) else name
    sample = content.read(SAMPLE)
    content.seek(0)
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return name
    return "utf-8" if _is_utf8(content) else _detect_legacy_encoding(sample)


def _is_utf8(content: BufferedReader) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        while chunk := content.read(CHUNK):
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    finally:
        content.seek(0)
    return True


def _detect_legacy_encoding(sample: bytes) -> str:
    from charset_normalizer import from_bytes

    match = from_bytes(sample, cp_isolation=list(DETECTABLE_ENCODINGS)).best()
    if match is None:
        return "cp1252"
    # Prefer cp1252, the more common encoding, when both decode the sample to the same text.
    return "cp1252" if sample.decode("cp1252", "replace") == sample.decode(match.encoding, "replace") else match.encoding


def open_text(content: BufferedReader, encoding: str | None) -> tuple[io.TextIOWrapper, str]:
    """The content as a text stream with unchanged line ends, and the name of its encoding."""
    name = detect_encoding(content, encoding)
    return io.TextIOWrapper(content, name, newline=""), name.removesuffix("-sig")


def decoding_error(error: UnicodeError, encoding: str) -> ContentInvalid:
    """The error for content that is invalid in its encoding."""
    return ContentInvalid(f"the content is not valid {encoding} ({str(error)[:120]}); set its `encoding`")
