"""Plain text: decodes it from its encoding and encodes it to the requested one."""

import io
from typing import Any

from . import encodings
from .errors import ContentInvalid
from .request import Records, Request

CHUNK = 1 << 20


def load() -> None:
    encodings.load()


def parse(request: Request) -> dict[str, Any]:
    """Write the text as one record, with line ends normalized to newlines."""
    stream, encoding = encodings.open_text(request.content, request.options.get("encoding"))
    try:
        text = stream.read()
    except UnicodeError as error:
        raise encodings.decoding_error(error, encoding) from error
    if "\x00" in text:
        raise ContentInvalid("the content contains NUL characters; it is not text, or its `encoding` must be set")
    Records(request.output).add(text.replace("\r\n", "\n").replace("\r", "\n"))
    return {"encoding": encoding, "count": 1}


def write(request: Request) -> dict[str, Any]:
    """Write the UTF-8 input in the requested encoding."""
    encoding = request.option("encoding", "utf-8")
    source = io.TextIOWrapper(request.content, "utf-8", newline="")
    target = io.TextIOWrapper(request.output, encoding, newline="")
    try:
        while chunk := source.read(CHUNK):
            target.write(chunk)
        target.flush()
    except UnicodeEncodeError as error:
        raise ContentInvalid(
            f"the text cannot be written as {encoding} ({str(error)[:120]}); use utf-8, which has every character"
        ) from error
    target.detach()
    return {"count": 1}
