"""Generates the OpenAPI 3.1 document from the declared routes."""

import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from appliance import __version__
from appliance.core.errors import error_classes, http_status

from .error_responses import error_responses, error_schema, takes_if_match
from .path_parameters import describe_parameter
from .route_groups import tags
from .routing import PREFIX, ROUTES, Json, Query, Route

_REF = "#/components/schemas/{model}"
_BYTES = {"type": "string", "format": "binary"}
_MEDIA_SCHEMAS: dict[str, dict[str, Any]] = {
    "text/event-stream": {
        "type": "object",
        "description": "One server-sent event; `data` is JSON.",
        "properties": {
            "id": {"type": "string", "description": "Position in the stream, to send as `Last-Event-ID`; may be absent."},
            "event": {"type": "string", "description": "What happened, in one word of the stream's own."},
            "data": {"type": "string", "description": "Details of what happened, as a JSON text."},
        },
    }
}
_ID_PATTERN = "^[A-Za-z0-9_.-]{1,200}$"
_PATTERNS = {"path": "^[^\\x00-\\x1f]{1,300}$"}  # slashes may come as they are, or as %2F


def document(base_url: str) -> dict[str, Any]:
    """The whole document for the server at `base_url`."""
    schemas: dict[str, Any] = {"Error": error_schema(), "Meta": _meta_schema()}
    responses: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for route in ROUTES:
        operation = _operation(route, schemas)
        operation["responses"] |= error_responses(route, responses)
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Governed Operations Service",
            "version": __version__,
            "description": "Every call needs an API key of this tenant in `X-API-Key`. Error codes are stable; an error's message "
            "says what to do next.",
        },
        "servers": [{"url": base_url}],
        "security": [{"apiKey": []}],
        "tags": tags(),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"}},
            "responses": responses,
        },
    }


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.path.split("/")[1]],
        "summary": route.summary,
        "parameters": _parameters(route, schemas),
        "responses": _responses(route, schemas),
    }
    if route.description:
        operation["description"] = route.description
    if route.scope:
        operation["x-scope"] = route.scope
        operation["description"] = f"{operation.get('description', '')}\n\nNeeds the scope `{route.scope}`.".strip()
    if route.body is not None:
        operation["requestBody"] = {"required": route.needs_body, "content": _body_content(route, schemas)}
    return operation


_FORM = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {
            "type": "string",
            "contentMediaType": "application/octet-stream",
            "description": "The file itself; its name in the form is the default for `name`, where the operation has one.",
        }
    },
    "additionalProperties": {"type": "string"},
}


def _body_content(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(route.body, Json):
        return {"application/json": {"schema": _schema(route.body, schemas, "validation")}}
    kind = route.body.kind
    described = {"description": route.body.description} if route.body.description else {}
    if kind == "archive":
        return {"application/zip": {"schema": {**described}}, "application/gzip": {"schema": {**described}}}
    if kind == "lines":
        return {"text/csv": {"schema": {**described}}, "application/x-ndjson": {"schema": {**described}}}
    if kind == "stream":
        return {"application/octet-stream": {"schema": {**described}}}
    if kind == "file":
        return {"application/octet-stream": {"schema": {**described}}, "multipart/form-data": {"schema": _FORM}}
    content = {"application/json": {"schema": {"type": "object", **described}}}
    if kind == "document":
        content["application/yaml"] = {"schema": {"type": "object", **described}}
    return content


def _parameters(route: Route, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": describe_parameter(route.path, name),
            "schema": {"type": "string", "pattern": _PATTERNS.get(name, _ID_PATTERN)},
        }
        for name in route.parameters
    ]
    if route.query is not None:
        parameters += _query_parameters(route.query, schemas)
    if route.method == "POST":
        parameters.append(_header("Idempotency-Key", "Makes repeating the request safe: the first answer is kept for 24 h.", 255))
    if route.method != "GET" and not route.acts.is_governed and route.acts.effect != "read":
        parameters.append(_header("Approval-Id", "The approval of exactly this call, if policies require one.", 80))
    if takes_if_match(route):
        parameters.append(_header("If-Match", "The ETag the resource must still have.", 100, pattern='^"[!#-~]{1,90}"$'))
    if route.takes_stream:
        text = "The position where these bytes begin: the number of bytes received so far."
        parameters.append(_header("Upload-Offset", text, 18, pattern="^[0-9]{1,18}$"))
    return parameters


