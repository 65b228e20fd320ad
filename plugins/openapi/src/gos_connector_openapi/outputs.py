"""The output of an operation: its schema, from the successful responses, and the conversion of an answer."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.connectors.contract import HttpAnswer, SystemFailure, parse_json
from gos_connector_openapi.bodies import is_json, is_text
from gos_connector_openapi.document import Document
from gos_connector_openapi.shaping import Schema, Shaper, nullable

_NULL: Schema = {"type": "null"}
_TEXT: Schema = {"type": "string"}
_HEADERS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}


@dataclass(frozen=True)
class Output:
    """The schema of an output, the media type to accept, and whether the document declares a `Link` header."""

    schema: Schema
    accept: str
    links: bool
    body: Schema


def output_of(document: Document, shaper: Shaper, operation: Mapping[str, Any], *, checking: str) -> Output:
    """The output that covers all successful responses of the operation.

    `checking` says how strictly answers are checked: `checked`; `typed`, where members may be null; `as_sent`, not at all.
    """
    responses = document.mapping(operation.get("responses"))
    good = [document.mapping(each) for status, each in responses.items() if str(status).startswith("2")]
    good = good or [document.mapping(responses.get("default"))]
    bodies: list[Schema] = []
    accept = ""
    for response in good:
        media, body = _content(document, shaper, response)
        accept = accept or media
        if body not in bodies:
            bodies.append(body)
    links = any("link" in (str(name).lower() for name in document.mapping(response.get("headers"))) for response in good)
    body = {} if {} in bodies or checking == "as_sent" else bodies[0] if len(bodies) == 1 else {"anyOf": bodies}
    if checking == "typed":
        body = nullable(body)
    properties = {"status": {"type": "integer"}, "headers": _HEADERS, "body": body, "more": {"type": "boolean"}}
    schema = {"type": "object", "required": ["status", "headers", "body"], "properties": properties}
    return Output(schema, accept or "*/*", links, bodies[0])


def _content(document: Document, shaper: Shaper, response: Mapping[str, Any]) -> tuple[str, Schema]:
    content = document.mapping(response.get("content"))
    media = next((each for each in content if is_json(str(each))), next(iter(content), None))
    if media is None:
        return "", {} if not response else _NULL
    if "*" in str(media):
        return str(media), {}
    if is_json(str(media)):
        return str(media), shaper.shape(document.mapping(content[media]).get("schema", True))
    return str(media), _TEXT


def read_output(answer: HttpAnswer) -> dict[str, Any]:
    """`{status, headers, body}`; SystemFailure for invalid JSON."""
    headers = {name: value for name, value in answer.headers.items() if name != "set-cookie"}
    return {"status": answer.status, "headers": headers, "body": _body(answer)}


def _body(answer: HttpAnswer) -> Any:
    media = answer.headers.get("content-type", "application/octet-stream")
    if not answer.content:
        return None
    if is_json(media):
        return _json(answer)
    return _decode_text(answer) if is_text(media) else base64.b64encode(answer.content).decode("ascii")


def _json(answer: HttpAnswer) -> Any:
    try:
        return parse_json(answer.content)
    except ValueError as error:
        raise SystemFailure(
            "The service declares its answer as JSON, but it is not.", outcome="unknown", details={"status": answer.status}
        ) from error


def _decode_text(answer: HttpAnswer) -> str:
    return answer.content.decode("utf-8", "replace")
