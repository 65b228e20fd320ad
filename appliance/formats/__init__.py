"""Reads and writes file formats (CSV, XLSX, JSON, XML, PDF, images, OCR, archives) in isolated worker processes.

`Formats` performs a `Work` within `Bounds` and returns an `Answer`; it raises `FormatFailed` or `Cancelled`.  The other
exports help to inspect tables beforehand: encodings, delimiters, and the text of a cell.
"""

from .csv_text import DELIMITERS, FORMULA_PREFIXES, detect_delimiter
from .encodings import ENCODINGS, detect_encoding
from .errors import Cancelled, FormatFailed
from .rows import scalar_text
from .service import Answer, Bounds, Formats, Settings, Work

__all__ = [
    "DELIMITERS",
    "ENCODINGS",
    "FORMULA_PREFIXES",
    "Answer",
    "Bounds",
    "Cancelled",
    "FormatFailed",
    "Formats",
    "Settings",
    "Work",
    "detect_delimiter",
    "detect_encoding",
    "scalar_text",
]
