"""The parameters of each operation in the OpenAPI document: in the path, in the query and as headers."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .error_responses import takes_if_match
from .path_parameters import describe_parameter
from .routing import Route

_ID_PATTERN = "^[A-Za-z0-9_.-]{1,200}$"
_PATTERNS = {"path": "^[^\\x00-\\x1f]{1,300}$"}  # slashes may come as they are, or as %2F


def path_parameters(route: Route, values: Mapping[str, str]) -> list[dict[str, Any]]:
    """The parameters in the path, with their values in the recorded example."""
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": describe_parameter(route.path, name),
            "schema": {"type": "string", "pattern": _PATTERNS.get(name, _ID_PATTERN)},
            **({"example": values[name]} if name in values else {}),
        }
        for name in route.parameters
    ]


def query_parameters(schema: Mapping[str, Any], values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parameters that the schema of a query declares, with their values in the recorded example."""
    required = set(schema.get("required", ()))
    parameters = []
    for name, value in schema.get("properties", {}).items():
        plain = _without_null(value)
        # API explorers show the description of the parameter, not of its schema.
        more = {"description": plain.pop("description")} if "description" in plain else {}
        if name in required:
            more["required"] = True
        if name in values:
            more["example"] = values[name]
        parameters.append({"name": name, "in": "query", **more, "schema": plain})
    return parameters


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without null: an optional query parameter is left out, never null."""
    plain = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    if schema.get("default") is not None:
        plain["default"] = schema["default"]
    return {**plain, **choices[0]} if len(choices) == 1 else {**plain, **({"anyOf": choices} if choices else {})}


def header_parameters(route: Route) -> Iterator[dict[str, Any]]:
    """The headers that the operation reads beside the key."""
    if route.method == "POST":
        yield _header("Idempotency-Key", "Makes repeating the request safe: the first answer is kept for 24 h.", 255)
    if route.method != "GET" and not route.acts.is_governed and route.acts.effect != "read":
        yield _header("Approval-Id", "The approval of exactly this call, if policies require one.", 80)
    if takes_if_match(route):
        yield _header("If-Match", "The ETag the resource must still have.", 100, pattern='^"[!#-~]{1,90}"$')
    if route.takes_stream:
        text = "The position where these bytes begin: the number of bytes received so far."
        yield _header("Upload-Offset", text, 18, pattern="^[0-9]{1,18}$")


def _header(name: str, description: str, longest: int, pattern: str = "^[!-~]{1,100}$") -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": longest, "pattern": pattern}
    return {"name": name, "in": "header", "description": description, "schema": schema}


def share_parameters(operations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Replace parameters that several operations have in common by references; returns the components that they refer to.

    A component has the parameter's name, and the tag of the first operation in front where another already has that name.
    The example of a shared parameter is the first recorded one.
    """
    uses = Counter(_identity(parameter) for operation in operations for parameter in operation["parameters"])
    names: dict[str, str] = {}
    components: dict[str, Any] = {}
    for operation in operations:
        for position, parameter in enumerate(operation["parameters"]):
            identity = _identity(parameter)
            if uses[identity] == 1:
                continue
            if identity not in names:
                plain, prefixed = parameter["name"], f"{operation['tags'][0]}-{parameter['name']}"
                names[identity] = prefixed if plain in components else plain
            name = names[identity]
            if components.setdefault(name, parameter) is not parameter and _identity(components[name]) != identity:
                continue  # a third parameter of this name stays where it is
            if "example" in parameter:
                components[name].setdefault("example", parameter["example"])
            operation["parameters"][position] = {"$ref": f"#/components/parameters/{name}"}
    return components


def _identity(parameter: Mapping[str, Any]) -> str:
    return json.dumps({key: value for key, value in parameter.items() if key != "example"}, sort_keys=True)
