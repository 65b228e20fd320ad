"""Attachments on their way: documents and base64 into bytes, and received ones into documents."""

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any

from appliance.connectors.contract import ConfigError, Documents, Json
from gos_connector_email.address import plain

MOST_BYTES = 40 * 1024 * 1024
_USUAL_TYPE = "application/octet-stream"


@dataclass(frozen=True)
class Attachment:
    """One file of a message."""

    name: str
    content_type: str
    content: bytes = field(repr=False)


def attachments_of(given: Json, documents: Documents) -> list[Attachment]:
    """What a message is to carry; ConfigError for what cannot be attached or is too much together."""
    found: list[Attachment] = []
    left = MOST_BYTES
    for each in given.get("attachments", ()):
        found.append(_attachment(each, documents, left))
        left -= len(found[-1].content)
    return found


def _attachment(given: Json, documents: Documents, left: int) -> Attachment:
    if "document" not in given:
        content_type = given.get("content_type", _USUAL_TYPE)
        return Attachment(plain(given["name"], "A file name"), content_type, _bytes(given["content"], given["name"]))
    document = documents.open(given["document"])
    if document.size > left:
        raise ConfigError(f"The attachments have more than {MOST_BYTES} bytes together; send fewer, or a link to them.")
    name = plain(given.get("name", document.name), "A file name")
    kind = document.content_type.partition(";")[0].strip()
    if kind.count("/") != 1 or kind.startswith(("multipart/", "message/")):
        kind = _USUAL_TYPE
    return Attachment(name, given.get("content_type", kind), b"".join(document.chunks()))


def _bytes(content: str, name: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"The content of the attachment {name[:100]!r} is not base64.") from error


def into_documents(message: dict[str, Any], documents: Documents) -> dict[str, Any]:
    """The message that was read, its attachments kept as documents instead of given."""
    kept = []
    for number, each in enumerate(message["attachments"], 1):
        part = dict(each)
        if part["content"] is not None:
            name = part["name"] or f"attachment-{number}"
            part["document"] = documents.create(name, [base64.b64decode(part["content"])], part["content_type"])
            part["content"] = None
        kept.append(part)
    return {**message, "attachments": kept}
