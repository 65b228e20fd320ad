"""Calls methods of models on an Odoo server, with named arguments, over JSON-2 or the older JSON-RPC."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    HttpAnswer,
    HttpRequest,
    Json,
    Rejected,
    SystemFailure,
    TransientError,
)
from gos_connector_business.answers import error_of, excerpt, parse_error_body, parse_json, parse_object, unexpected_answer

_SYSTEM = "Odoo"
_JSON = ("Content-Type", "application/json; charset=utf-8")


@dataclass(frozen=True)
class Call:
    """A method call.  `ids` are the records the method runs on, None for a method of the model itself."""

    model: str
    method: str
    ids: list[int] | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)


class Server:
    """One database of an Odoo server, accessed as one user.  Odoo runs each call as one transaction."""

    def __init__(self, settings: Json) -> None:
        self._settings = settings
        self._url = settings["base_url"].rstrip("/")
        self._uses_jsonrpc = settings.get("protocol") == "jsonrpc"
        self._timeout: float = settings.get("timeout_s", 60)
        self._uid: int | None = None
        self._lock = threading.Lock()

    def run(self, call: Call, ctx: Context) -> Any:
        """Call a method and return its result; raise an error of the contract when Odoo refuses or fails."""
        return self._run_jsonrpc(call, ctx) if self._uses_jsonrpc else self._run_json2(call, ctx)

    def check(self, ctx: Context) -> str:
        """Check the credentials and return a message that names the server and the user."""
        user_context = self.run(Call("res.users", "context_get"), ctx)
        if not isinstance(user_context, dict):
            raise SystemFailure("The server at this address does not respond like Odoo; check the address.")
        if not self._uses_jsonrpc:
            return f"Connected to Odoo at {self._url} with the API key."
        version = self._rpc("common", "version", [], ctx)
        name = version.get("server_version") if isinstance(version, dict) else None
        database, user = self._settings["database"], self._settings["user"]
        return f"Connected to Odoo {excerpt(name or '')} at {self._url}, database {database}, as {user}."

    # -- JSON-2, Odoo 19 and later

    def _run_json2(self, call: Call, ctx: Context) -> Any:
        body = {**call.args, **({"ids": call.ids} if call.ids is not None else {})}
        if call.context:
            body["context"] = call.context
        headers = [("Authorization", f"bearer {self._settings['key']}"), _JSON]
        if database := self._settings.get("database"):
            headers.append(("X-Odoo-Database", database))
        answer = self._send(f"/json/2/{call.model}/{call.method}", headers, body, ctx)
        if answer.status == 200:
            return parse_json(answer, _SYSTEM)
        error = parse_error_body(answer)
        if answer.status == 404 and "name" not in error:
            raise ConfigError(
                "There is no JSON-2 API at this address; it requires Odoo 19 or later, and `database` if the host has several.",
                details={"status": 404},
            )
        raise _to_error(error, answer) if "name" in error else error_of(answer, _SYSTEM, "")

    # -- JSON-RPC, all versions up to 21

    def _run_jsonrpc(self, call: Call, ctx: Context) -> Any:
        named_args = dict(call.args)
        if call.context:
            named_args["context"] = call.context
        args: list[Any] = [] if call.ids is None else [call.ids]
        if call.method == "create":
            # Unlike other methods, `create` takes its values as a positional argument.
            args.append(named_args.pop("vals_list", []))
        database, password = self._settings["database"], self._settings["password"]
        uid = self._user_id(ctx)
        try:
            return self._rpc("object", "execute_kw", [database, uid, password, call.model, call.method, args, named_args], ctx)
        except AuthError:
            with self._lock:
                self._uid = None
            raise

    def _user_id(self, ctx: Context) -> int:
        with self._lock:
            cached = self._uid
        if cached is not None:
            return cached
        login = [self._settings[name] for name in ("database", "user", "password")]
        try:
            uid = self._rpc("common", "authenticate", [*login, {}], ctx)
        except ConnectorError as error:
            error.outcome = "not_done"  # a login changes nothing
            raise
        if uid is False or uid is None:
            raise AuthError("Odoo does not accept the user and the password in this database.")
        if not isinstance(uid, int):
            raise SystemFailure("Odoo did not return the id of the user at login.")
        with self._lock:
            self._uid = uid
        return uid

    def _rpc(self, service: str, method: str, args: list[Any], ctx: Context) -> Any:
        params = {"service": service, "method": method, "args": args}
        body = {"jsonrpc": "2.0", "id": 1, "method": "call", "params": params}
        answer = self._send("/jsonrpc", [_JSON], body, ctx)
        if answer.status == 404:
            message = "There is no JSON-RPC at this address; Odoo 22 and later support only the protocol json2."
            raise ConfigError(message, details={"status": 404})
        if answer.status != 200:
            raise error_of(answer, _SYSTEM, "")
        envelope = parse_object(answer, _SYSTEM)
        if envelope.get("jsonrpc") != "2.0":
            raise unexpected_answer(answer, _SYSTEM)
        if "error" in envelope:
            error = envelope["error"] if isinstance(envelope["error"], dict) else {}
            if error.get("code") == 404:
                raise ConfigError("JSON-RPC is disabled on this Odoo server; use the protocol json2.", details={"status": 404})
            data = error.get("data")
            raise _to_error(data if isinstance(data, dict) else {}, answer)
        # The envelope of a method without a return value has no `result`.
        return envelope.get("result")

    def _send(self, path: str, headers: list[tuple[str, str]], body: Any, ctx: Context) -> HttpAnswer:
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        request = HttpRequest("POST", self._url + path, headers, (), content, self._timeout, follow_redirects=False)
        answer = ctx.http.send(request)
        if 300 <= answer.status < 400:
            message = "The address redirects to another one; set `base_url` to the address it redirects to."
            raise ConfigError(message, details={"status": answer.status})
        return answer


_TRY_AGAIN = ("SerializationFailure", "LockNotAvailable", "DeadlockDetected", "LockError", "ConcurrencyError")
_REFUSED = ("UserError", "ValidationError", "MissingError", "RedirectWarning")


def _to_error(exception: Mapping[str, Any], answer: HttpAnswer) -> ConnectorError:
    """Return the error for an exception of Odoo, which has already rolled the call back."""
    name, reason = str(exception.get("name") or ""), excerpt(exception.get("message") or "")
    module, _, kind = name.rpartition(".")
    details = {"status": answer.status, "kind": name[:120], "message": reason}
    if kind == "AccessDenied" or kind in ("Unauthorized", "SessionExpiredException"):
        return AuthError(f"Odoo does not accept the credentials: {reason}", details=details)
    if kind in ("AccessError", "Forbidden"):
        return AuthError(f"Odoo does not allow this for the user: {reason}", details=details)
    if kind in _TRY_AGAIN:
        return TransientError("Another request was changing the same Odoo records; try again.", details=details)
    if module.startswith("psycopg"):
        if kind == "OperationalError":
            if "does not exist" in reason:
                return ConfigError("There is no Odoo database of this name at this address.", details=details)
            return TransientError("Odoo cannot reach its database.", outcome="unknown", details=details)
        return Rejected(f"Odoo's database refused: {reason}", details=details)
    if kind in _REFUSED or module in ("builtins", "werkzeug.exceptions"):
        # Odoo reports an unknown field, model, method or argument as a built-in Python exception.
        return Rejected(f"Odoo refused: {reason}", details=details)
    return SystemFailure(f"Odoo failed: {reason or kind}", outcome="unknown", details=details)
