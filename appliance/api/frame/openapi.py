"""Generates the OpenAPI 3.1 document from the declared routes and the recorded examples."""

from typing import Any

from appliance import __version__

from .error_responses import error_responses, error_schema, problem_schema
from .examples import NO_EXAMPLE, RecordedExample, load_examples
from .parameters import header_parameters, path_parameters, query_parameters, share_parameters
from .route_groups import tags
from .route_modules import load_appliance_routes, load_routes
from .routing import PREFIX, Json, Route
from .schemas import Schemas, is_model, reference_to

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
_SUCCESS = {"const": True, "description": "Always true: the call did what it should."}
_META = {
    "type": "object",
    "description": "About the answer itself rather than its content.",
    "required": ["request_id"],
    "properties": {
        "request_id": {"type": "string", "description": "Identifies the request in the appliance's log, as `X-Request-Id`."},
        "next_cursor": {"type": "string", "description": "Value of `cursor` for the next page; absent on the last one."},
        "total": {"type": "integer", "description": "The number of all matches on all pages; only with `count=exact`."},
    },
}
_INFO = {
    "title": "Governed Operations Service",
    "version": __version__,
    "description": "Every call needs an API key of this tenant in `X-API-Key`; those of the group `appliance` need one of the "
    "appliance itself, on its base host. Error codes are stable; an error's message says what to do next.",
    "contact": {"name": "The operator of this appliance"},
    "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
}


def document(base_url: str) -> dict[str, Any]:
    """The whole document for the server at `base_url`."""
    schemas = Schemas({"Error": error_schema(), "Problem": problem_schema(), "Success": _SUCCESS, "Meta": _META})
    responses: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    examples = load_examples()
    for route in [*load_routes(), *load_appliance_routes()]:
        example = examples.get(route.name, NO_EXAMPLE)
        operation = _operation(route, schemas, example)
        operation["responses"] |= error_responses(route, responses, example)
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = operation
    parameters = share_parameters([operation for methods in paths.values() for operation in methods.values()])
    return {
        "openapi": "3.1.0",
        "info": _INFO,
        "servers": [{"url": base_url}],
        "security": [{"apiKey": []}],
        "tags": tags(),
        "paths": paths,
        "components": {
            "schemas": schemas.components(),
            "securitySchemes": {"apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"}},
            "parameters": parameters,
            "responses": responses,
        },
    }


def _operation(route: Route, schemas: Schemas, example: RecordedExample) -> dict[str, Any]:
    description = route.description
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.family],
        "summary": route.summary,
        "parameters": _parameters(route, schemas, example),
        "responses": _responses(route, schemas, example),
    }
    if route.scope:
        operation["x-scope"] = route.scope
        description = f"{description}\n\nNeeds the scope `{route.scope}`.".strip()
    operation["description"] = description
    if route.body is not None:
        content = _body_content(route, schemas)
        if example.body is not None and example.media in content:
            content[example.media]["example"] = example.body
        operation["requestBody"] = {"required": route.needs_body, "content": content}
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


def _body_content(route: Route, schemas: Schemas) -> dict[str, dict[str, Any]]:
    if not isinstance(route.body, Json):
        return {"application/json": {"schema": schemas.reference(route.body, "validation")}}
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
    # Explicit, because generators of clients otherwise take the object for one without members.
    anything = {"type": "object", "additionalProperties": True, **described}
    media = ("application/json", "application/yaml") if kind == "document" else ("application/json",)
    return {each: {"schema": {**anything}} for each in media}


def _parameters(route: Route, schemas: Schemas, example: RecordedExample) -> list[dict[str, Any]]:
    query: list[dict[str, Any]] = []
    if route.query is not None:
        query = query_parameters(schemas.schema(route.query, "validation"), example.query)
    return [*path_parameters(route, example.path), *query, *header_parameters(route)]


def _responses(route: Route, schemas: Schemas, example: RecordedExample) -> dict[str, Any]:
    successes = {route.status: route.returns, **route.also}
    responses = {str(status): _success(route, returns, schemas) for status, returns in successes.items()}
    if example.answer is not None:
        for content in responses[str(example.status)]["content"].values():
            content["example"] = example.answer
    return responses


def _success(route: Route, returns: Any, schemas: Schemas) -> dict[str, Any]:
    if route.media != "application/json":
        return {"description": route.summary, "content": {route.media: {"schema": _MEDIA_SCHEMAS.get(route.media, _BYTES)}}}
    name = _envelope_name(route, returns)
    schemas.add_once(name, lambda: _envelope(route, returns, schemas))
    return {"description": route.summary, "content": {"application/json": {"schema": reference_to(name)}}}


def _envelope_name(route: Route, returns: Any) -> str:
    """The name of the answer's schema, the same for all operations that answer with the same model."""
    if returns is None:
        return "NullResponse"
    if not is_model(returns):
        return route.name.title().replace("_", "") + "Response"
    return f"{returns.__name__.removesuffix('View')}{'List' if route.listed else ''}Response"


def _envelope(route: Route, returns: Any, schemas: Schemas) -> dict[str, Any]:
    data = schemas.reference(returns, "serialization") if returns is not None else {"type": "null"}
    if route.listed:
        data = {"type": "array", "items": data}
    return {
        "type": "object",
        "required": ["success", "data", "meta"],
        "properties": {
            "success": reference_to("Success"),
            "data": {**data, "description": _describe_data(route, returns)},
            "meta": reference_to("Meta"),
        },
    }


def _describe_data(route: Route, returns: Any) -> str:
    """What the result of a call is, beyond the schema of its members."""
    if returns is None:
        return "Always null, because there is nothing to return."
    if route.listed:
        return "The entries of this page, in the order of the list; empty if nothing matches."
    return "The resource as it is after the call, or the result of the call."
