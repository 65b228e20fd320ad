"""The connector `teams`: posts Adaptive Cards to Microsoft Teams through a Workflows webhook."""

import json
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Connector, Context, HttpRequest, Json
from gos_connector_messages.answer import error_of, probe

Schema = dict[str, Any]

# The documented maximum size of a Teams message is about 28 KB.
_MOST_BYTES = 28 * 1024
_TEXT: Schema = {"type": "string", "minLength": 1, "maxLength": 20_000}
_LINE: Schema = {"type": "string", "minLength": 1, "maxLength": 500}
_ACCEPTED: Schema = {
    "type": "object",
    "required": ["status"],
    "additionalProperties": False,
    "properties": {"status": {"type": "integer", "description": "202: accepted; Teams does not report whether it was posted"}},
}


class TeamsConnector(Connector):
    """One channel or chat, behind one address."""

    contract_version = 1
    name = "teams"
    title = "Microsoft Teams"
    version = "0.1.0"
    tested_against = "a loopback test server that follows what Microsoft publishes"
    settings_schema: ClassVar[Json] = {
        "type": "object",
        "required": ["url"],
        "additionalProperties": False,
        "properties": {
            "url": {
                "type": "string",
                "pattern": r"^https?://[^/?#@\\]+/[^#\\]*$",
                "maxLength": 4_000,
                "title": "Address of the webhook",
                "description": "As shown under Workflows in Teams; anyone who knows it can post, so it is stored like a password",
                "secret": True,
            },
            "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 300, "default": 30, "title": "Seconds per request"},
        },
    }
    actions: ClassVar[tuple[Action, ...]] = (
        Action(
            "post",
            "Post a text with facts and links",
            {
                "type": "object",
                "required": ["text"],
                "additionalProperties": False,
                "properties": {
                    "title": {**_LINE, "title": "Title"},
                    "text": {**_TEXT, "title": "Text"},
                    "facts": {
                        "type": "object",
                        "maxProperties": 50,
                        "additionalProperties": {"type": ["string", "number", "boolean"]},
                        "title": "Facts, as name and value",
                    },
                    "links": {
                        "type": "object",
                        "maxProperties": 6,
                        "additionalProperties": {"type": "string", "pattern": "^https?://", "maxLength": 2_000},
                        "title": "Buttons, as name and address",
                    },
                },
            },
            _ACCEPTED,
            "write",
            {
                "title": "Order 4711",
                "text": "is shipped",
                "facts": {"Weight": 3},
                "links": {"Open": "https://shop.example.com/4711"},
            },
        ),
        Action(
            "post_card",
            "Post your own Adaptive Card",
            {
                "type": "object",
                "required": ["card"],
                "additionalProperties": False,
                "properties": {
                    "card": {
                        "type": "object",
                        "required": ["type", "version", "body"],
                        "properties": {
                            "type": {"const": "AdaptiveCard"},
                            "version": {"type": "string", "pattern": r"^1\.[0-6]$"},
                            "body": {"type": "array", "items": {"type": "object"}},
                        },
                    }
                },
            },
            _ACCEPTED,
            "write",
            {"card": {"type": "AdaptiveCard", "version": "1.4", "body": [{"type": "TextBlock", "text": "Hello"}]}},
        ),
    )

    def check(self, ctx: Context) -> str:
        return f"{probe(self.settings['url'], ctx)} accepts connections. Post a message to test the webhook itself."

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        if action == "post":
            return self._send(_build_card(input), ctx)
        if action == "post_card":
            return self._send(input["card"], ctx)
        raise ConfigError(f"{self.title} has no action {action!r}; it has post, post_card.")

    def _send(self, card: Json, ctx: Context) -> dict[str, Any]:
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        try:
            content = json.dumps(
                {"type": "message", "attachments": [attachment]}, ensure_ascii=False, separators=(",", ":")
            ).encode()
        except UnicodeEncodeError as error:
            raise ConfigError("The message contains an unpaired surrogate character; remove it.") from error
        if len(content) > _MOST_BYTES:
            raise ConfigError(f"The message has {len(content):,} bytes; the maximum in Teams is {_MOST_BYTES:,}. Shorten it.")
        headers = [("Content-Type", "application/json")]
        timeout = self.settings.get("timeout_s", 30)
        answer = ctx.http.send(HttpRequest("POST", self.settings["url"], headers, (), content, timeout, follow_redirects=False))
        refusal = error_of(answer, "Teams")
        if refusal is not None:
            raise refusal
        return {"status": answer.status}


def _build_card(params: Json) -> Json:
    """Build an Adaptive Card 1.4 from a text, facts and links."""
    body: list[dict[str, Any]] = []
    if "title" in params:
        body.append({"type": "TextBlock", "text": params["title"], "size": "Large", "weight": "Bolder", "wrap": True})
    body.append({"type": "TextBlock", "text": params["text"], "wrap": True})
    if params.get("facts"):
        facts = [{"title": name, "value": _format_value(value)} for name, value in params["facts"].items()]
        body.append({"type": "FactSet", "facts": facts})
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
    }
    actions = [{"type": "Action.OpenUrl", "title": name, "url": url} for name, url in params.get("links", {}).items()]
    return {**card, "body": body, **({"actions": actions} if actions else {})}


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
