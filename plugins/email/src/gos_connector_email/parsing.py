"""Parses received messages into JSON; malformed messages are parsed as far as possible and never raise an error."""

import base64
from collections.abc import Iterator
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from email.utils import getaddresses, parsedate_to_datetime
from typing import Any

MAX_TEXT = 500_000
_MAX_PARTS = 500


def parse(content: bytes) -> Message:
    """The parsed message; never fails, because the parser records defects and continues."""
    return BytesParser(policy=compat32).parsebytes(content)


def summary(message: Message) -> dict[str, Any]:
    """Subject, addresses, identifiers and date from the headers."""
    return {
        "message_id": _text(message, "Message-ID").strip(),
        "subject": _text(message, "Subject"),
        "from": _addresses(message, "From"),
        "to": _addresses(message, "To"),
        "cc": _addresses(message, "Cc"),
        "reply_to": _addresses(message, "Reply-To"),
        "in_reply_to": _text(message, "In-Reply-To").strip(),
        "references": _text(message, "References").split()[:200],
        "date": _date(message),
    }


def body(message: Message, max_attached: int) -> dict[str, Any]:
    """The first text, the first HTML and the attachments, whose content is included up to `max_attached` bytes in total."""
    texts: dict[str, str] = {}
    attachments: list[dict[str, Any]] = []
    is_truncated = False
    remaining = max_attached
    for index, part in enumerate(_leaves(message)):
        if index >= _MAX_PARTS:
            is_truncated = True
            break
        kind = part.get_content_type()
        name = _file_name(part)
        content = _payload(part)
        is_inline = not name and part.get_content_disposition() != "attachment"
        if is_inline and kind in ("text/plain", "text/html") and kind not in texts:
            text = _decode(content, part.get_content_charset()).replace("\r\n", "\n")
            is_truncated = is_truncated or len(text) > MAX_TEXT
            texts[kind] = text[:MAX_TEXT]
            continue
        fits = len(content) <= remaining
        remaining -= len(content) if fits else 0
        attachments.append({
            "name": name,
            "content_type": kind,
            "content_id": _text(part, "Content-ID").strip().strip("<>"),
            "size": len(content),
            "content": base64.b64encode(content).decode("ascii") if fits and max_attached else None,
        })  # fmt: skip
    return {"text": texts.get("text/plain"), "html": texts.get("text/html"), "attachments": attachments, "truncated": is_truncated}


def _leaves(message: Message) -> Iterator[Message]:
    """The parts with content, in order; an enclosed message counts as one part."""
    pending = [message]
    while pending:
        part = pending.pop()
        payload = part.get_payload()
        if part.get_content_maintype() == "multipart" and isinstance(payload, list):
            pending += reversed([each for each in payload if isinstance(each, Message)])
        else:
            yield part


def _payload(part: Message) -> bytes:
    if part.is_multipart():  # an enclosed message
        return b"\r\n".join(each.as_bytes() for each in part.get_payload() if isinstance(each, Message))
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def _text(message: Message, name: str) -> str:
    """A header, decoded and on a single line."""
    raw = _raw(message, name)
    return " ".join(_decode_words(raw).split()) if raw else ""


def _raw(message: Message, name: str) -> str:
    """The header as received, with bytes outside ASCII decoded as UTF-8."""
    for each, value in message.raw_items():
        if each.lower() == name.lower():
            return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return ""


def _decode_words(raw: str) -> str:
    try:
        parts = decode_header(raw)
    except (HeaderParseError, ValueError):
        return raw
    return "".join(piece if isinstance(piece, str) else _decode(piece, charset) for piece, charset in parts)


def _decode(content: bytes, charset: str | None) -> str:
    try:
        return content.decode(charset or "utf-8", "replace")
    except (LookupError, ValueError):
        return content.decode("utf-8", "replace")


def _addresses(message: Message, name: str) -> list[dict[str, str]]:
    raw = _raw(message, name)
    pairs = getaddresses([" ".join(raw.split())]) if raw else []
    return [{"name": _decode_words(name_text), "address": address} for name_text, address in pairs[:1000] if address or name_text]


def _date(message: Message) -> str | None:
    try:
        parsed = parsedate_to_datetime(_raw(message, "Date"))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return parsed.isoformat().replace("+00:00", "Z")


def _file_name(part: Message) -> str:
    try:
        name = part.get_filename()
    except (ValueError, LookupError, TypeError):
        return ""
    return " ".join(_decode_words(name).split())[:255] if name else ""
