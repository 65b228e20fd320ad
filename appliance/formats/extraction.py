"""The words of HTML and of office documents, without what they look like and without anything that acts."""

import fnmatch
import re
import zipfile
import zlib
from typing import Any

from . import archives, encodings, markup
from .encryption import refuse_encrypted_package, refuse_encrypted_parts
from .failing import ContentInvalid, ContentTooLarge
from .request import Records, Request

# Where the text of a kind lies in its archive (ECMA-376, OASIS OpenDocument), and which elements end a line there.
_MEMBERS = {
    "docx": ("word/document.xml", "word/header*.xml", "word/footer*.xml", "word/footnotes.xml"),
    "pptx": ("ppt/slides/slide*.xml", "ppt/notesSlides/notesSlide*.xml"),
    "xlsx": ("xl/sharedStrings.xml", "xl/worksheets/sheet*.xml"),
    "odf": ("content.xml",),
}
_LINES = frozenset({"p", "h", "si", "is", "br", "tab", "line-break"})
_HELD = frozenset({"t"})
MOST_MEMBERS = 2_000
MOST_BYTES = 64 << 20
MOST_CHARACTERS = 4_000_000
CHUNK = 256 << 10
_BLOCKS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "tr", "table", "ul", "ol", "pre", "blockquote", "br", "hr"})
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, KeyError)


def load() -> None:
    encodings.load()
    archives.load()
    import defusedxml.ElementTree  # noqa: F401


def extract(request: Request) -> dict[str, Any]:
    """One record, the text of the content, which is `kind: html | docx | pptx | xlsx | odf`; cut after 4 million characters."""
    kind = request.options["kind"]
    text = _html_text(request) if kind == "html" else _office_text(request, _MEMBERS[kind], everything=kind == "odf")
    Records(request.output).add(text[:MOST_CHARACTERS])
    return {"characters": min(len(text), MOST_CHARACTERS)}


def _html_text(request: Request) -> str:
    stream, encoding = encodings.open_text(request.content, None)
    try:
        source = stream.read(MOST_CHARACTERS)
    except UnicodeError as error:
        raise encodings.not_decodable(error, encoding) from error
    return "".join(_node_text(node) for node in markup.read_html(source))


def _node_text(node: Any) -> str:
    if isinstance(node, str):
        return node
    inner = "".join(_node_text(each) for each in node["c"])
    return f"{inner}\n" if node["k"] in _BLOCKS else f"{inner} " if node["k"] in ("td", "th") else inner


class _Words:
    """Target of the parser: the text of `t` elements, or of all, with line ends where paragraphs end."""

    def __init__(self, *, everything: bool) -> None:
        self._everything = everything
        self._held = 0
        self.parts: list[str] = []
        self.size = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._held += _local(tag) in _HELD

    def data(self, text: str) -> None:
        if (self._everything or self._held) and self.size < MOST_CHARACTERS:
            self.parts.append(text)
            self.size += len(text)

    def end(self, tag: str) -> None:
        name = _local(tag)
        self._held -= name in _HELD
        if name in _LINES:
            self.parts.append("\n")

    def close(self) -> str:
        return "".join(self.parts)


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _office_text(request: Request, patterns: tuple[str, ...], *, everything: bool) -> str:
    refuse_encrypted_package(request.content)
    try:
        with zipfile.ZipFile(request.content) as archive:
            refuse_encrypted_parts(archive)
            members = archive.infolist()
            if len(members) > MOST_MEMBERS:
                raise ContentTooLarge(f"the document has {len(members)} parts; at most {MOST_MEMBERS} are read")
            wanted = [info for info in members if any(fnmatch.fnmatch(info.filename, each) for each in patterns)]
            if sum(info.file_size for info in wanted) > MOST_BYTES:
                raise ContentTooLarge(f"the document has more than {MOST_BYTES >> 20} MB of text unpacked")
            if not wanted:
                raise ContentInvalid("the content is no office document: it has no text part")
            ordered = sorted(wanted, key=lambda info: [len(info.filename), info.filename])
            return "\n".join(_member_text(archive, info, everything=everything) for info in ordered)
    except _BROKEN as error:
        raise ContentInvalid(f"the content is no office document that can be read ({str(error)[:100]})") from error


def _member_text(archive: zipfile.ZipFile, info: zipfile.ZipInfo, *, everything: bool) -> str:
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import ParseError, XMLParser

    words = _Words(everything=everything)
    parser = XMLParser(target=words, forbid_dtd=True)
    try:
        with archive.open(info) as member:
            while chunk := member.read(CHUNK):
                parser.feed(chunk)
        return re.sub(r"\n{3,}", "\n\n", str(parser.close()))
    except (DefusedXmlException, ParseError, LookupError) as error:
        raise ContentInvalid(f"the document's part {info.filename[:60]!r} is no XML: {str(error)[:100]}") from error
