"""Calls methods in one database of a Tryton server by JSON-RPC."""

import base64
import json
from typing import Any
from urllib.parse import quote

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    HttpAnswer,
    HttpRequest,
    Json,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
    retry_after,
    status_error,
)

_EXCERPT = 500


class Server:
    """One database.  Every call sends the user name and password, so no session stays open on the server."""

    def __init__(self, settings: Json) -> None:
        self._url = f"{settings['base_url'].rstrip('/')}/{quote(settings['database'], safe='')}/rpc/"
        login = base64.b64encode(f"{settings['user']}:{settings['password']}".encode()).decode("ascii")
        self._headers = [("Authorization", f"Basic {login}"), ("Content-Type", "application/json")]
        self._timeout: float = settings.get("timeout_s", 60)

    def run(self, method: str, params: list[Any], ctx: Context) -> Any:
        """Call a method and return its result; raise an error of the contract when there is none."""
        body = json.dumps({"id": 1, "method": method, "params": params}).encode()
        answer = ctx.http.send(HttpRequest("POST", self._url, self._headers, (), body, self._timeout))
        if answer.status != 200:
            raise _to_status_error(answer)
        try:
            envelope = json.loads(answer.content)
        except (ValueError, RecursionError) as error:
            raise _not_tryton() from error
        if not isinstance(envelope, dict) or ("result" in envelope) == ("error" in envelope):
            raise _not_tryton()
        if "error" in envelope:
            raise _to_error(envelope["error"])
        return envelope["result"]


def _not_tryton() -> SystemFailure:
    message = "The server at this address does not respond with Tryton's JSON-RPC; check the address."
    return SystemFailure(message, outcome="unknown")


def _to_error(error: Any) -> ConnectorError:
    """Return the error for an exception of Tryton, which has already rolled the call back."""
    kind, arguments = (error[0], error[1]) if isinstance(error, list) and len(error) > 1 else ("", "")
    if kind in ("UserError", "UserWarning") and isinstance(arguments, list):
        texts = [str(text) for text in (arguments[1:] if kind == "UserWarning" else arguments[:2]) if text]
        details = {"kind": kind, "message": " ".join(texts)[:_EXCERPT]}
        if kind == "UserWarning":
            details["warning"] = str(arguments[0])
            return Rejected(f"Tryton asks for a confirmation: {' '.join(texts)[:_EXCERPT]}", details=details)
        return Rejected(f"Tryton refused: {' '.join(texts)[:_EXCERPT]}", details=details)
    if kind == "ConcurrencyException":
        arguments = "The record has changed since `_timestamp`; read it again and repeat the change."
        return Rejected(arguments, details={"kind": kind})
    text = str(kind)[:_EXCERPT]
    if len(text) > 2 and text[0] == text[-1] == "'" and text[1:-1].replace(".", "").replace("_", "").isalnum():
        return Rejected(f"Tryton has no field, model or value {text}.", details={"message": text})
    # Anything else is a failure in Tryton itself, possibly during the commit.
    return SystemFailure(f"Tryton failed: {text}", outcome="unknown", details={"message": text})


def _to_status_error(answer: HttpAnswer) -> ConnectorError:
    status = answer.status
    details = {"status": status}
    if status == 401:
        return AuthError("Tryton does not accept the user and the password.", details=details)
    if status == 403:
        return Rejected("Tryton does not offer this method to this user.", details=details)
    if status == 404:
        return ConfigError("There is no Tryton database of this name at this address.", details=details)
    if status == 429:
        message = "Tryton limits the request rate, possibly after wrong passwords; try again later."
        return RateLimited(message, retry_after=retry_after(answer), details=details)
    if status == 503:
        return TransientError("Tryton cannot reach its database; check the name of the database.", details=details)
    return status_error(answer, "Tryton", details=details)
