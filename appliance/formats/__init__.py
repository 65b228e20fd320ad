"""Formats: what is in files and what files are made of, read and written in worker processes; bytes in, data out."""

from .failing import Cancelled, FormatFailed
from .service import Answer, Bounds, Formats, Settings, Work

__all__ = ["Answer", "Bounds", "Cancelled", "FormatFailed", "Formats", "Settings", "Work"]
