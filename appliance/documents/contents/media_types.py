"""Detects the media type of a content from its first bytes; the file name or the uploader can only refine it."""

import re

BINARY = "application/octet-stream"
TEXT = "text/plain"
# (offset, signature, media type): signatures of the formats' own specifications
_SIGNATURES = [
    (0, b"%PDF-", "application/pdf"),
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypheic", "image/heic"),
    (4, b"ftyp", "video/mp4"),
    (0, b"OggS", "application/ogg"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\x1a\x45\xdf\xa3", "video/webm"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"PK\x05\x06", "application/zip"),
]
_OFFICE = {
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "ods": "application/vnd.oasis.opendocument.spreadsheet",
    "odt": "application/vnd.oasis.opendocument.text",
    "odp": "application/vnd.oasis.opendocument.presentation",
}
_OLD_OFFICE = {"xls": "application/vnd.ms-excel", "doc": "application/msword", "msg": "application/vnd.ms-outlook"}
_TEXTS = {
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "md": "text/markdown",
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "jsonl": "application/x-ndjson",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "xml": "application/xml",
    "html": "text/html",
    "htm": "text/html",
    "svg": "image/svg+xml",
    "css": "text/css",
    "js": "text/javascript",
    "eml": "message/rfc822",
    "ics": "text/calendar",
}
# More specific types that a content of the detected type may have, by its file extension or as declared by the uploader.
_REFINED = {"application/zip": _OFFICE, "application/x-ole-storage": _OLD_OFFICE, TEXT: _TEXTS, "application/xml": _TEXTS}
_BITMAP_HEADERS = (12, 40, 52, 56, 64, 108, 124)  # two letters alone would mistake many texts for images
_MARKUP = re.compile(rb"\s*(?:<!--.*?-->\s*)*<(!doctype\s+html|html|head|body|script|\?xml|svg)\b", re.IGNORECASE | re.DOTALL)
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def settle_media_type(head: bytes, name: str, declared: str | None = None) -> str:
    """The media type of a content that starts with `head`, in a file called `name` and declared as `declared` by its uploader."""
    sniffed = sniff(head)
    refined = _REFINED.get(sniffed, {})
    declared_type = (declared or "").partition(";")[0].strip().lower()
    if declared_type in refined.values():
        return declared_type
    return refined.get(name.rpartition(".")[2].lower(), sniffed)


def sniff(head: bytes) -> str:
    """The media type that the bytes show: `text/plain` for any text, `application/octet-stream` when unknown."""
    for offset, signature, media_type in _SIGNATURES:
        if head[offset : offset + len(signature)] == signature and (offset != 8 or head[:4] == b"RIFF"):
            return media_type
    if head[:2] == b"BM" and head[6:10] == bytes(4) and int.from_bytes(head[14:18], "little") in _BITMAP_HEADERS:
        return "image/bmp"
    bare = head.removeprefix(b"\xef\xbb\xbf")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return TEXT  # UTF-16 with a byte order mark
    if _CONTROL.search(bare):
        return BINARY
    return _detect_markup(bare)


def _detect_markup(head: bytes) -> str:
    match = _MARKUP.match(head)
    if match is None:
        return TEXT
    if b"<svg" in head.lower():
        return "image/svg+xml"
    return "application/xml" if match[1].lower() == b"?xml" else "text/html"
