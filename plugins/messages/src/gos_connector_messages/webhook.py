"""The connector `webhook`: sends what has happened to any address, signed as Standard Webhooks 1.0 describes."""

import base64
import binascii
import hashlib
import hmac
import json
import time
from datetime import UTC, datetime
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Connector, Context, Effect, HttpRequest, Json
from gos_connector_messages.answer import error_of, knock

Schema = dict[str, Any]

_ADDRESS: Schema = {"type": "string", "pattern": r"^https?://[^/?#@\\]+(/[^#\\]*)?$", "maxLength": 2_000}


class WebhookConnector(Connector):
    """One receiver of webhooks."""

    contract_version = 1
    name = "webhook"
    title = "Webhook"
    version = "0.1.0"
    tested_against = "the verifier standardwebhooks 1.1"
    settings_schema: ClassVar[Json] = {
        "type": "object",
        "required": ["url"],
        "additionalProperties": False,
        "properties": {
            "url": {**_ADDRESS, "title": "Address of the receiver", "secret_target": True},
            "signing_secret": {
                "type": "string",
                "pattern": r"^(whsec_)?[A-Za-z0-9+/]{20,}={0,2}$",
                "title": "Secret for signing",
                "description": "whsec_ and base64; the receiver has the same. Left out: not signed",
                "secret": True,
            },
            "authorization": {"type": "string", "title": "Header Authorization", "secret": True},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}, "title": "Headers of every call"},
            "honoured": {
                "type": "boolean",
                "default": False,
                "title": "The receiver does nothing twice for the same webhook-id",
            },
            "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 300, "default": 20, "title": "Seconds per request"},
        },
    }
    actions: ClassVar[tuple[Action, ...]] = (
        Action(
            "send",
            "Tell the receiver that something has happened",
            {
                "type": "object",
                "required": ["type", "data"],
                "additionalProperties": False,
                "properties": {
                    "type": {"type": "string", "pattern": r"^[A-Za-z0-9_.-]{1,200}$", "title": "What: order.shipped"},
                    "data": {"type": "object", "title": "About it"},
                    "timestamp": {"type": "string", "format": "date-time", "title": "When; now unless given"},
                },
            },
            {
                "type": "object",
                "required": ["id", "status"],
                "additionalProperties": False,
                "properties": {"id": {"type": "string"}, "status": {"type": "integer"}},
            },
            "write",
            {"type": "order.shipped", "data": {"order": 4711}},
        ),
    )

    def effect_of(self, action: Action, input: Json) -> Effect:  # noqa: A002 - the contract's word
        return "idempotent" if self.settings.get("honoured", False) else action.effect

    def check(self, ctx: Context) -> str:
        self._key()
        return f"{knock(self.settings['url'], ctx)} accepts connections; what it does with a webhook only sending one shows."

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        if action != "send":
            raise ConfigError(f"{self.title} has no action {action!r}; it has send.")
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        body = {"type": input["type"], "timestamp": input.get("timestamp", now), "data": input["data"]}
        try:
            content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except UnicodeEncodeError as error:
            raise ConfigError("`data` contains half of a character pair; remove it.") from error
        # The same for every repetition, so that a receiver can tell one from a new event; no dot, which parts what is signed.
        number = "msg_" + hashlib.sha256(ctx.idempotency_key.encode()).hexdigest()[:32]
        headers = self._headers(number, content)
        timeout = self.settings.get("timeout_s", 20)
        answer = ctx.http.send(HttpRequest("POST", self.settings["url"], headers, (), content, timeout, follow_redirects=False))
        refusal = error_of(answer, "The receiver")
        if refusal is not None:
            raise refusal
        return {"id": number, "status": answer.status}

    def _headers(self, number: str, content: bytes) -> list[tuple[str, str]]:
        moment = str(int(time.time()))
        ours = [("Content-Type", "application/json"), ("Webhook-Id", number), ("Webhook-Timestamp", moment)]
        key = self._key()
        if key is not None:
            signed = hmac.digest(key, f"{number}.{moment}.".encode() + content, "sha256")
            ours.append(("Webhook-Signature", f"v1,{base64.b64encode(signed).decode('ascii')}"))
        if "authorization" in self.settings:
            ours.append(("Authorization", self.settings["authorization"]))
        own = {name.lower() for name, _ in ours}
        return ours + [(name, value) for name, value in self.settings.get("headers", {}).items() if name.lower() not in own]

    def _key(self) -> bytes | None:
        secret = self.settings.get("signing_secret")
        if secret is None:
            return None
        text = secret.removeprefix("whsec_")
        try:
            return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConfigError("`signing_secret` is whsec_ followed by base64; copy it as a whole.") from error
