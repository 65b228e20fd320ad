"""Extracts the plain text of HTML and office documents, without formatting and active content."""

import fnmatch
import re
import zipfile
import zlib
from typing import Any

from . import archives, encodings, markup
from .encryption import check_package_not_encrypted, check_parts_not_encrypted
from .errors import ContentInvalid, ContentTooLarge
from .request import Records, Request

# The archive members with the text of each kind (ECMA-376, OASIS OpenDocument), and the elements that end a line.
_MEMBERS = {
    "docx": ("word/document.xml", "word/header*.xml", "word/footer*.xml", "word/footnotes.xml"),
    "pptx": ("ppt/slides/slide*.xml", "ppt/notesSlides/notesSlide*.xml"),
    "xlsx": ("xl/sharedStrings.xml", "xl/worksheets/sheet*.xml"),
    "odf": ("content.xml",),
}
_LINE_ELEMENTS = frozenset({"p", "h", "si", "is", "br", "tab", "line-break"})
_TEXT_ELEMENTS = frozenset({"t"})
MAX_MEMBERS = 2_000
MAX_BYTES = 64 << 20
MAX_CHARACTERS = 4_000_000
CHUNK = 256 << 10
_BLOCKS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "tr", "table", "ul", "ol", "pre", "blockquote", "br", "hr"})
_READ_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, KeyError)


def load() -> None:
    encodings.load()
    archives.load()
    import defusedxml.ElementTree  # noqa: F401


def extract(request: Request) -> dict[str, Any]:
    """Write one record: the text of the content of `kind: html | docx | pptx | xlsx | odf`, cut at 4 million characters."""
    kind = request.options["kind"]
    text = _extract_html(request) if kind == "html" else _extract_office(request, _MEMBERS[kind], everything=kind == "odf")
    Records(request.output).add(text[:MAX_CHARACTERS])
    return {"characters": min(len(text), MAX_CHARACTERS)}


def _extract_html(request: Request) -> str:
    stream, encoding = encodings.open_text(request.content, None)
    try:
        source = stream.read(MAX_CHARACTERS)
    except UnicodeError as error:
        raise encodings.decoding_error(error, encoding) from error
    return "".join(_node_text(node) for node in markup.parse_html(source))


def _node_text(node: Any) -> str:
    if isinstance(node, str):
        return node
    inner = "".join(_node_text(each) for each in node["c"])
    return f"{inner}\n" if node["k"] in _BLOCKS else f"{inner} " if node["k"] in ("td", "th") else inner


class _TextCollector:
    """Parser target that collects the text of `t` elements, or of all elements, with a line end after each paragraph."""

    def __init__(self, *, everything: bool) -> None:
        self._collects_all = everything
        self._text_depth = 0
        self.parts: list[str] = []
        self.size = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._text_depth += _local_name(tag) in _TEXT_ELEMENTS

    def data(self, text: str) -> None:
        if (self._collects_all or self._text_depth) and self.size < MAX_CHARACTERS:
            self.parts.append(text)
            self.size += len(text)

    def end(self, tag: str) -> None:
        name = _local_name(tag)
        self._text_depth -= name in _TEXT_ELEMENTS
        if name in _LINE_ELEMENTS:
            self.parts.append("\n")

    def close(self) -> str:
        return "".join(self.parts)


def _local_name(tag: str) -> str:
    return tag.rpartition("}")[2]


def _extract_office(request: Request, patterns: tuple[str, ...], *, everything: bool) -> str:
    check_package_not_encrypted(request.content)
    try:
        with zipfile.ZipFile(request.content) as archive:
            check_parts_not_encrypted(archive)
            members = archive.infolist()
            if len(members) > MAX_MEMBERS:
                raise ContentTooLarge(f"the document has {len(members)} parts; the maximum is {MAX_MEMBERS}")
            text_parts = [info for info in members if any(fnmatch.fnmatch(info.filename, each) for each in patterns)]
            if sum(info.file_size for info in text_parts) > MAX_BYTES:
                raise ContentTooLarge(f"the text of the document unpacks to more than {MAX_BYTES >> 20} MB")
            if not text_parts:
                raise ContentInvalid("the content is not an office document: it has no text part")
            sorted_parts = sorted(text_parts, key=lambda info: [len(info.filename), info.filename])
            return "\n".join(_extract_member(archive, info, everything=everything) for info in sorted_parts)
    except _READ_ERRORS as error:
        raise ContentInvalid(f"the content is not a readable office document ({str(error)[:100]})") from error


def _extract_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, *, everything: bool) -> str:
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import ParseError, XMLParser

    collector = _TextCollector(everything=everything)
    parser = XMLParser(target=collector, forbid_dtd=True)
    try:
        with archive.open(info) as member:
            while chunk := member.read(CHUNK):
                parser.feed(chunk)
        return re.sub(r"\n{3,}", "\n\n", str(parser.close()))
    except (DefusedXmlException, ParseError, LookupError) as error:
        raise ContentInvalid(f"the part {info.filename[:60]!r} of the document is not valid XML: {str(error)[:100]}") from error
