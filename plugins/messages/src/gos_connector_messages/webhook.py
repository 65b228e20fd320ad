"""The connector `webhook`: sends events to any URL, signed according to Standard Webhooks 1.0."""

import base64
import binascii
import hashlib
import hmac
import json
import time
from datetime import UTC, datetime
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Connector, Context, Effect, HttpRequest, Json
from gos_connector_messages.answer import error_of, probe

Schema = dict[str, Any]

_ADDRESS: Schema = {"type": "string", "pattern": r"^https?://[^/?#@\\]+(/[^#\\]*)?$", "maxLength": 2_000}


class WebhookConnector(Connector):
    """Sends webhooks to one receiver."""

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
                "title": "Signing secret",
                "description": "whsec_ followed by base64, the same as at the receiver; leave empty to send unsigned",
                "secret": True,
            },
            "authorization": {"type": "string", "title": "Authorization header", "secret": True},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}, "title": "Headers of every call"},
            "honoured": {
                "type": "boolean",
                "default": False,
                "title": "The receiver deduplicates by webhook-id",
            },
            "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 300, "default": 20, "title": "Seconds per request"},
        },
    }
    actions: ClassVar[tuple[Action, ...]] = (
        Action(
            "send",
            "Send an event to the receiver",
            {
                "type": "object",
                "required": ["type", "data"],
                "additionalProperties": False,
                "properties": {
                    "type": {"type": "string", "pattern": r"^[A-Za-z0-9_.-]{1,200}$", "title": "Event type, such as order.shipped"},
                    "data": {"type": "object", "title": "Event data"},
                    "timestamp": {"type": "string", "format": "date-time", "title": "Time of the event; default: now"},
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
        self._signing_key()
        return f"{probe(self.settings['url'], ctx)} accepts connections. Send an event to test the receiver itself."

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        if action != "send":
            raise ConfigError(f"{self.title} has no action {action!r}; it has send.")
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        body = {"type": input["type"], "timestamp": input.get("timestamp", now), "data": input["data"]}
        try:
            content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except UnicodeEncodeError as error:
            raise ConfigError("`data` contains an unpaired surrogate character; remove it.") from error
        # Retries have the same id, so that the receiver can deduplicate. No dot: it separates the parts of the signed text.
        message_id = "msg_" + hashlib.sha256(ctx.idempotency_key.encode()).hexdigest()[:32]
        headers = self._headers(message_id, content)
        timeout = self.settings.get("timeout_s", 20)
        answer = ctx.http.send(HttpRequest("POST", self.settings["url"], headers, (), content, timeout, follow_redirects=False))
        refusal = error_of(answer, "The receiver")
        if refusal is not None:
            raise refusal
        return {"id": message_id, "status": answer.status}

    def _headers(self, message_id: str, content: bytes) -> list[tuple[str, str]]:
        timestamp = str(int(time.time()))
        headers = [("Content-Type", "application/json"), ("Webhook-Id", message_id), ("Webhook-Timestamp", timestamp)]
        key = self._signing_key()
        if key is not None:
            signature = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + content, "sha256")
            headers.append(("Webhook-Signature", f"v1,{base64.b64encode(signature).decode('ascii')}"))
        if "authorization" in self.settings:
            headers.append(("Authorization", self.settings["authorization"]))
        names = {name.lower() for name, _ in headers}
        return headers + [(name, value) for name, value in self.settings.get("headers", {}).items() if name.lower() not in names]

    def _signing_key(self) -> bytes | None:
        secret = self.settings.get("signing_secret")
        if secret is None:
            return None
        text = secret.removeprefix("whsec_")
        try:
            return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConfigError("`signing_secret` must be whsec_ followed by base64; copy the whole secret.") from error
