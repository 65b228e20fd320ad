"""The settings and actions of the connector `slack` as JSON Schemas."""

from typing import Any

from appliance.connectors.contract import Action, object_schema

Schema = dict[str, Any]

USUAL_CHANNELS = 500
MOST_CHANNELS = 5_000


_ADDRESS: Schema = {"type": "string", "pattern": r"^https?://[^/?#@\\]+(/[^?#\\]*)?$", "maxLength": 2_000}

SETTINGS: Schema = {
    **object_schema(
        [],
        token={"type": "string", "minLength": 1, "title": "Bot token", "description": "xoxb-…", "secret": True},
        webhook_url={
            **_ADDRESS,
            "title": "Address of an incoming webhook",
            "description": "For notify; anyone who knows it can post, so it is stored like a password",
            "secret": True,
        },
        base_url={
            **_ADDRESS,
            "title": "Address of the API",
            "description": "Default: https://slack.com/api",
            "secret_target": True,
        },
        timeout_s={"type": "number", "exclusiveMinimum": 0, "maximum": 300, "default": 30, "title": "Seconds per request"},
    ),
    "anyOf": [{"required": ["token"]}, {"required": ["webhook_url"]}],
}

_CHANNEL: Schema = {"type": "string", "minLength": 1, "maxLength": 100, "title": "Channel", "description": "Its id: C0123456789"}
_TS: Schema = {"type": "string", "pattern": r"^[0-9]{1,12}\.[0-9]{1,6}$"}
_CONTENT: Schema = {
    "text": {
        "type": "string",
        "minLength": 1,
        "maxLength": 40_000,
        "title": "Text",
        "description": "With blocks, the text shown in notifications",
    },
    "formatted": {
        "type": "boolean",
        "default": False,
        "title": "The text contains Slack markup",
        "description": "Otherwise <, > and & are escaped, so that values cannot mention people or create links",
    },
    "blocks": {"type": "array", "maxItems": 50, "items": {"type": "object", "required": ["type"]}, "title": "Blocks"},
}
_PLACE: Schema = object_schema(["channel", "ts"], channel={"type": "string"}, ts={"type": "string"})
_OPTIONAL: Schema = {"type": "string"}

ACTIONS = (
    Action(
        "post",
        "Post a message to a channel, a person or a thread",
        object_schema(
            ["channel", "text"], channel=_CHANNEL, thread={**_TS, "title": "Thread: the ts of its first message"}, **_CONTENT
        ),
        _PLACE,
        "write",
        {"channel": "C0123456789", "text": "Order 4711 is shipped"},
    ),
    Action(
        "update",
        "Change a message that this app has posted",
        object_schema(
            ["channel", "ts", "text"],
            channel=_CHANNEL,
            ts={**_TS, "title": "The message's ts, as returned by post"},
            **_CONTENT,
        ),
        _PLACE,
        "idempotent",
        {"channel": "C0123456789", "ts": "1700000000.000100", "text": "Order 4711 has arrived"},
    ),
    Action(
        "notify",
        "Post a message to the channel of the incoming webhook",
        object_schema(["text"], **_CONTENT),
        object_schema(["posted"], posted={"const": True}),
        "write",
        {"text": "Order 4711 is shipped"},
    ),
    Action(
        "find_user",
        "Find a person by their e-mail address; `user` is null when there is none",
        object_schema(["email"], email={"type": "string", "minLength": 3, "maxLength": 320, "title": "E-mail address"}),
        object_schema(
            ["user"],
            user={
                "anyOf": [
                    object_schema(
                        ["id", "deleted", "bot"],
                        id={"type": "string"}, name=_OPTIONAL, real_name=_OPTIONAL, email=_OPTIONAL, time_zone=_OPTIONAL,
                        deleted={"type": "boolean"}, bot={"type": "boolean"},
                    ),
                    {"type": "null"},
                ]
            },
        ),
        "read",
        {"email": "anna@example.com"},
    ),
    Action(
        "channels",
        "List the channels, without archived ones",
        object_schema(
            [],
            private={"type": "boolean", "default": False, "title": "Include private channels"},
            limit={"type": "integer", "minimum": 1, "maximum": MOST_CHANNELS, "default": USUAL_CHANNELS},
        ),
        object_schema(
            ["channels", "truncated"],
            channels={
                "type": "array",
                "items": object_schema(
                    ["id", "name", "private", "member"],
                    id={"type": "string"}, name={"type": "string"}, private={"type": "boolean"}, member={"type": "boolean"},
                ),
            },
            truncated={"type": "boolean"},
        ),
        "read",
    ),
)  # fmt: skip
