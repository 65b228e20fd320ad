"""Parses bodies and query strings into typed values."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError

from appliance.core import yaml12
from appliance.core.errors import Detail, InvalidRequest, UnsupportedMediaType, ValidationFailed
from appliance.core.json_text import load_json
from appliance.core.sentences import Sentence

from .errors import from_pydantic
from .routing import Document, Json, Query, Route

YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml"})


def parse_body(route: Route, raw: bytes, content_type: str, max_depth: int) -> Any:
    """The body as the route declares it, or a coded error; a route without a body takes none, or an empty object."""
    media = content_type.partition(";")[0].strip().lower()
    if isinstance(route.body, Json) and route.body.kind == "document" and media in YAML_TYPES:
        return _parse_yaml(raw)
    if route.body is None:
        if raw.strip() in (b"", b"{}"):
            return None
        raise InvalidRequest("this call takes no body; send none, or {}")
    if not raw and not route.needs_body:
        raw, media = b"{}", "application/json"
    if media != "application/json" and not media.endswith("+json"):
        raise UnsupportedMediaType("send the body as application/json" + _or_yaml(route))
    data = load_json(raw, max_depth)
    if isinstance(route.body, Json):
        if not isinstance(data, dict):
            raise ValidationFailed("the body must be a JSON object", pointer="")
        return Document(data, {}) if route.body.kind == "document" else data
    return _validate(route.body, raw)


def _or_yaml(route: Route) -> str:
    return " or application/yaml" if isinstance(route.body, Json) and route.body.kind == "document" else ""


def _validate(model: type[BaseModel], raw: bytes) -> BaseModel:
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise from_pydantic(error) from error


def _parse_yaml(raw: bytes) -> Document:
    try:
        data, lines = yaml12.load_with_lines(raw.decode("utf8"))
    except UnicodeDecodeError as error:
        raise InvalidRequest("the body is not UTF-8 text") from error
    except yaml12.YamlInvalid as error:
        detail = Detail(
            "",
            "invalid_yaml",
            Sentence("line %(line)s, column %(column)s: %(message)s", line=error.line, column=error.column, message=error.message),
        )
        raise InvalidRequest(
            Sentence("the body is not valid YAML: %(message)s", message=detail.message), details=[detail]
        ) from error
    if not isinstance(data, dict):
        raise ValidationFailed("the document must be a mapping", pointer="")
    return Document(data, lines)


def parse_query(route: Route, args: Mapping[str, list[str]]) -> Any:
    """The query string as the route's model; a repeated parameter is refused."""
    if route.query is None:
        if args:
            raise InvalidRequest(Sentence("this call takes no query parameters; remove %(args)s", args=repr(min(args)[:60])))
        return None
    if not args:
        return _without_parameters(route.query)
    values: dict[str, Any] = {}
    for name, texts in args.items():
        if len(texts) > 1:
            raise InvalidRequest(Sentence(
                "the query parameter %(name)s is sent %(count)s times; send it once", name=repr(name[:60]), count=len(texts)
            ))
        if "\0" in texts[0]:
            raise InvalidRequest(
                Sentence("the query parameter %(name)s contains a NUL character, which is not allowed", name=repr(name[:60]))
            )
        values[name] = texts[0]
    return _validate_query(route.query, values)


@cache
def _without_parameters(model: type[Query]) -> Query:
    """The query of a request without parameters; the same for all, because queries are immutable."""
    return _validate_query(model, {})


def _validate_query(model: type[Query], values: Mapping[str, str]) -> Query:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise from_pydantic(error, query=True) from error
