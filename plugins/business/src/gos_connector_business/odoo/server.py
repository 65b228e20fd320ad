"""Calls to an Odoo server: methods of models with arguments by name, over JSON-2 or the older JSON-RPC."""

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
from gos_connector_business.answer import brief, error_of, odd_answer, parse_json, parse_object, told_object

_WHO = "Odoo"
_JSON = ("Content-Type", "application/json; charset=utf-8")


@dataclass(frozen=True)
class Call:
    """A method of a model.  `ids` are the records it runs on, None for a method of the model itself."""

    model: str
    method: str
    ids: list[int] | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)


class Server:
    """One database of a server, as one user.  Odoo does each call as one transaction."""

    def __init__(self, settings: Json) -> None:
        self._settings = settings
        self._url = settings["base_url"].rstrip("/")
        self._old = settings.get("protocol") == "jsonrpc"
        self._timeout: float = settings.get("timeout_s", 60)
        self._uid: int | None = None
        self._lock = threading.Lock()

    def run(self, call: Call, ctx: Context) -> Any:
        """What the method answered; an error of the contract when it was refused."""
        return self._run_jsonrpc(call, ctx) if self._old else self._run_json2(call, ctx)

    def greet(self, ctx: Context) -> str:
        """Who answers, and to whom, once the credentials are known to be good."""
        told = self.run(Call("res.users", "context_get"), ctx)
        if not isinstance(told, dict):
            raise SystemFailure("What answers at this address does not speak as Odoo does.")
        if not self._old:
            return f"Odoo at {self._url} answers to the API key."
        version = self._rpc("common", "version", [], ctx)
        name = version.get("server_version") if isinstance(version, dict) else None
        return f"Odoo {brief(name or '')} at {self._url} answers to {self._settings['user']} in {self._settings['database']}."

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
            return parse_json(answer, _WHO)
        told = told_object(answer)
        if answer.status == 404 and "name" not in told:
            raise ConfigError(
                "There is no JSON-2 API at this address: it needs Odoo 19 or later, and `database` where a host has several.",
                details={"status": 404},
            )
        raise _refusal(told, answer) if "name" in told else error_of(answer, _WHO, "")

    # -- JSON-RPC, all versions up to 21

    def _run_jsonrpc(self, call: Call, ctx: Context) -> Any:
        given = dict(call.args)
        if call.context:
            given["context"] = call.context
        args: list[Any] = [] if call.ids is None else [call.ids]
        if call.method == "create":
            # Of `create` alone Odoo wants the values by position.
            args.append(given.pop("vals_list", []))
        database, password = self._settings["database"], self._settings["password"]
        uid = self._user_id(ctx)
        try:
            return self._rpc("object", "execute_kw", [database, uid, password, call.model, call.method, args, given], ctx)
        except AuthError:
            with self._lock:
                self._uid = None
            raise

    def _user_id(self, ctx: Context) -> int:
        with self._lock:
            known = self._uid
        if known is not None:
            return known
        asked = [self._settings[name] for name in ("database", "user", "password")]
        try:
            found = self._rpc("common", "authenticate", [*asked, {}], ctx)
        except ConnectorError as error:
            error.outcome = "not_done"  # a login changes nothing
            raise
        if found is False or found is None:
            raise AuthError("Odoo does not accept the user and the password in this database.")
        if not isinstance(found, int):
            raise SystemFailure("Odoo did not answer a login with the id of the user.")
        with self._lock:
            self._uid = found
        return found

    def _rpc(self, service: str, method: str, args: list[Any], ctx: Context) -> Any:
        params = {"service": service, "method": method, "args": args}
        body = {"jsonrpc": "2.0", "id": 1, "method": "call", "params": params}
        answer = self._send("/jsonrpc", [_JSON], body, ctx)
        if answer.status == 404:
            message = "There is no JSON-RPC at this address; Odoo 22 and later have the protocol json2 only."
            raise ConfigError(message, details={"status": 404})
        if answer.status != 200:
            raise error_of(answer, _WHO, "")
        told = parse_object(answer, _WHO)
        if told.get("jsonrpc") != "2.0":
            raise odd_answer(answer, _WHO)
        if "error" in told:
            error = told["error"] if isinstance(told["error"], dict) else {}
            if error.get("code") == 404:
                raise ConfigError("This Odoo has its JSON-RPC switched off; use the protocol json2.", details={"status": 404})
            data = error.get("data")
            raise _refusal(data if isinstance(data, dict) else {}, answer)
        # A method that answers nothing leaves the result out.
        return told.get("result")

    def _send(self, path: str, headers: list[tuple[str, str]], body: Any, ctx: Context) -> HttpAnswer:
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        request = HttpRequest("POST", self._url + path, headers, (), content, self._timeout, follow_redirects=False)
        answer = ctx.http.send(request)
        if 300 <= answer.status < 400:
            message = "The address sends elsewhere; give the one it sends to as base_url."
            raise ConfigError(message, details={"status": answer.status})
        return answer


_TRY_AGAIN = ("SerializationFailure", "LockNotAvailable", "DeadlockDetected", "LockError", "ConcurrencyError")
_REFUSED = ("UserError", "ValidationError", "MissingError", "RedirectWarning")


def _refusal(told: Mapping[str, Any], answer: HttpAnswer) -> ConnectorError:
    """The error for an exception of Odoo, which undoes what the call did before it answers one."""
    name, said = str(told.get("name") or ""), brief(told.get("message") or "")
    module, _, kind = name.rpartition(".")
    details = {"status": answer.status, "kind": name[:120], "message": said}
    if kind == "AccessDenied" or kind in ("Unauthorized", "SessionExpiredException"):
        return AuthError(f"Odoo does not accept the credentials: {said}", details=details)
    if kind in ("AccessError", "Forbidden"):
        return AuthError(f"Odoo does not allow this to the user: {said}", details=details)
    if kind in _TRY_AGAIN:
        return TransientError("Odoo was changing the same records for somebody else; try again.", details=details)
    if module.startswith("psycopg"):
        if kind == "OperationalError":
            if "does not exist" in said:
                return ConfigError("There is no Odoo database of this name at this address.", details=details)
            return TransientError("Odoo does not reach its database.", outcome="unknown", details=details)
        return Rejected(f"Odoo's database refused: {said}", details=details)
    if kind in _REFUSED or module in ("builtins", "werkzeug.exceptions"):
        # A field, model, method or argument that does not exist comes as one of Python's own errors.
        return Rejected(f"Odoo refused: {said}", details=details)
    return SystemFailure(f"Odoo failed: {said or kind}", outcome="unknown", details=details)
