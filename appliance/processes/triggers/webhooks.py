"""Inbound webhooks: looked up by tenant and path, verified, and stored with their execution before they are answered."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import InvalidSignature, NotFound, PolicyDenied
from appliance.core.json_text import refuse_doubled
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import logs as log_lines
from appliance.monitor import metrics
from appliance.processes.engine.failures import make_error

from .firings import MAX_KEY, Event, Firings, StartedExecution, TriggerKey
from .signatures import Request, refusal, verify

MOST_HEADERS, LONGEST_HEADER = 60, 1_000
MOST_DEPTH = 64
LOG_EVERY_MS = 60_000
OpenSecret = Callable[[TenantScope, str, str], str]
"""Opens a secret, by its name, for the webhooks of a process."""
REFUSED = metrics.registry.counter("gos_webhooks_refused_total", "Inbound webhooks with a missing or wrong signature.")
_SAFE_HEADER = re.compile(r"content-(type|language)|user-agent|date|from|idempotency-key|webhook-(id|timestamp)|x-[a-z0-9-]+")
_CREDENTIAL = re.compile(r"signature|token|secret|auth|key|passw|cookie|session|credential|forwarded|real-ip|client-ip")


class Webhooks:
    """Receives requests; thread-safe."""

    def __init__(self, firings: Firings, open_secret: OpenSecret) -> None:
        self._firings, self._open_secret = firings, open_secret
        self._logged_at: dict[tuple[str, str, str], int] = {}
        self._lock = threading.Lock()

    def receive(self, tenant_id: str, request: Request, request_id: str, trace: str = "") -> StartedExecution:
        """Starts the execution of a delivery; a repeated delivery returns the same one.

        Raises NotFound for an unknown path or a paused process, InvalidSignature, ValidationFailed when the data does not fit
        the process, InvalidJson for a body with duplicate members.
        """
        scope = TenantScope(tenant_id, "trigger", request_id=request_id, trace=trace)
        rows = db.rows(
            "SELECT s.process_id, s.trigger_id, s.settings FROM trigger_source t "
            "JOIN trigger_state s ON s.tenant_id = t.tenant_id AND s.process_id = t.process_id AND s.trigger_id = t.trigger_id "
            "JOIN process p ON p.tenant_id = t.tenant_id AND p.id = t.process_id "
            "WHERE t.tenant_id = ? AND t.kind = 'webhook' AND t.source = ? AND p.paused_at IS NULL",
            (tenant_id, request.path),
        )
        if not rows:
            raise NotFound("there is no webhook at this address")
        mark = TriggerKey(rows[0][0], rows[0][1], "webhook")
        settings = json.loads(rows[0][2])["verify"]
        now = clock.now_ms()
        secret = self._open_secret_of(scope, mark, settings)
        try:
            verified = verify(settings, secret, request, now)
        except InvalidSignature:
            self._refuse(scope, mark, "its signature is missing, wrong or too old")
        key = verified.delivery or ids.new("dlv")
        event = Event(_shorten_key(key), _event_data(request, key, now, settings), content=verified.content)
        try:
            return self._firings.fire(scope, mark, event)
        except InvalidSignature:
            self._refuse(scope, mark, "its content was received before with another delivery id")

    def _open_secret_of(self, scope: TenantScope, mark: TriggerKey, settings: Mapping[str, Any]) -> str:
        if settings["kind"] == "none":
            return ""
        try:
            return self._open_secret(scope, settings["secret"], mark.process_id)
        except (NotFound, PolicyDenied) as error:
            message = Sentence(
                "the secret %(secret)s is not set: gos secret set %(secret2)s",
                secret=repr(settings["secret"]), secret2=settings["secret"],
            )
            failure = make_error("secret_missing", "validation", error.message if isinstance(error, PolicyDenied) else message)
            if self._should_log(scope, mark):
                missing = Event(f"secret:{clock.now_ms()}", {})
                db.write(lambda: self._firings.record_failure(scope, mark, missing, failure))
            REFUSED.inc(1)
            raise refusal() from error

    def _refuse(self, scope: TenantScope, mark: TriggerKey, reason: str) -> NoReturn:
        """Raises the refusal; logs at most once a minute, so that strangers cannot flood the log."""
        REFUSED.inc(1)
        if self._should_log(scope, mark):
            message = f"a request for the webhook {mark.trigger_id} was refused: {reason}"
            fields = {"trigger": mark.trigger_id}
            line = log_lines.Line(
                clock.now_ms(), "warn", "trigger", message, fields, process_id=mark.process_id, request_id=scope.request_id
            )
            db.write(lambda: log_lines.write_lines(scope, [line]))
        raise refusal()

    def _should_log(self, scope: TenantScope, mark: TriggerKey) -> bool:
        now = clock.now_ms()
        key = (scope.tenant_id, mark.process_id, mark.trigger_id)
        with self._lock:
            if abs(now - self._logged_at.get(key, 0)) < LOG_EVERY_MS:
                return False
            self._logged_at[key] = now
            return True


def _shorten_key(key: str) -> str:
    return key if len(key) <= MAX_KEY else hashlib.sha256(key.encode("utf8", "replace")).hexdigest()


def _event_data(request: Request, delivery: str, now: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The event data of a request; headers with credentials are left out."""
    content_type = request.headers.get("content-type", "")
    raw, encoding = _encode_raw(request.body)
    return {
        "delivery_id": delivery, "received_at": clock.rfc3339(now), "path": request.path, "query": dict(request.query),
        "headers": _safe_headers(request.headers, settings), "content_type": content_type,
        "body": _parse_body(request.body, content_type), "raw": raw, "raw_encoding": encoding,
    }  # fmt: skip


def _safe_headers(headers: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, str]:
    own = {settings.get("header")}
    names = [
        name for name in sorted(headers)
        if _SAFE_HEADER.fullmatch(name) and name not in own and (not _CREDENTIAL.search(name) or name == "idempotency-key")
    ]  # fmt: skip
    return {name: headers[name][:LONGEST_HEADER] for name in names[:MOST_HEADERS]}


def _encode_raw(body: bytes) -> tuple[str, str]:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"
    return text, "text"


def _parse_body(body: bytes, content_type: str) -> Any:
    """The parsed body if it is JSON or a form; None for other content types and invalid bodies."""
    media = content_type.partition(";")[0].strip().lower()
    try:
        if media == "application/json" or media.endswith("+json"):
            document = json.loads(body, parse_constant=_refuse_constant)
            refuse_doubled(body, document)
            return document if _is_storable(document) else None
        if media == "application/x-www-form-urlencoded":
            return group_fields(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=1_000))
    except (ValueError, RecursionError):
        return None
    return None


def group_fields(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """The form fields by name; a list for a repeated name."""
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            fields[name] = [*(fields[name] if isinstance(fields[name], list) else [fields[name]]), value]
        else:
            fields[name] = value
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _is_storable(value: Any) -> bool:
    """Whether the value is within the allowed depth; raises UnicodeEncodeError (a ValueError) for lone surrogates."""
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        nested = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        level = [each for inner in nested for each in inner]
    if level:
        return False
    db.dump_json(value).encode()
    return True
