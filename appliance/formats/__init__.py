"""Formats: what is in files and what files are made of, read and written in worker processes; bytes in, data out.

`Formats` does a `Work` within `Bounds` and gives an `Answer`, or says why not (`FormatFailed`, `Cancelled`).  The
rest is what others need to know of tables before they ask: encodings, delimiters, and how a cell becomes text.
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
