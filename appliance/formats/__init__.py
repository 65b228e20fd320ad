"""Reads and writes file formats (CSV, XLSX, JSON, XML, PDF, images, OCR, archives) in isolated worker processes.

`Formats` performs a `Work` within `Bounds` and returns an `Answer`; it raises `FormatFailed` or `Cancelled`.  The other
exports help to inspect tables beforehand: encodings, delimiters, and the text of a cell.
"""

from .encodings import KNOWN, find_encoding
from .failing import Cancelled, FormatFailed
from .rows import scalar_text
from .separated import DELIMITERS, FORMULA, find_delimiter
from .service import Answer, Bounds, Formats, Settings, Work

__all__ = [
    "DELIMITERS",
    "FORMULA",
    "KNOWN",
    "Answer",
    "Bounds",
    "Cancelled",
    "FormatFailed",
    "Formats",
    "Settings",
    "Work",
    "find_delimiter",
    "find_encoding",
    "scalar_text",
]
