"""Hostile documents: each is refused with a sentence, or cut to size, in a worker process."""

import json
from typing import Any

import pytest
from gos_connector_openapi.document import UnusableDocument, parse
from gos_connector_openapi.importing import import_actions
from gos_connector_openapi.operations import Reader
from gos_connector_openapi.shaping import Shaper

from appliance.connectors.contract import Action, ConfigError, TransientError
from appliance.connectors.testing import open_context, schema_problems

HEAD = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}}
GET = {"get": {"operationId": "get", "responses": {"200": {"description": "", "content": {"application/json": {"schema": {}}}}}}}


def document_bytes(schema: Any = None, **more: Any) -> bytes:
    """A document with one operation whose body has the schema."""
    post = {"operationId": "post", "requestBody": {"content": {"application/json": {"schema": schema or {}}}}, "responses": {}}
    return json.dumps({**HEAD, "paths": {"/t": {"post": post}}, **more}).encode()


def read(content: bytes, seconds: float = 60) -> list[Action]:
    with open_context(seconds=seconds) as ctx:
        return import_actions(content, {}, ctx)


NESTED = b'{"openapi": "3.1.0", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
LAUGHS = "openapi: 3.1.0\na: &a [x, x]\n" + "".join(
    f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
REFUSED = {
    "nested JSON": (NESTED, "nested too deeply"),
    "nested YAML": (b"openapi: 3.1.0\nx: " + b"[" * 5000 + b"]" * 5000, "nested too deeply"),
    "YAML bomb": (LAUGHS.encode(), "YAML alias in line 3"),
    "YAML that makes objects": (b"openapi: 3.1.0\nx: !!python/object/apply:os.system [id]", "not YAML"),
    "a reference to a file": (
        document_bytes({"$ref": "file:///etc/passwd"}),
        "refers to 'file:///etc/passwd', outside the document",
    ),
    "a reference to another document": (document_bytes({"$ref": "other.json#/a"}), "outside the document"),
    "a reference to an address": (document_bytes({"$ref": "http://169.254.169.254/latest"}), "outside the document"),
    "a reference to nothing": (document_bytes({"$ref": "#/components/schemas/None"}), "does not contain"),
    "a circle of operations": (
        document_bytes(components={"parameters": {"a": {"$ref": "#/components/parameters/a"}}}).replace(
            b'"requestBody"', b'"parameters": [{"$ref": "#/components/parameters/a"}], "requestBody"'
        ),
        "refers to itself",
    ),
    "Swagger 2.0 without operations": (b'{"swagger": "2.0", "paths": {}}', "describes no operation"),
    "Swagger 1.2": (b'{"swaggerVersion": "1.2"}', "swaggerVersion '1.2'; the only Swagger version supported is 2.0"),
    "Swagger 3": (b'{"swagger": "3.0"}', "swagger '3.0'; the only Swagger version"),
    "another version": (b'{"openapi": "4.0.0"}', "supports 3.0 and 3.1"),
    "no operation": (json.dumps({**HEAD, "paths": {}}).encode(), "describes no operation"),
    "no object": (b"[1]", "not an object"),
    "no JSON": (b'{"openapi": ', "not JSON"),
    "no UTF-8": (b"openapi: \xff", "not UTF-8"),
    "too many bytes": (b"{" + b" " * (32 << 20) + b"}", "more than 32 MB"),
    "too much YAML": (b"x: " + b"y" * (9 << 20), "give it as JSON"),
}


@pytest.mark.parametrize(("content", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_hostile_document_is_refused_with_a_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(UnusableDocument, match=sentence):
        list(Reader(parse(content), {}).read())


def test_the_worker_reports_a_refusal() -> None:
    with pytest.raises(ConfigError, match="YAML alias in line 3"):
        read(LAUGHS.encode())


def test_too_much_memory_ends_the_worker_only() -> None:
    many = b'{"openapi": "3.1.0", "x": [' + b",".join([b"{}"] * 10_000_000) + b"]}"
    with pytest.raises(ConfigError, match="takes more"):
        read(many)


def test_reading_stops_at_the_deadline() -> None:
    with pytest.raises(TransientError, match="not read in time"):
        read(b"- a\n" * 1_500_000, seconds=0.01)  # many seconds of YAML


def shaped(schema: Any, schemas: Any = None, *, for_input: bool = True) -> Any:
    document = parse(json.dumps({**HEAD, "components": {"schemas": schemas or {}}}).encode())
    schema_out = Shaper(document, for_input=for_input, max_parts=300).shape(schema)
    schema_problems(schema_out, None)  # it is a schema
    return schema_out


def test_a_recursive_schema_is_cut_at_the_recursion() -> None:
    tree = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/components/schemas/tree"}}}}
    result = shaped({"$ref": "#/components/schemas/tree"}, {"tree": tree})
    assert result == {"type": "object", "properties": {"children": {"type": "array", "items": {}}}}


def test_a_bomb_of_references_is_cut_to_size() -> None:
    schemas = {f"s{n}": {"allOf": [{"$ref": f"#/components/schemas/s{n + 1}"}] * 20} for n in range(12)} | {
        "s12": {"type": "string"}
    }
    assert len(json.dumps(shaped({"$ref": "#/components/schemas/s0"}, schemas))) < 20_000


def test_many_members_and_many_values_are_cut_to_size() -> None:
    members = {f"m{n}": {"type": "string"} for n in range(50_000)}
    assert shaped({"type": "object", "properties": members, "required": list(members)}) == {"type": "object"}
    assert shaped({"type": "string", "enum": [str(n) for n in range(50_000)]}) == {"type": "string"}


def test_invalid_schema_parts_are_left_out() -> None:
    odd = {
        "type": ["string", {"a": 1}], "required": True, "properties": [1], "enum": [], "minimum": "1", "maxLength": -1, "items": 3,
        "allOf": {}, "multipleOf": 0, "pattern": "(?=x)(a+)+$", "description": 7, "additionalProperties": "no",
    }  # fmt: skip
    assert shaped(odd) == {"items": {}}
    assert shaped({"$ref": 7, "type": "file"}) == {}
    assert shaped({"type": "integer", "minimum": 1e999}) == {"type": "integer"}


def test_null_and_hidden_members_are_understood() -> None:
    assert shaped({"type": "string", "nullable": True, "enum": ["a"]}) == {"type": ["string", "null"], "enum": ["a", None]}
    thing = {"properties": {"id": {"type": "integer", "readOnly": True}, "key": {"writeOnly": True}}, "required": ["id", "key"]}
    assert shaped(thing) == {"properties": {"key": {}}, "required": ["key"]}
    assert shaped(thing, for_input=False) == {"properties": {"id": {"type": "integer"}}, "required": ["id"]}


def test_undocumented_values_and_members_are_accepted() -> None:
    closed = {"type": "object", "additionalProperties": False, "properties": {"state": {"type": "string", "enum": ["a"]}}}
    assert shaped(closed, for_input=False) == {"type": "object", "properties": {"state": {"type": "string"}}}
    assert shaped(closed) == closed


def test_valid_parts_of_invalid_operations_are_read() -> None:
    odd: Any = {
        "parameters": [{"in": "query"}, {"name": "a", "in": "space"}, {"name": "b", "in": "query", "style": "no"}, 7],
        "responses": {"200": {"content": {"application/json": 7}, "headers": []}}, "security": [7], "servers": 7,
        "operationId": "???",
    }  # fmt: skip
    content = json.dumps({**HEAD, "paths": {"/t": {"get": odd, "post": 7, "trace": odd}, "no": {"get": odd}, "/u": 7}}).encode()
    (action,) = Reader(parse(content), {}).read()
    assert (action["name"], list(action["input"]["properties"]), action["plan"]["security"]) == ("op_", ["b"], [])
