"""The GraphQL connector: checks a document, sends it once, and raises its errors as errors of the connector contract."""

import json
from collections.abc import Mapping
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
    authorized,
)
from gos_connector_graphql.answer import errors_to_exception, parse_body
from gos_connector_graphql.declaration import ACTIONS, SETTINGS
from gos_connector_graphql.document import parse_operation
from gos_connector_graphql.schema import OPERATIONS, TYPE, describe_operations, describe_type

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
        self._idempotency: Mapping[str, Any] = settings.get("idempotency", {})
        self.verbs = {
            "query": lambda params, ctx: self._run("query", params, ctx),
            "mutate": lambda params, ctx: self._run("mutate", params, ctx),
            "describe": self._describe,
        }

    def effect_of(self, action: Action, input: Json) -> Effect:  # noqa: A002 - the contract's word
        return "idempotent" if action.effect == "write" and self._idempotency.get("honoured", False) else action.effect

    def check(self, ctx: Context) -> str:
        data = self._fetch({"query": "query Check { __typename }"}, ctx)
        return f"{self.settings['url']} answers as GraphQL; its queries are fields of {str(data.get('__typename'))[:120]}."

    # -- the actions

    def _run(self, action: str, params: Json, ctx: Context) -> dict[str, Any]:
        operation = parse_operation(params["document"], params.get("operation"))
        if operation.kind != _KINDS[action]:
            right = {"query": "query", "mutation": "mutate"}.get(operation.kind)
            advice = f"use the action {right}" if right else "subscriptions are not supported"
            raise ConfigError(f"The document's operation is a {operation.kind}: {advice}.")
        request: dict[str, Any] = {"query": params["document"]}
        if params.get("variables"):
            request["variables"] = params["variables"]
        if operation.name is not None:
            request["operationName"] = operation.name
        changes = action == "mutate"
        answer = self._send(request, ctx, changes=changes)
        body = parse_body(answer, changes=changes)
        error = errors_to_exception(body, answer, changes=changes)
        if error is None:
            return {"data": body["data"]}
        if params.get("partial") == "keep" and body["data"] is not None:
            return {"data": body["data"], "errors": body["errors"]}
        raise error

    def _describe(self, params: Json, ctx: Context) -> dict[str, Any]:
        try:
            if "type" not in params:
                return describe_operations(self._fetch({"query": OPERATIONS}, ctx))
            type_view = describe_type(self._fetch({"query": TYPE, "variables": {"name": params["type"]}}, ctx))
        except Rejected as refusal:
            message = f"The service does not describe its schema; introspection may be disabled. {refusal.message}"
            raise Rejected(message, details=refusal.details) from refusal
        if type_view is None:
            raise ConfigError(f"The service has no type {params['type']!r}.")
        return {"type": type_view}

    # -- requests

    def _fetch(self, request: Json, ctx: Context) -> Mapping[str, Any]:
        """The data of a query that the connector itself needs."""
        answer = self._send(request, ctx, changes=False)
        body = parse_body(answer, changes=False)
        error = errors_to_exception(body, answer, changes=False)
        if error is not None:
            raise error
        data: Mapping[str, Any] = body["data"]
        return data

    def _send(self, payload: Json, ctx: Context, *, changes: bool) -> HttpAnswer:
        headers = {"accept": ("Accept", _ACCEPTED), "content-type": ("Content-Type", "application/json")}
        for name, value in self.settings.get("headers", {}).items():
            headers[name.lower()] = (name, value)
        if changes and self._idempotency:
            headers[self._idempotency["header"].lower()] = (self._idempotency["header"], ctx.idempotency_key)
        content = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
        timeout = self.settings.get("timeout_s", 60)
        request = HttpRequest("POST", self.settings["url"], list(headers.values()), (), content, timeout, follow_redirects=False)
        return authorized(ctx, self.auth_of(self.settings)).send(request)
