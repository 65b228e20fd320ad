"""The message that is sent, as bytes: headers of our own making, a body in MIME."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate

from appliance.connectors.contract import ConfigError, Json
from gos_connector_email.address import address_header, address_of, header, own_header
from gos_connector_email.attaching import MOST_BYTES, Attachment


@dataclass(frozen=True)
class Letter:
    """A message and its envelope."""

    message_id: str
    sender: str
    recipients: list[str]
    content: bytes


def write(given: Json, attachments: Sequence[Attachment], sender: object, idempotency_key: str) -> Letter:
    """The letter; the same key gives the same Message-ID, so that a repetition can be told over there."""
    own_address = address_of(sender)
    recipients = list(dict.fromkeys(address_of(each) for kind in ("to", "cc", "bcc") for each in given.get(kind, ())))
    if not recipients:
        raise ConfigError("The message goes to nobody; give `to`, `cc` or `bcc`.")
    message_id = f"<{hashlib.sha256(idempotency_key.encode()).hexdigest()[:40]}@{own_address.rpartition('@')[2]}>"
    lines = [
        header("Date", formatdate()),
        header("Message-ID", message_id),
        address_header("From", [sender]),
    ]
    for name, kind in (("To", "to"), ("Cc", "cc"), ("Reply-To", "reply_to")):
        if given.get(kind):
            lines.append(address_header(name, given[kind]))
    lines.append(header("Subject", given["subject"]))
    lines += [own_header(name, value) for name, value in given.get("headers", {}).items()]
    content = b"".join(lines) + _body(given, attachments)
    if len(content) > MOST_BYTES:
        raise ConfigError(f"The message has {len(content)} bytes; {MOST_BYTES} are the most.")
    return Letter(message_id, own_address, recipients, content)


def _body(given: Json, attachments: Sequence[Attachment]) -> bytes:
    body = EmailMessage(policy=SMTP)
    if "text" in given or "html" not in given:
        body.set_content(_sound(given.get("text", "")), cte="quoted-printable")
        if "html" in given:
            body.add_alternative(_sound(given["html"]), subtype="html", cte="quoted-printable")
    else:
        body.set_content(_sound(given["html"]), subtype="html", cte="quoted-printable")
    for each in attachments:
        main, _, sub = each.content_type.partition("/")
        if main in ("multipart", "message"):
            raise ConfigError(f"An attachment cannot be of the type {main}/{sub}; attach it as application/octet-stream.")
        body.add_attachment(each.content, maintype=main, subtype=sub, filename=each.name)
    return body.as_bytes()


def _sound(text: str) -> str:
    """The text; ConfigError when it has half a character, which no encoding can write."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError("The text contains half of a character pair; remove it.") from error
    return text
