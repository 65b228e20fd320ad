"""The connector's declaration: JSON Schemas of its settings, actions and trigger."""

from typing import Any

from appliance.connectors.contract import Action, Trigger, object_schema

Schema = dict[str, Any]

MAX_MESSAGES = 500
DEFAULT_MESSAGES = 50
MAX_ATTACHED_BYTES = 20 * 1024 * 1024
DEFAULT_ATTACHED_BYTES = 5 * 1024 * 1024

_LINE: Schema = {"type": "string", "maxLength": 2_000}
_HOST: Schema = {"type": "string", "minLength": 1, "maxLength": 253, "secret_target": True}
_PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535, "secret_target": True}
_TLS: Schema = {
    "enum": ["tls", "starttls", "off"],
    "default": "tls",
    "secret_target": True,
    "description": (
        "tls: encrypted from the first byte; starttls: switches to TLS after connecting; off: clear text, also for the password"
    ),
}
_ADDRESS: Schema = {
    "anyOf": [
        {"type": "string", "minLength": 3, "maxLength": 320},
        {
            "type": "object",
            "required": ["address"],
            "additionalProperties": False,
            "properties": {"address": {"type": "string", "maxLength": 320}, "name": {"type": "string", "maxLength": 200}},
        },
    ]
}
_ADDRESSES: Schema = {"type": "array", "items": _ADDRESS, "maxItems": 500}
_FOLDER: Schema = {"type": "string", "minLength": 1, "maxLength": 500, "default": "INBOX"}
_UID: Schema = {"type": "integer", "minimum": 1, "maximum": 2**32 - 1}
_UIDS: Schema = {"type": "array", "items": _UID, "minItems": 1, "maxItems": 1_000}
_VALIDITY: Schema = {**_UID, "description": "As returned by a search; the call fails when the folder was recreated since"}

SETTINGS: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "smtp_host": {**_HOST, "title": "SMTP server", "description": "For sending"},
        "smtp_port": {**_PORT, "title": "SMTP port", "description": "Default: 465 for tls, 587 for starttls, 25 for off"},
        "smtp_tls": {**_TLS, "title": "SMTP encryption"},
        "imap_host": {**_HOST, "title": "IMAP server", "description": "For reading"},
        "imap_port": {**_PORT, "title": "IMAP port", "description": "Default: 993 for tls, 143 otherwise"},
        "imap_tls": {**_TLS, "title": "IMAP encryption"},
        "user": {
            "type": "string",
            "minLength": 1,
            "maxLength": 300,
            "title": "User",
            "description": "Leave empty to send without a sign-in",
        },
        "password": {"type": "string", "maxLength": 4_000, "title": "Password", "secret": True},
        "from": {**_ADDRESS, "title": "Sender", "description": "The sender when a call gives none"},
        "ca": {
            "type": "string",
            "title": "Certificate authority",
            "description": "PEM certificates to trust instead of the system's",
            "secret_target": True,
        },
    },
}

_PARSED_ADDRESSES: Schema = {
    "type": "array",
    "items": {"type": "object", "properties": {"name": {"type": "string"}, "address": {"type": "string"}}},
}
_SUMMARY: Schema = {
    "folder": {"type": "string"},
    "uidvalidity": {"type": "integer"},
    "uid": {"type": "integer"},
    "message_id": {"type": "string"},
    "subject": {"type": "string"},
    "from": _PARSED_ADDRESSES,
    "to": _PARSED_ADDRESSES,
    "cc": _PARSED_ADDRESSES,
    "reply_to": _PARSED_ADDRESSES,
    "in_reply_to": {"type": "string"},
    "references": {"type": "array", "items": {"type": "string"}},
    "date": {"type": ["string", "null"], "description": "RFC 3339, as stated by the sender; null when it cannot be parsed"},
    "flags": {"type": "array", "items": {"type": "string"}, "description": "seen, answered, flagged, deleted, draft, and keywords"},
    "size": {"type": "integer"},
}
_ITEM: Schema = {"type": "object", "required": ["folder", "uidvalidity", "uid", "subject", "from"], "properties": _SUMMARY}
_CRITERIA: Schema = {
    "type": "object",
    "additionalProperties": False,
    "description": "All criteria must match; a text matches when it is contained, ignoring case",
    "properties": {
        **{name: {**_LINE, "minLength": 1} for name in ("from", "to", "cc", "subject", "body", "text")},
        "since": {"type": "string", "format": "date", "description": "Received on this day or later"},
        "before": {"type": "string", "format": "date", "description": "Received before this day"},
        **{name: {"type": "boolean"} for name in ("seen", "flagged", "answered", "draft")},
        **{name: {"type": "integer", "minimum": 0, "maximum": 2**32 - 1} for name in ("larger", "smaller")},
        "keyword": {"type": "string", "maxLength": 100},
        "headers": {"type": "object", "additionalProperties": _LINE, "maxProperties": 10},
        "after_uid": {"type": "integer", "minimum": 0, "maximum": 2**32 - 2},
    },
}


def _flags(description: str) -> Schema:
    return {"type": "array", "items": {"type": "string", "maxLength": 100}, "maxItems": 20, "description": description}


