"""The operations of worker processes by name: how to load each one (while files can be opened) and how to perform it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import (
    archives,
    csv_text,
    extraction,
    json_text,
    pdf_pages,
    plain_text,
    previews,
    recognition,
    typesetting,
    xlsx_reading,
    xlsx_writing,
    xml_text,
)
from .request import Request


@dataclass(frozen=True)
class Operation:
    """One operation.

    `extra_mb` is the memory its libraries need before any content is read.  `check` is set for an operation that takes
    seconds to load and is therefore kept loaded: the name of a quick operation that rejects most invalid input first.
    """

    load: Callable[[], object]
    perform: Callable[[Request], dict[str, Any]]
    extra_mb: int = 0
    check: str | None = None


OPERATIONS = {
    "parse.csv": Operation(csv_text.load, csv_text.parse),
    "parse.xlsx": Operation(xlsx_reading.load, xlsx_reading.parse),
    "parse.json": Operation(json_text.load, json_text.parse),
    "parse.ndjson": Operation(json_text.load, json_text.parse_lines),
    "parse.xml": Operation(xml_text.load, xml_text.parse),
    "parse.text": Operation(plain_text.load, plain_text.parse),
    "parse.pdf": Operation(pdf_pages.load, pdf_pages.parse),
    "write.csv": Operation(csv_text.load, csv_text.write),
    "write.xlsx": Operation(xlsx_writing.load, xlsx_writing.write),
    "write.json": Operation(json_text.load, json_text.write),
    "write.ndjson": Operation(json_text.load, json_text.write_lines),
    "write.xml": Operation(xml_text.load, xml_text.write),
    "write.text": Operation(plain_text.load, plain_text.write),
    "convert": Operation(typesetting.load, typesetting.convert, extra_mb=256),
    "zip": Operation(archives.load, archives.pack),
    "unzip": Operation(archives.load, archives.unpack),
    "extract": Operation(extraction.load, extraction.extract),
    "preview": Operation(previews.load, previews.preview, extra_mb=64),
    "ocr": Operation(recognition.load, recognition.recognise, extra_mb=1536, check="ocr.check"),
    "ocr.check": Operation(recognition.load_check, recognition.check),
}
