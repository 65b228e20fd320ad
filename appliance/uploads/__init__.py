"""Files on their way in, in forms: what the edges that take them share.

`FormReader` reads a form within `FormLimits` as its bytes come; what it finds of files is a `SentFile` each.
"""

from .forms import FormLimits, FormReader, SentFile

__all__ = ["FormLimits", "FormReader", "SentFile"]
