"""Makes a tool's JSON Schema safe to store and validate with: bounded, references inlined, nothing external."""

import json
from collections.abc import Mapping
from typing import Any

from appliance.connectors.contract import SchemaInvalid, compile_schema

Schema = dict[str, Any]

MAX_BYTES = 128 << 10
MAX_PARTS = 3000
MAX_DEPTH = 40

_SCHEMA_KEYWORDS = frozenset(
    {"items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties", "not"}
) | {"if", "then", "else", "contentSchema"}
_SCHEMA_LIST_KEYWORDS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMA_MAP_KEYWORDS = frozenset({"properties", "patternProperties", "dependentSchemas"})
# Targets of references and annotations, which are not needed once references are inlined.
_DROPPED_KEYWORDS = frozenset({"$defs", "definitions", "$schema", "$comment"})
_REFUSED_KEYWORDS = frozenset(
    {"$id", "id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary"}
)
_DIALECTS = ("draft/2020-12/", "draft/2019-09/", "draft-07/", "draft-06/")


class UnusableSchema(ValueError):
    """The schema cannot be used; the text says why."""


def inline_references(schema: Any) -> Schema:
    """The schema with every reference replaced by its target; UnusableSchema when it is too large, too deep, recursive,
    refers outside itself, or is no valid schema."""
    if not isinstance(schema, dict):
        raise UnusableSchema("it is not an object")
    dialect = schema.get("$schema", f"json-schema.org/{_DIALECTS[0]}")
    if not isinstance(dialect, str) or not any(f"json-schema.org/{name}" in dialect for name in _DIALECTS):
        raise UnusableSchema("its `$schema` is not supported")
    try:
        size = len(json.dumps(schema))
    except RecursionError as error:
        raise UnusableSchema(f"it is nested deeper than {MAX_DEPTH} levels") from error
    if size > MAX_BYTES:
        raise UnusableSchema(f"it has more than {MAX_BYTES >> 10} KB")
    inlined: Schema = _Inliner(schema).inline(schema, 0, ())
    _compile(inlined)
    return inlined


class _Inliner:
    """Inlines the references of one schema; the number of parts is limited, so that nested references cannot explode."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._parts_left = MAX_PARTS

    def inline(self, node: Any, depth: int, enclosing: tuple[str, ...]) -> Any:
        self._parts_left -= 1
        if self._parts_left < 0:
            raise UnusableSchema(f"with references inlined, it has more than {MAX_PARTS} parts")
        if depth > MAX_DEPTH:
            raise UnusableSchema(f"it is nested deeper than {MAX_DEPTH} levels")
        if not isinstance(node, dict):
            return node
        if keywords := sorted(_REFUSED_KEYWORDS.intersection(node)):
            raise UnusableSchema(f"it uses {keywords[0]!r}, which is not allowed here")
        remaining = {name: value for name, value in node.items() if name not in _DROPPED_KEYWORDS}
        members = {name: self._member(name, value, depth, enclosing) for name, value in remaining.items()}
        reference = members.pop("$ref", None)
        if reference is None:
            return members
        target = self._target(reference, depth, enclosing)
        return target if not members else {**members, "allOf": [*members.get("allOf", []), target]}

    def _member(self, name: str, value: Any, depth: int, enclosing: tuple[str, ...]) -> Any:
        if name in _SCHEMA_KEYWORDS:
            return self.inline(value, depth + 1, enclosing)
        if name in _SCHEMA_LIST_KEYWORDS and isinstance(value, list):
            return [self.inline(each, depth + 1, enclosing) for each in value]
        if name in _SCHEMA_MAP_KEYWORDS and isinstance(value, dict):
            return {key: self.inline(each, depth + 1, enclosing) for key, each in value.items()}
        self._parts_left -= len(value) if isinstance(value, list | dict) else 0
        return value

    def _target(self, reference: Any, depth: int, enclosing: tuple[str, ...]) -> Any:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise UnusableSchema("it refers to something outside itself")
        if reference in enclosing or reference == "#":
            raise UnusableSchema("it contains itself")
        node: Any = self._root
        for part in reference[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, dict) or key not in node:
                raise UnusableSchema(f"it refers to {reference[:80]!r}, which it does not contain")
            node = node[key]
        return self.inline(node, depth + 1, (*enclosing, reference))


def _compile(schema: Schema) -> None:
    """Compile the schema as the appliance will: without fetching references, and with patterns that need no backtracking."""
    try:
        compile_schema(schema)
    except SchemaInvalid as error:
        raise UnusableSchema(f"it is not a usable JSON Schema (2020-12): {str(error)[:200]}") from error


def argument_header_paths(schema: Any) -> dict[str, list[str]]:
    """The HTTP headers in which the server wants arguments repeated (`x-mcp-header`), each with the argument's path.

    Only properties nested in properties are searched, as the protocol allows no others.
    """
    paths: dict[str, list[str]] = {}
    pending: list[tuple[list[str], Any]] = [([], schema)]
    while pending:
        path, node = pending.pop()
        if not isinstance(node, dict):
            continue
        token = node.get("x-mcp-header")
        if path and token is not None:
            if not isinstance(token, str) or not token.isascii() or not token.replace("-", "").isalnum() or len(token) > 64:
                raise UnusableSchema("it wants an argument repeated in a header with an invalid name")
            if node.get("type") not in ("string", "integer", "boolean") or token.lower() in map(str.lower, paths):
                raise UnusableSchema(f"it wants a header {token!r} that the protocol does not allow")
            paths[token] = path
        properties = node.get("properties")
        pending += [([*path, name], each) for name, each in properties.items()] if isinstance(properties, dict) else []
    return paths
