"""Attachments: loads those of outgoing messages from base64 or documents, and stores received ones as documents."""

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any

from appliance.connectors.contract import ConfigError, Documents, Json
from gos_connector_email.address import require_plain

MAX_BYTES = 40 * 1024 * 1024
_DEFAULT_TYPE = "application/octet-stream"


@dataclass(frozen=True)
class Attachment:
    """An attached file."""

    name: str
    content_type: str
    content: bytes = field(repr=False)


def load_attachments(message: Json, documents: Documents) -> list[Attachment]:
    """The attachments of an outgoing message; ConfigError when one is invalid or they are too large together."""
    attachments: list[Attachment] = []
    remaining = MAX_BYTES
    for each in message.get("attachments", ()):
        attachments.append(_load(each, documents, remaining))
        remaining -= len(attachments[-1].content)
    return attachments


def _load(item: Json, documents: Documents, remaining: int) -> Attachment:
    if "document" not in item:
        content_type = item.get("content_type", _DEFAULT_TYPE)
        return Attachment(require_plain(item["name"], "A file name"), content_type, _bytes(item["content"], item["name"]))
    document = documents.open(item["document"])
    if document.size > remaining:
        raise ConfigError(f"The attachments have more than {MAX_BYTES} bytes in total; send fewer, or send links instead.")
    name = require_plain(item.get("name", document.name), "A file name")
    kind = document.content_type.partition(";")[0].strip()
    if kind.count("/") != 1 or kind.startswith(("multipart/", "message/")):
        kind = _DEFAULT_TYPE
    return Attachment(name, item.get("content_type", kind), b"".join(document.chunks()))


def _bytes(content: str, name: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"The content of the attachment {name[:100]!r} is not valid base64.") from error


def store_as_documents(message: dict[str, Any], documents: Documents) -> dict[str, Any]:
    """The message with its attachments stored as documents; each gets `document` and `content` becomes null."""
    attachments = []
    for number, each in enumerate(message["attachments"], 1):
        part = dict(each)
        if part["content"] is not None:
            name = part["name"] or f"attachment-{number}"
            part["document"] = documents.create(name, [base64.b64decode(part["content"])], part["content_type"])
            part["content"] = None
        attachments.append(part)
    return {**message, "attachments": attachments}
