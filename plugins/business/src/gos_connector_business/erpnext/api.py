"""A Frappe site's REST API: its address, its credentials, and the mapping of its errors."""

import json
import re
from collections.abc import Mapping
from typing import Any

from appliance.connectors.contract import AuthError, ConfigError, ConnectorError, HttpAnswer, Json, Rejected, TransientError
from gos_connector_business.answers import error_of, excerpt, parse_error_body
from gos_connector_business.rest import Rest

SYSTEM = "ERPNext"
_TAG = re.compile(r"<[^<>]{0,500}>")
_RETRYABLE = frozenset({"QueryDeadlockError", "QueryTimeoutError", "DocumentLockedError", "LockTimeoutError"})


def make_api(settings: Json) -> Rest:
    """Return the API with the credentials of these settings."""
    login = ("Authorization", f"token {settings['key']}:{settings['secret']}")
    return Rest(SYSTEM, settings["url"].rstrip("/"), [login], to_error, settings.get("timeout_s", 60))


def to_error(answer: HttpAnswer) -> ConnectorError:
    """Return the error for an unsuccessful response."""
    body = parse_error_body(answer)
    kind, message = _kind_of(body), _message_of(body)
    details = {"status": answer.status, "code": kind, "message": message}
    suffix = f": {message}" if message else f" ({answer.status})."
    if kind in _RETRYABLE:
        return TransientError(f"Another request was changing the same ERPNext documents{suffix}", details=details)
    if kind == "TimestampMismatchError":
        return Rejected("The document has changed since `modified`; read it again and repeat the change.", details=details)
    if kind == "PermissionError":
        return AuthError(f"ERPNext does not allow this for the user{suffix}", details=details)
    if answer.status == 404 and not kind:
        return ConfigError("There is no Frappe site at this address; check the address.", details=details)
    return error_of(answer, SYSTEM, message, kind)


def _kind_of(body: Json) -> str:
    kind = body.get("exc_type")
    if not kind and isinstance(body.get("exception"), str):
        kind = body["exception"].split(":")[0].rpartition(".")[2]
    return str(kind or "")[:80]


def _message_of(body: Json) -> str:
    """Return the message that the site shows to people, without its markup and without its stack trace."""
    texts: list[Any] = []
    try:
        for each in json.loads(body.get("_server_messages") or "[]"):
            message = json.loads(each) if isinstance(each, str) else each
            texts.append(message.get("message") if isinstance(message, Mapping) else message)
    except (TypeError, ValueError, RecursionError):
        texts = []
    if not texts and isinstance(body.get("exception"), str):
        texts = [body["exception"].partition(":")[2] or body["exception"]]
    if not texts and isinstance(body.get("message"), str):
        texts = [body["message"]]
    return excerpt(_TAG.sub(" ", " ".join(str(each) for each in texts[:5] if each)))
