"""Composes an outgoing message as bytes: validated headers and a MIME body."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate

from appliance.connectors.contract import ConfigError, Json
from gos_connector_email.address import address_header, address_of, header, own_header
from gos_connector_email.attachments import MAX_BYTES, Attachment


@dataclass(frozen=True)
class Email:
    """A composed message and its envelope."""

    message_id: str
    sender: str
    recipients: list[str]
    content: bytes


def compose(message: Json, attachments: Sequence[Attachment], sender: object, idempotency_key: str) -> Email:
    """The composed message. The same key gives the same Message-ID, so that the recipient can detect a repetition."""
    own_address = address_of(sender)
    recipients = list(dict.fromkeys(address_of(each) for kind in ("to", "cc", "bcc") for each in message.get(kind, ())))
    if not recipients:
        raise ConfigError("The message has no recipients; give `to`, `cc` or `bcc`.")
    message_id = f"<{hashlib.sha256(idempotency_key.encode()).hexdigest()[:40]}@{own_address.rpartition('@')[2]}>"
    lines = [
        header("Date", formatdate()),
        header("Message-ID", message_id),
        address_header("From", [sender]),
    ]
    for name, kind in (("To", "to"), ("Cc", "cc"), ("Reply-To", "reply_to")):
        if message.get(kind):
            lines.append(address_header(name, message[kind]))
    lines.append(header("Subject", message["subject"]))
    lines += [own_header(name, value) for name, value in message.get("headers", {}).items()]
    content = b"".join(lines) + _body(message, attachments)
    if len(content) > MAX_BYTES:
        raise ConfigError(f"The message has {len(content)} bytes; the maximum is {MAX_BYTES}.")
    return Email(message_id, own_address, recipients, content)


def _body(message: Json, attachments: Sequence[Attachment]) -> bytes:
    body = EmailMessage(policy=SMTP)
    if "text" in message or "html" not in message:
        body.set_content(_require_encodable(message.get("text", "")), cte="quoted-printable")
        if "html" in message:
            body.add_alternative(_require_encodable(message["html"]), subtype="html", cte="quoted-printable")
    else:
        body.set_content(_require_encodable(message["html"]), subtype="html", cte="quoted-printable")
    for each in attachments:
        main, _, sub = each.content_type.partition("/")
        if main in ("multipart", "message"):
            raise ConfigError(f"An attachment cannot have the type {main}/{sub}; attach it as application/octet-stream.")
        body.add_attachment(each.content, maintype=main, subtype=sub, filename=each.name)
    return body.as_bytes()


def _require_encodable(text: str) -> str:
    """`text` unchanged; ConfigError when it contains an unpaired surrogate, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError("The text contains an unpaired surrogate character; remove it.") from error
    return text
