"""The connector: a document is looked at, sent once, and its errors told for what they are."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from appliance.connectors.contract import (
    Action,
    ConfigError,
    Connector,
    Context,
    Effect,
    HttpAnswer,
    HttpRequest,
    Json,
    Rejected,
)
from gos_connector_graphql.answer import body_of, error_of
from gos_connector_graphql.declaration import ACTIONS, SETTINGS
from gos_connector_graphql.document import operation_of
from gos_connector_graphql.schema import OPERATIONS, TYPE, operations_of, type_of

_ACCEPTED = "application/graphql-response+json, application/json;q=0.9"
_KINDS = {"query": "query", "mutate": "mutation"}


class GraphqlConnector(Connector):
    """One GraphQL service."""

    contract_version = 1
    name = "graphql"
    title = "GraphQL"
    version = "0.1.0"
    tested_against = "graphql-core 3.3 behind HTTP on loopback"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._auth: Mapping[str, Any] = settings.get("auth", {})
        self._idempotency: Mapping[str, Any] = settings.get("idempotency", {})
        self._verbs: Mapping[str, Callable[[Json, Context], dict[str, Any]]] = {
            "query": lambda given, ctx: self._run("query", given, ctx),
            "mutate": lambda given, ctx: self._run("mutate", given, ctx),
            "describe": self._describe,
        }

    def effect_of(self, action: Action, input: Json) -> Effect:  # noqa: A002 - the contract's word
        return "idempotent" if action.effect == "write" and self._idempotency.get("honoured", False) else action.effect

    def check(self, ctx: Context) -> str:
        data = self._ask({"query": "query Check { __typename }"}, ctx)
        return f"{self.settings['url']} answers as GraphQL; its queries are fields of {str(data.get('__typename'))[:120]}."

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        verb = self._verbs.get(action)
        if verb is None:
            raise ConfigError(f"{self.title} has no action {action!r}; it has {', '.join(self._verbs)}.")
        return verb(input, ctx)

    # -- the actions

    def _run(self, action: str, given: Json, ctx: Context) -> dict[str, Any]:
        operation = operation_of(given["document"], given.get("operation"))
        if operation.kind != _KINDS[action]:
            right = {"query": "query", "mutation": "mutate"}.get(operation.kind)
            advice = f"use the action {right}" if right else "subscriptions are not supported"
            raise ConfigError(f"The document's operation is a {operation.kind}: {advice}.")
        asked: dict[str, Any] = {"query": given["document"]}
        if given.get("variables"):
            asked["variables"] = given["variables"]
        if operation.name is not None:
            asked["operationName"] = operation.name
        changes = action == "mutate"
        answer = self._send(asked, ctx, changes=changes)
        body = body_of(answer, changes=changes)
        error = error_of(body, answer, changes=changes)
        if error is None:
            return {"data": body["data"]}
        if given.get("partial") == "keep" and body["data"] is not None:
            return {"data": body["data"], "errors": body["errors"]}
        raise error

    def _describe(self, given: Json, ctx: Context) -> dict[str, Any]:
        try:
            if "type" not in given:
                return operations_of(self._ask({"query": OPERATIONS}, ctx))
            found = type_of(self._ask({"query": TYPE, "variables": {"name": given["type"]}}, ctx))
        except Rejected as refusal:
            message = f"The service does not describe itself; its operators may have switched introspection off. {refusal.message}"
            raise Rejected(message, details=refusal.details) from refusal
        if found is None:
            raise ConfigError(f"The service has no type {given['type']!r}.")
        return {"type": found}

    # -- requests

    def _ask(self, asked: Json, ctx: Context) -> Mapping[str, Any]:
        """The data of a query of our own."""
        answer = self._send(asked, ctx, changes=False)
        body = body_of(answer, changes=False)
        error = error_of(body, answer, changes=False)
        if error is not None:
            raise error
        data: Mapping[str, Any] = body["data"]
        return data

    def _send(self, asked: Json, ctx: Context, *, changes: bool) -> HttpAnswer:
        headers = {"accept": ("Accept", _ACCEPTED), "content-type": ("Content-Type", "application/json")}
        for name, value in [*self.settings.get("headers", {}).items(), *self._login()]:
            headers[name.lower()] = (name, value)
        if changes and self._idempotency:
            headers[self._idempotency["header"].lower()] = (self._idempotency["header"], ctx.idempotency_key)
        content = json.dumps(asked, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
        timeout = self.settings.get("timeout_s", 60)
        request = HttpRequest("POST", self.settings["url"], list(headers.values()), (), content, timeout, follow_redirects=False)
        return ctx.http.send(request)

    def _login(self) -> list[tuple[str, str]]:
        auth = self._auth
        match auth.get("kind", "none"):
            case "basic":
                login = base64.b64encode(f"{auth['username']}:{auth['password']}".encode()).decode("ascii")
                return [("Authorization", f"Basic {login}")]
            case "bearer":
                return [("Authorization", f"Bearer {auth['token']}")]
            case "header":
                return [(auth["name"], auth["value"])]
        return []
