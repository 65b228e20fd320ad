"""Serializes parameters in the document's styles (OpenAPI 3.1 § 4.8.12): path, query, headers and cookies."""

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from appliance.connectors.contract import ConfigError
from gos_connector_openapi.document import Document

SENT_BY_US = frozenset({
    "accept", "content-type", "authorization", "host", "content-length", "transfer-encoding", "connection", "cookie", "te",
    "upgrade", "proxy-authorization", "expect", "trailer",
})  # fmt: skip
"""Headers that a caller cannot set: the specification says to ignore them, or the transport sets them."""

_DEFAULT_STYLES = {"path": "simple", "header": "simple", "query": "form", "cookie": "form"}
_SEPARATORS = {"spaceDelimited": " ", "pipeDelimited": "|", "tabDelimited": "\t"}
# Swagger 2.0 also allows these separators in the path and in headers, and tabs, for which OpenAPI 3 has no style.
_STYLES = {
    "path": ("simple", "label", "matrix", *_SEPARATORS), "header": ("simple", *_SEPARATORS), "cookie": ("form",),
    "query": ("form", "deepObject", *_SEPARATORS),
}  # fmt: skip

Pairs = list[tuple[str, str]]


def parameter_plan(document: Document, parameter: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """How the parameter is serialized, and the schema of its value, which is neither checked nor changed here."""
    place = str(parameter["in"])
    step: dict[str, Any] = {"name": str(parameter["name"]), "in": place}
    content = parameter.get("content")
    if isinstance(content, Mapping) and content:
        return {**step, "json": True}, document.mapping(next(iter(content.values()))).get("schema")
    style = parameter.get("style")
    step["style"] = style if style in _STYLES[place] else _DEFAULT_STYLES[place]
    explode = parameter.get("explode")
    step["explode"] = explode if isinstance(explode, bool) else step["style"] in ("form", "deepObject")
    return step, parameter.get("schema")


def text_of(value: Any) -> str:
    """A value as the text of an address or a form; lists and objects become JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "" if value is None else str(value)


def write_path(path: str, steps: list[Mapping[str, Any]], arguments: Mapping[str, Any]) -> str:
    """The path with its values filled in; ConfigError for a value that would leave its path segment."""
    for step in steps:
        if step["in"] == "path":
            text = _serialize_path_value(step, arguments[step["member"]])
            if text in ("", ".", ".."):
                raise ConfigError(f"The value of {step['member']} would change which address is called; use another value.")
            path = path.replace(f"{{{step['name']}}}", text)
    return path


def _serialize_path_value(step: Mapping[str, Any], value: Any) -> str:
    if step.get("json"):
        return _percent_encode(text_of(value) if isinstance(value, str) else json.dumps(value, separators=(",", ":")))
    style, explode, name = step["style"], step["explode"], _percent_encode(step["name"])
    if style == "matrix":
        return _matrix(name, value, explode)
    separator = _percent_encode(_SEPARATORS[style]) if style in _SEPARATORS else "." if style == "label" and explode else ","
    if isinstance(value, dict):
        equals = "=" if explode else ","
        pairs = [(_percent_encode(key), _percent_encode(text_of(inner))) for key, inner in value.items()]
        joined = separator.join(f"{key}{equals}{text}" for key, text in pairs)
    elif isinstance(value, list):
        joined = separator.join(_percent_encode(text_of(inner)) for inner in value)
    else:
        joined = _percent_encode(text_of(value))
    return f".{joined}" if style == "label" else joined


def _matrix(name: str, value: Any, explode: bool) -> str:
    if isinstance(value, dict) and explode:
        return "".join(f";{_percent_encode(key)}={_percent_encode(text_of(inner))}" for key, inner in value.items())
    if isinstance(value, list) and explode:
        return "".join(f";{name}={_percent_encode(text_of(inner))}" for inner in value)
    return f";{name}={','.join(_flat(value, _percent_encode))}"


def _percent_encode(text: str) -> str:
    return quote(text, safe="")


def _flat(value: Any, write: Callable[[str], str] = str) -> list[str]:
    """An object as name, value, name, value; an array as its values; anything else as itself."""
    if isinstance(value, dict):
        return [write(part) for name, inner in value.items() for part in (name, text_of(inner))]
    return [write(text_of(inner)) for inner in value] if isinstance(value, list) else [write(text_of(value))]


def write_pairs(step: Mapping[str, Any], value: Any) -> Pairs:
    """A query parameter or cookie as pairs of name and value, not yet percent-encoded."""
    name = step["name"]
    if step.get("json"):
        return [(name, json.dumps(value, ensure_ascii=False, separators=(",", ":")))]
    style, explode = step["style"], step["explode"]
    if style == "deepObject" and isinstance(value, dict):
        return [pair for key, inner in value.items() for pair in _deep(f"{name}[{key}]", inner)]
    if isinstance(value, dict):
        if explode and style == "form":
            return [(key, text_of(inner)) for key, inner in value.items()]
        return [(name, _SEPARATORS.get(style, ",").join(_flat(value)))]
    if isinstance(value, list):
        if explode or style == "deepObject":
            return [(name, text_of(inner)) for inner in value]
        return [(name, _SEPARATORS.get(style, ",").join(_flat(value)))]
    return [(name, text_of(value))]


def _deep(name: str, value: Any) -> Pairs:
    if isinstance(value, dict):
        return [pair for key, inner in value.items() for pair in _deep(f"{name}[{key}]", inner)]
    if isinstance(value, list):
        return [(name, text_of(inner)) for inner in value]
    return [(name, text_of(value))]


def write_header(step: Mapping[str, Any], value: Any) -> tuple[str, str]:
    """Name and value of a header; ConfigError for a value with control characters or line breaks."""
    if step.get("json"):
        text = json.dumps(value, separators=(",", ":"))
    elif isinstance(value, dict) and step["explode"]:
        text = ",".join(f"{name}={text_of(inner)}" for name, inner in value.items())
    else:
        text = _SEPARATORS.get(step["style"], ",").join(_flat(value))
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise ConfigError(f"The value of {step['member']} goes into a header and must be one line.")
    return step["name"], text