def _header(name: str, description: str, longest: int, pattern: str = "^[!-~]{1,100}$") -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": longest, "pattern": pattern}
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def _query_parameters(query: type[Query], schemas: dict[str, Any]) -> list[dict[str, Any]]:
    schema = query.model_json_schema(ref_template=_REF, mode="validation", schema_generator=AnswerSchemas)
    _add_schemas(schemas, schema.pop("$defs", {}))
    required = set(schema.get("required", ()))
    parameters = []
    for name, value in schema.get("properties", {}).items():
        plain = _without_null(value)
        # API explorers show the description of the parameter, not of its schema.
        description = {"description": plain.pop("description")} if "description" in plain else {}
        parameters.append({"name": name, "in": "query", "required": name in required, **description, "schema": plain})
    return parameters


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without null: an optional query parameter is left out, never null."""
    plain = {key: value for key, value in schema.items() if key not in ("title", "anyOf", "default")}
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    if schema.get("default") is not None:
        plain["default"] = schema["default"]
    return {**plain, **choices[0]} if len(choices) == 1 else {**plain, **({"anyOf": choices} if choices else {})}


def _responses(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    successes = {route.status: route.returns, **route.also}
    return {str(status): _success(route, returns, schemas) for status, returns in successes.items()}


def _success(route: Route, returns: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    if route.media != "application/json":
        return {"description": route.summary, "content": {route.media: {"schema": _MEDIA_SCHEMAS.get(route.media, _BYTES)}}}
    data = _schema(returns, schemas, "serialization") if returns is not None else {"type": "null"}
    described = {"description": _describe_data(route, returns)}
    if route.listed:
        data = {"type": "array", "items": data}
    envelope = {
        "type": "object",
        "required": ["success", "data", "meta"],
        "properties": {
            "success": {"const": True, "description": "Always true: the call did what it should."},
            "data": data | described,
            "meta": {"$ref": "#/components/schemas/Meta", "description": "About the answer itself rather than its content."},
        },
    }
    return {"description": route.summary, "content": {"application/json": {"schema": envelope}}}


def _describe_data(route: Route, returns: Any) -> str:
    """What the result of a call is, beyond the schema of its members."""
    if returns is None:
        return "Always null, because there is nothing to return."
    if route.listed:
        return "The entries of this page, in the order of the list; empty if nothing matches."
    if route.method == "GET":
        return "What was asked for, as it is now."
    return "The resource after the call, or the result of the call."


class AnswerSchemas(GenerateJsonSchema):
    """Makes members with a default optional, because answers omit members that are null, and keeps their descriptions on top."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        if self.mode == "serialization" and "default" in field["schema"]:
            return False
        return super().field_is_required(field, total)

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        """As inherited, with the description of a described type on the member itself, where explorers show it."""
        result = dict(super().nullable_schema(schema))
        choices = [dict(choice) for choice in result.get("anyOf", ())]
        described = [choice for choice in choices if "description" in choice]
        if len(choices) == 2 and len(described) == 1:
            result |= {"anyOf": choices, "description": described[0].pop("description")}
        return result


def _add_schemas(schemas: dict[str, Any], definitions: Mapping[str, Any]) -> None:
    for name, schema in definitions.items():
        if schemas.setdefault(name, schema) != schema:
            raise ValueError(f"two models are called {name}; rename one, because both are in the OpenAPI document")


def _schema(kind: Any, schemas: dict[str, Any], mode: Any) -> dict[str, Any]:
    schema = TypeAdapter(kind).json_schema(ref_template=_REF, mode=mode, schema_generator=AnswerSchemas)
    _add_schemas(schemas, schema.pop("$defs", {}))
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        _add_schemas(schemas, {kind.__name__: schema})
        return {"$ref": _REF.format(model=kind.__name__)}
    return schema


def _meta_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["request_id"],
        "properties": {
            "request_id": {"type": "string", "description": "Identifies the request in the appliance's log, as `X-Request-Id`."},
            "next_cursor": {"type": "string", "description": "Value of `cursor` for the next page; absent on the last one."},
            "total": {"type": "integer", "description": "The number of all matches on all pages; only with `count=exact`."},
        },
    }


def statuses() -> list[int]:
    """Every HTTP status an error may have, for tests."""
    return sorted({http_status(c("x")) for c in error_classes()})