_SEND = object_schema(
    ["subject"],
    to=_ADDRESSES,
    cc=_ADDRESSES,
    bcc={**_ADDRESSES, "description": "Recipients that are not shown in the message"},
    reply_to={**_ADDRESSES, "maxItems": 10},
    subject=_LINE,
    text={"type": "string", "maxLength": 5_000_000},
    html={"type": "string", "maxLength": 5_000_000},
    attachments={
        "type": "array",
        "maxItems": 50,
        "items": object_schema(
            [],
            document={"type": "string", "description": "The id of a document; its own name and type apply unless given"},
            name={"type": "string", "minLength": 1, "maxLength": 255},
            content_type={"type": "string", "pattern": "^[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+$", "default": "application/octet-stream"},
            content={"type": "string", "description": "base64"},
        )
        | {"oneOf": [{"required": ["name", "content"]}, {"required": ["document"]}]},
    },
    headers={"type": "object", "maxProperties": 20, "additionalProperties": _LINE, "description": "In-Reply-To, References, X-…"},
    **{"from": _ADDRESS},
)
_SENT: Schema = {
    "type": "object",
    "required": ["message_id", "accepted", "refused"],
    "properties": {
        "message_id": {"type": "string"},
        "accepted": {"type": "array", "items": {"type": "string"}},
        "refused": {
            "type": "array",
            "description": "Recipients the server refused while it accepted others",
            "items": {
                "type": "object",
                "properties": {"address": {"type": "string"}, "code": {"type": "integer"}, "message": {"type": "string"}},
            },
        },
    },
}
_READ: Schema = {
    "type": "object",
    "required": ["uid", "subject", "text", "html", "attachments", "truncated"],
    "properties": {
        **_SUMMARY,
        "text": {"type": ["string", "null"]},
        "html": {"type": ["string", "null"]},
        "truncated": {"type": "boolean", "description": "A text or the list of parts was truncated"},
        "attachments": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "content_type": {"type": "string"},
                    "content_id": {"type": "string"},
                    "size": {"type": "integer"},
                    "content": {"type": ["string", "null"], "description": "base64; null when it exceeds `attached_bytes`"},
                    "document": {"type": "string", "description": "The document's id when `as_documents` is true"},
                },
            },
        },
    },
}
_CHANGED: Schema = {
    "type": "object",
    "required": ["changed", "missing"],
    "properties": {
        "changed": {"type": "array", "items": {"type": "integer"}},
        "missing": {"type": "array", "items": {"type": "integer"}, "description": "UIDs that are not or no longer in the folder"},
    },
}

ACTIONS = (
    Action(
        "send",
        "Send a message",
        _SEND,
        _SENT,
        "write",
        {"to": ["ann@example.com"], "subject": "Order 7", "text": "It is on its way."},
    ),
    Action(
        "folders",
        "List the folders of the mailbox",
        object_schema([]),
        {"type": "object", "required": ["folders"], "properties": {"folders": {"type": "array", "items": {"type": "object"}}}},
        "read",
        {},
    ),
    Action(
        "search",
        "Find messages, the newest first",
        object_schema(
            [],
            folder=_FOLDER,
            criteria=_CRITERIA,
            limit={"type": "integer", "minimum": 1, "maximum": MAX_MESSAGES, "default": DEFAULT_MESSAGES},
        ),
        {
            "type": "object",
            "required": ["uidvalidity", "messages", "total"],
            "properties": {
                "uidvalidity": {"type": "integer"},
                "messages": {"type": "array", "items": _ITEM},
                "total": {"type": "integer", "description": "How many messages match, including those beyond `limit`"},
            },
        },
        "read",
        {"criteria": {"seen": False}},
    ),
    Action(
        "read",
        "Read one message, without marking it seen",
        object_schema(
            ["uid"],
            folder=_FOLDER,
            uid=_UID,
            uidvalidity=_VALIDITY,
            attached_bytes={
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_ATTACHED_BYTES,
                "default": DEFAULT_ATTACHED_BYTES,
                "description": "How many bytes of attachment content to return; 0 for names only",
            },
            as_documents={
                "type": "boolean",
                "default": False,
                "description": "Store attachments as documents and return their ids",
            },
        ),
        _READ,
        "read",
        {"uid": 1},
    ),
    Action(
        "flag",
        "Set or remove flags: seen, answered, flagged, deleted, draft, or keywords",
        object_schema(
            ["uids"],
            folder=_FOLDER,
            uids=_UIDS,
            uidvalidity=_VALIDITY,
            add=_flags("Flags to set"),
            remove=_flags("Flags to remove"),
        ),
        _CHANGED,
        "idempotent",
        {"uids": [1], "add": ["seen"]},
    ),
    Action(
        "move",
        "Move messages to another folder",
        object_schema(["uids", "to"], folder=_FOLDER, uids=_UIDS, uidvalidity=_VALIDITY, to={**_FOLDER, "default": "Archive"}),
        _CHANGED,
        "idempotent",
        {"uids": [1], "to": "Archive"},
    ),
)

TRIGGERS = (
    Trigger(
        "new_mail",
        "Messages that arrive in a folder",
        object_schema(
            [],
            folder=_FOLDER,
            begin={"enum": ["now", "start"], "default": "now", "description": "Whether existing messages count as new"},
        ),
        _ITEM,
        {"folder": "INBOX"},
    ),
)
