"""Plain text: decoded from, and encoded to, the encoding it has or shall have."""

import io
from typing import Any

from . import encodings
from .failing import ContentInvalid
from .request import Records, Request

CHUNK = 1 << 20


def load() -> None:
    encodings.load()


def parse(request: Request) -> dict[str, Any]:
    """One record, the text; line ends become plain newlines."""
    text, encoding = encodings.open_text(request.content, request.options.get("encoding"))
    try:
        found = text.read()
    except UnicodeError as error:
        raise encodings.not_decodable(error, encoding) from error
    if "\x00" in found:
        raise ContentInvalid("the content holds NUL characters; it is no text, or its `encoding` must be given")
    Records(request.output).add(found.replace("\r\n", "\n").replace("\r", "\n"))
    return {"encoding": encoding, "count": 1}


def write(request: Request) -> dict[str, Any]:
    """The UTF-8 text in the encoding asked for."""
    encoding = request.option("encoding", "utf-8")
    source = io.TextIOWrapper(request.content, "utf-8", newline="")
    target = io.TextIOWrapper(request.output, encoding, newline="")
    try:
        while chunk := source.read(CHUNK):
            target.write(chunk)
        target.flush()
    except UnicodeEncodeError as error:
        raise ContentInvalid(f"the text cannot be written as {encoding} ({str(error)[:120]}); utf-8 has every character") from error
    target.detach()
    return {"count": 1}
