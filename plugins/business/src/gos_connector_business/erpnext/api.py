"""A Frappe site's REST API: its address, its token, and what its errors mean."""

import json
import re
from collections.abc import Mapping
from typing import Any

from appliance.connectors.contract import AuthError, ConfigError, ConnectorError, HttpAnswer, Json, Rejected, TransientError
from gos_connector_business.answer import brief, error_of, told_object
from gos_connector_business.rest import Rest

WHO = "ERPNext"
_TAG = re.compile(r"<[^<>]{0,500}>")
_TRY_AGAIN = frozenset({"QueryDeadlockError", "QueryTimeoutError", "DocumentLockedError", "LockTimeoutError"})


def make_api(settings: Json) -> Rest:
    """The API with the credentials of these settings."""
    login = ("Authorization", f"token {settings['key']}:{settings['secret']}")
    return Rest(WHO, settings["url"].rstrip("/"), [login], refusal, settings.get("timeout_s", 60))


def refusal(answer: HttpAnswer) -> ConnectorError:
    """The error of an answer that is no success."""
    told = told_object(answer)
    kind, said = _kind_of(told), _said(told)
    details = {"status": answer.status, "code": kind, "message": said}
    reason = f": {said}" if said else f" ({answer.status})."
    if kind in _TRY_AGAIN:
        return TransientError(f"ERPNext was changing the same documents for somebody else{reason}", details=details)
    if kind == "TimestampMismatchError":
        return Rejected("The document has changed since the given `modified`. Read it again.", details=details)
    if kind == "PermissionError":
        return AuthError(f"ERPNext does not allow this to the user{reason}", details=details)
    if answer.status == 404 and not kind:
        return ConfigError("There is no Frappe site at this address.", details=details)
    return error_of(answer, WHO, said, kind)


def _kind_of(told: Json) -> str:
    kind = told.get("exc_type")
    if not kind and isinstance(told.get("exception"), str):
        kind = told["exception"].split(":")[0].rpartition(".")[2]
    return str(kind or "")[:80]


def _said(told: Json) -> str:
    """What the site wants people to read, without its markup and never with its stack."""
    texts: list[Any] = []
    try:
        for each in json.loads(told.get("_server_messages") or "[]"):
            message = json.loads(each) if isinstance(each, str) else each
            texts.append(message.get("message") if isinstance(message, Mapping) else message)
    except (TypeError, ValueError, RecursionError):
        texts = []
    if not texts and isinstance(told.get("exception"), str):
        texts = [told["exception"].partition(":")[2] or told["exception"]]
    if not texts and isinstance(told.get("message"), str):
        texts = [told["message"]]
    return brief(_TAG.sub(" ", " ".join(str(each) for each in texts[:5] if each)))
