"""Opens PDF documents and extracts the text of their pages."""

import re
from collections.abc import Iterator
from typing import Any

from . import encodings
from .errors import ContentEncrypted, ContentInvalid, ContentTooLarge
from .request import Records, Request

MAX_PAGES = 5_000
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


def load() -> None:
    encodings.load()
    import pypdfium2  # noqa: F401


def parse(request: Request) -> dict[str, Any]:
    """Write a record `{page, text}` per page; the first page is 1."""
    records = Records(request.output)
    document = open_document(request)
    for number in parse_page_selection(request.options.get("pages"), len(document)):
        records.add({"page": number, "text": _extract_page(document, number)})
    return {"count": records.count, "page_count": len(document)}


def _extract_page(document: Any, number: int) -> str:
    import pypdfium2

    try:
        text = document[number - 1].get_textpage().get_text_bounded()
    except pypdfium2.PdfiumError as error:
        raise ContentInvalid(f"page {number} of the PDF is damaged ({str(error)[:80]})") from error
    return _CONTROL_CHARACTERS.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\x02", "-")).strip()


def open_document(request: Request) -> Any:
    """Open the document from memory: to read from a file, PDFium needs callbacks, and those need executable memory."""
    import pypdfium2

    content = request.content.read()
    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise ContentEncrypted("the PDF") from error
        raise ContentInvalid(f"the content is not a readable PDF ({str(error)[:80]})") from error
    if len(document) == 0:
        raise ContentInvalid("the PDF has no readable page")
    if len(document) > MAX_PAGES:
        raise ContentTooLarge(f"the PDF has {len(document)} pages; the maximum is {MAX_PAGES}")
    return document


def parse_page_selection(selection: str | None, count: int) -> Iterator[int]:
    """The page numbers in a selection such as `1-3,7`, in order; all pages without one."""
    if selection is None:
        yield from range(1, count + 1)
        return
    numbers: set[int] = set()
    for part in selection.split(","):
        match = _RANGE.fullmatch(part.strip())
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= low <= high <= count:
            raise ContentInvalid(f"`pages` contains {part.strip()[:20]!r}, but the document has pages 1 to {count}")
        numbers |= set(range(low, high + 1))
    yield from sorted(numbers)
