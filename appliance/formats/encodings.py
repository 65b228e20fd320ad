"""Which encoding a text has: a byte order mark, UTF-8 that holds throughout, else the likeliest; and its decoding."""

import codecs
import io
from io import BufferedReader

from .failing import ContentInvalid

SAMPLE, CHUNK = 256 << 10, 1 << 20
# Those that are looked for, the likelier first; any of them can be given by name.
GUESSED = ("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "shift_jis", "euc_jp", "gb18030", "big5", "euc_kr", "koi8_r")
KNOWN = (
    "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "ascii", "latin-1", "iso8859-2", "iso8859-5", "iso8859-7",
    "iso8859-9", "iso8859-15", "cp437", "cp850", "cp852", "cp866", "cp1255", "cp1256", "cp1257", "cp1258", "mac_roman", "cp932",
    *GUESSED,
)  # fmt: skip
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def load() -> None:
    """Load every encoding and the detector: later no file can be opened."""
    import charset_normalizer  # noqa: F401

    for name in (*KNOWN, "idna"):
        codecs.lookup(name)


def find_encoding(content: BufferedReader, given: str | None) -> str:
    """The given encoding, else the one that the content seems to have; the content is at its beginning again."""
    if given is not None:
        try:
            name = codecs.lookup(given).name
        except (LookupError, ValueError) as error:
            raise ContentInvalid(f"there is no encoding {given[:60]!r} here; known are {', '.join(sorted(set(KNOWN)))}") from error
        head = content.read(4)
        content.seek(0)
        return "utf-8-sig" if name == "utf-8" and head.startswith(codecs.BOM_UTF8) else name
    sample = content.read(SAMPLE)
    content.seek(0)
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return name
    return "utf-8" if _is_utf8(content) else _likeliest(sample)


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


def _likeliest(sample: bytes) -> str:
    from charset_normalizer import from_bytes

    found = from_bytes(sample, cp_isolation=list(GUESSED)).best()
    if found is None:
        return "cp1252"
    # Of two that read the sample alike, the one that is met more often.
    return "cp1252" if sample.decode("cp1252", "replace") == sample.decode(found.encoding, "replace") else found.encoding


def open_text(content: BufferedReader, given: str | None) -> tuple[io.TextIOWrapper, str]:
    """The content as text, line ends as they are, and its encoding."""
    name = find_encoding(content, given)
    return io.TextIOWrapper(content, name, newline=""), name.removesuffix("-sig")


def not_decodable(error: UnicodeError, encoding: str) -> ContentInvalid:
    """What to say when a text breaks its encoding."""
    return ContentInvalid(f"the content is not {encoding} throughout ({str(error)[:120]}); give its `encoding`")
