"""JSON Schema: every error at once, in linear time, nothing fetched."""

import time
from typing import Any

import pytest

from appliance.core.catalogues import read_catalogue
from appliance.core.errors import Detail
from appliance.core.json_schema import SchemaInvalid, compile_schema
from appliance.core.json_schema.checking import Findings, details_of
from appliance.core.sentences import Sentence
from tests.architecture.source_tree import ROOT


def test_every_problem_has_its_pointer() -> None:
    schema = compile_schema(
        {
            "type": "object",
            "required": ["name", "a/b"],
            "additionalProperties": False,
            "properties": {"name": {"type": "string"}, "a/b": {}, "list": {"items": {"type": "integer"}}},
        }
    )
    assert schema.problems({"list": [1, "x"], "zz": 1}, under="/settings") == [
        Detail("/settings/name", "required", "This member is required."),
        Detail("/settings/a~1b", "required", "This member is required."),
        Detail("/settings/list/1", "type", 'The value is not of type "integer".'),
        Detail("/settings/zz", "additionalProperties", "This member is not known here; known are a/b, list, name."),
    ]
    assert schema.problems({"name": "x", "a/b": None}) == []


def test_an_unknown_member_names_the_known_members() -> None:
    point = {"type": "object", "additionalProperties": False, "properties": {"x": {}, "y": {}}}
    many = {"additionalProperties": False, "properties": {f"p{number}": {} for number in range(31)}}
    schema = compile_schema({"properties": {"a/b": {"items": point}, "many": many}})
    assert schema.problems({"a/b": [{}, {"z": 1}], "many": {"z": 1}}, under="/in") == [
        Detail("/in/a~1b/1/z", "additionalProperties", "This member is not known here; known are x, y."),
        Detail("/in/many/z", "additionalProperties", "This member is not known here."),
    ]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, 1), ({"type": ["string", "null"]}, 1), ({"minLength": 2}, "a"), ({"minLength": 1}, ""),
        ({"maxLength": 1}, "ab"), ({"maxLength": 2}, "abc"), ({"minimum": 1}, 0), ({"maximum": 1.5}, 2),
        ({"exclusiveMinimum": 1}, 1), ({"exclusiveMaximum": 1}, 1), ({"multipleOf": 2}, 3),
        ({"pattern": "^a\n"}, "b"), ({"format": "email"}, "x"),
        ({"enum": ["a", "b"]}, "c"), ({"enum": [str(number) for number in range(400)]}, "c"), ({"const": 1}, 2),
        ({"minItems": 1}, []), ({"minItems": 2}, []), ({"maxItems": 1}, [1, 2]), ({"maxItems": 2}, [1, 2, 3]),
        ({"uniqueItems": True}, [1, 1]),
        ({"minProperties": 1}, {}), ({"minProperties": 2}, {}), ({"maxProperties": 1}, {"a": 1, "b": 2}),
        ({"maxProperties": 2}, {"a": 1, "b": 2, "c": 3}), ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, 1), ({"oneOf": [{"type": "integer"}, {"minimum": 0}]}, 1),
        ({"not": {"type": "integer"}}, 1), ({"contains": {"type": "string"}}, [1]), ({"properties": {"a": False}}, {"a": 1}),
        ({"unevaluatedProperties": False}, {"a": 1}), ({"required": ["a"]}, {}), ({"additionalProperties": False}, {"a": 1}),
    ],
)  # fmt: skip
def test_every_problem_is_a_sentence_in_german(schema: dict[str, Any], value: Any) -> None:
    german = read_catalogue(ROOT / "ui" / "translations" / "de.po").language
    for problem in compile_schema(schema).problems(value):
        translated = german.translate(problem.message)
        assert translated != problem.message
        values = problem.message.values.values() if isinstance(problem.message, Sentence) else ()
        assert [each for each in values if str(each) not in translated] == []


def test_what_the_worker_says_is_a_sentence_too() -> None:
    findings = Findings([Detail("/a", "minLength", "The value is shorter than 3 characters.")])
    (problem,) = details_of(findings, "/body")
    assert isinstance(problem.message, Sentence)
    assert (problem.pointer, problem.message.values) == ("/body/a", {"limit": "3"})


def test_a_problem_never_repeats_the_value() -> None:
    canary = "canary-4711"
    schema = compile_schema({"properties": {"s": {"type": "string", "maxLength": 3, "pattern": "^x", "enum": ["a"]}}})
    assert canary not in str(schema.problems({"s": canary}))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"type": "no such type"},
        {"pattern": "(?=lookahead)"},
        {"pattern": r"(a)\1"},
        {"pattern": "("},
        {"properties": 7},
        {"items": {"allOf": [{"pattern": f"(a{{0,1000}}){{0,{number}}}"} for number in range(50, 61)]}},
        {"items": {"allOf": [{"pattern": f"a{number}"} for number in range(201)]}},
        {"patternProperties": {f"a{number}": {} for number in range(201)}},
    ],
)
def test_a_schema_that_is_wrong_or_reaches_elsewhere_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        compile_schema(schema)
    assert "\n" not in str(caught.value)


def test_a_pattern_cannot_stall_the_appliance() -> None:
    schema = compile_schema({"type": "string", "pattern": "^(a+)+$"})
    began = time.monotonic()
    assert schema.problems("a" * 50_000 + "!")
    assert time.monotonic() - began < 5


def test_names_in_any_script_may_have_a_pattern() -> None:
    schema = compile_schema({"patternProperties": {r"^[\p{L} ]{1,100}$": {"pattern": r"^[\w\p{L}-]{1,200}$"}}})
    assert schema.problems({"Ærøskøbing": "Überweisung-7"}) == []
    assert len(schema.problems({"Ærøskøbing": "no!"})) == 1
