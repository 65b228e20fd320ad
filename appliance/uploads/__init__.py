"""Multipart uploads, shared by the edges that accept files.

`FormReader` parses a form within `FormLimits` while it arrives, and returns each file as a `SentFile`.
"""

from .forms import FormLimits, FormReader, SentFile

__all__ = ["FormLimits", "FormReader", "SentFile"]
