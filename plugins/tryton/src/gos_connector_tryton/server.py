"""Calls to one database of a Tryton server, by JSON-RPC."""

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
)

_EXCERPT = 500


class Server:
    """One database.  Every call carries name and password: no session is left behind over there."""

    def __init__(self, settings: Json) -> None:
        self._url = f"{settings['base_url'].rstrip('/')}/{quote(settings['database'], safe='')}/rpc/"
        login = base64.b64encode(f"{settings['user']}:{settings['password']}".encode()).decode("ascii")
        self._headers = [("Authorization", f"Basic {login}"), ("Content-Type", "application/json")]
        self._timeout: float = settings.get("timeout_s", 60)

    def run(self, method: str, params: list[Any], ctx: Context) -> Any:
        """The result of a method; an error of the contract when there is none."""
        body = json.dumps({"id": 1, "method": method, "params": params}).encode()
        answer = ctx.http.send(HttpRequest("POST", self._url, self._headers, (), body, self._timeout))
        if answer.status != 200:
            raise _error_of_status(answer)
        try:
            told = json.loads(answer.content)
        except (ValueError, RecursionError) as error:
            raise _no_tryton() from error
        if not isinstance(told, dict) or ("result" in told) == ("error" in told):
            raise _no_tryton()
        if "error" in told:
            raise _error_of(told["error"])
        return told["result"]


def _no_tryton() -> SystemFailure:
    return SystemFailure("What answers at this address does not speak Tryton's JSON-RPC.", outcome="unknown")


def _error_of(error: Any) -> ConnectorError:
    """What Tryton tells in place of a result: it has rolled back what the call did."""
    kind, said = (error[0], error[1]) if isinstance(error, list) and len(error) > 1 else ("", "")
    if kind in ("UserError", "UserWarning") and isinstance(said, list):
        texts = [str(text) for text in (said[1:] if kind == "UserWarning" else said[:2]) if text]
        details = {"kind": kind, "message": " ".join(texts)[:_EXCERPT]}
        if kind == "UserWarning":
            details["warning"] = str(said[0])
            return Rejected(f"Tryton wants a person to confirm: {' '.join(texts)[:_EXCERPT]}", details=details)
        return Rejected(f"Tryton refused: {' '.join(texts)[:_EXCERPT]}", details=details)
    if kind == "ConcurrencyException":
        return Rejected("The record has changed since the given timestamp. Read it again.", details={"kind": kind})
    text = str(kind)[:_EXCERPT]
    if len(text) > 2 and text[0] == text[-1] == "'" and text[1:-1].replace(".", "").replace("_", "").isalnum():
        return Rejected(f"Tryton knows no field, model or value {text}.", details={"message": text})
    # Anything else is a failure within Tryton, perhaps while it committed.
    return SystemFailure(f"Tryton failed: {text}", outcome="unknown", details={"message": text})


def _error_of_status(answer: HttpAnswer) -> ConnectorError:
    status = answer.status
    details = {"status": status}
    if status == 401:
        return AuthError("Tryton does not accept the user and the password.", details=details)
    if status == 403:
        return Rejected("Tryton does not offer this method to this user.", details=details)
    if status == 404:
        return ConfigError("There is no Tryton database of this name at this address.", details=details)
    if status == 429:
        after = answer.headers.get("retry-after", "")
        wait = float(after[:9]) if after.isascii() and after.isdigit() else None
        return RateLimited("Tryton asks to wait, perhaps after wrong passwords.", retry_after=wait, details=details)
    if status == 503:
        return TransientError("Tryton does not reach its database; check its name.", details=details)
    if status >= 500:
        return TransientError(f"Tryton failed ({status}).", outcome="unknown", details=details)
    return Rejected(f"Tryton refused the request ({status}).", details=details)
