"""JSON Schema as TypeScript types."""

from typing import Any

import pytest

from appliance.processes.definitions.schema_types import MAX_LENGTH, OPEN, RECEIVED, SENT, comment, literal, to_typescript
from appliance.sandbox import CodeStep, Pool, TypeCheck


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, "unknown"),
        ({}, "unknown"),
        (False, "never"),
        ({"type": "string", "pattern": "^a", "minLength": 2}, "string"),
        ({"type": "integer"}, "number"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"type": "string", "nullable": True}, "string | null"),
        ({"enum": ["a", 1, None, True]}, '"a" | 1 | null | true'),
        ({"const": {"a": [1, "x"]}}, '{ a: [1, "x"]; }'),
        ({"type": "array"}, "unknown[]"),
        ({"type": "array", "items": {"type": ["string", "number"]}}, "(string | number)[]"),
        ({"prefixItems": [{"type": "string"}, {"type": "number"}], "items": False, "minItems": 1}, "[string, number?]"),
        ({"items": {"type": "null"}}, "null[]"),
        ({"type": "object"}, "{ [name: string]: unknown }"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "{ [name: string]: number }"),
        ({"type": "object", "additionalProperties": False}, "{ [name: string]: never }"),
        (
            {"properties": {"a": {"type": "string"}, "b-c": {}}, "required": ["a", "d"], "additionalProperties": False},
            '{ a: string; "b-c"?: unknown; d: unknown; }',
        ),
        ({"properties": {"a": {"type": "string"}}}, "{ a?: string; [name: string]: unknown; }"),
        ({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, "string | string[]"),
        ({"anyOf": [{"type": "string"}, {"minLength": 3}]}, "unknown"),
        ({"type": "string", "anyOf": [{"format": "date"}, {"format": "email"}]}, "string"),
        (
            {
                "allOf": [
                    {"properties": {"a": {"type": "null"}}, "additionalProperties": False},
                    {"oneOf": [{"type": "string"}, {"type": "number"}]},
                ]
            },
            "{ a?: null; } & (string | number)",
        ),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "boolean"}}}, "boolean"),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "null"}}}, "null"),
        ({"$ref": "https://example.com/x"}, "unknown"),
        (
            {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}},
            "unknown[]",
        ),
        ({"properties": {"at": {"type": "string", "format": "date-time", "title": "When */ x"}}, "additionalProperties": False},
         "{ /** When * / x. (date-time) */ at?: string; }"),
        ({"type": "unheard-of"}, "unknown"),
        ({"type": 5, "enum": "x", "anyOf": 1}, "unknown"),
    ],
)  # fmt: skip
def test_a_schema_becomes_the_type_of_its_values(schema: Any, expected: str) -> None:
    assert to_typescript(schema, SENT) == expected


def test_directions_differ_in_what_is_left_open() -> None:
    schema: dict[str, Any] = {"properties": {"a": {}}}
    assert to_typescript(schema, RECEIVED) == "{ a?: any; }"
    assert to_typescript(schema, OPEN) == "{ a?: any; [name: string]: any; }"
    assert to_typescript(schema | {"additionalProperties": True}, RECEIVED) == "{ a?: any; [name: string]: any; }"


@pytest.mark.parametrize("more", [{}, {"properties": {}}, {"additionalProperties": True}])
def test_an_object_without_a_schema_can_be_passed_to_any_parameter(more: dict[str, Any]) -> None:
    schema = {"type": "object", **more}
    assert to_typescript(schema, RECEIVED) == "any"
    assert to_typescript({"type": "array", "items": schema}, OPEN) == "any[]"
    assert to_typescript(schema, SENT) == "{ [name: string]: unknown }"


def test_a_part_of_a_schema_refers_into_the_whole() -> None:
    root: dict[str, Any] = {"$defs": {"x": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/x"}}}
    assert to_typescript(root["properties"]["a"], RECEIVED, root=root) == "string"


def test_schemas_that_grow_without_end_end() -> None:
    each = {"properties": {f"p{number}": {"$ref": f"#/$defs/{number}"} for number in range(12)}}
    defs = {str(number): {"allOf": [each, each]} for number in range(12)}
    assert len(to_typescript({"$ref": "#/$defs/0", "$defs": defs})) <= MAX_LENGTH
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    assert to_typescript(deep).startswith("unknown[]")


def test_words_of_a_schema_cannot_leave_their_comment_or_quotes() -> None:
    assert comment("a */ evil()") == "/** a * / evil() */ "
    assert comment(None, "") == ""
    assert literal('"; evil()') == '"\\"; evil()"'


def test_every_generated_type_is_typescript(sandbox: Pool) -> None:
    """The compiler reads each of them, and takes and refuses the values that the schema does."""
    schema = {
        "type": "object", "required": ["kind", "rows"], "additionalProperties": False,
        "properties": {
            "kind": {"enum": ["a", "b"]}, "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
            "odd-name": {"type": ["integer", "null"]}, "delete": {"const": True},
        },
        "$defs": {"row": {"type": "object", "properties": {"sku": {"type": "string", "description": "*/ x"}}}},
    }  # fmt: skip
    declared = f"type Shape = {to_typescript(schema)};\ninterface Steps {{ a: {{ input: any; api: any }} }}"
    source = """export default () => [
  { kind: "a", rows: [{ sku: "1", more: 2 }], "odd-name": null, delete: true } satisfies Shape,
  { kind: "c", rows: [] } satisfies Shape,
  { kind: "a", rows: [{ sku: 1 }] } satisfies Shape,
  { kind: "a" } satisfies Shape,
  { kind: "a", rows: [], unknown: 1 } satisfies Shape,
];"""
    findings = sandbox.check_types(TypeCheck({"a.ts": source}, declared, [CodeStep("a", "a.ts")]))
    assert isinstance(findings, list)
    assert [each.line for each in findings] == [3, 4, 5, 6]
