"""JSON Schema becomes form fields, and submitted forms become JSON."""

from typing import Any

import pytest

from appliance.console.frame.forms import InputForm, read_form
from appliance.core.errors import Detail

ORDER: dict[str, Any] = {
    "type": "object",
    "required": ["customer", "address", "express"],
    "properties": {
        "customer": {"type": "string", "title": "Customer"},
        "amount": {"type": "number"},
        "pieces": {"type": "integer"},
        "express": {"type": "boolean"},
        "paid": {"type": "boolean"},
        "currency": {"enum": ["EUR", "USD", 7]},
        "address": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}, "a/b": {"type": "string"}}},
        "extra": {"type": "object", "properties": {"remark": {"type": "string"}}},
        "tags": {"type": "array", "items": {"type": "string"}},
        "orders": {"type": "string", "contentMediaType": "text/csv"},
    },
}


def kinds(form: InputForm) -> dict[str, str]:
    return {field.pointer: field.kind for field in form.all_fields() if field.pointer}


def read(schema: Any, **sent: str) -> tuple[Any, list[Detail]]:
    form = InputForm(schema)
    value = read_form(form, {f"in/{name.replace('__', '/')}": [text] for name, text in sent.items()})
    return value, form.problems


def test_every_type_gets_its_field() -> None:
    assert kinds(InputForm(ORDER)) == {
        "/customer": "text", "/amount": "number", "/pieces": "integer", "/express": "checkbox", "/paid": "select",
        "/currency": "select", "/address": "group", "/address/city": "text", "/address/a~1b": "text", "/extra": "group",
        "/extra/remark": "text", "/tags": "json", "/orders": "textarea",
    }  # fmt: skip


def test_short_texts_get_one_line_and_long_ones_several() -> None:
    host, letter = {"type": "string", "maxLength": 253}, {"type": "string", "maxLength": 4_000}
    fields = kinds(InputForm({"type": "object", "properties": {"host": host, "letter": letter}}))
    assert fields == {"/host": "text", "/letter": "textarea"}


def test_a_value_of_several_lines_keeps_them() -> None:
    form = InputForm({"type": "object", "properties": {"host": {"type": "string", "maxLength": 253}}})
    form.fill({"host": "one\ntwo"})
    assert kinds(form) == {"/host": "textarea"}
    assert read_form(form, {"in/host": ["one\r\ntwo"]}) == {"host": "one\ntwo"}


def test_form_values_are_converted_to_the_types_of_the_schema() -> None:
    value, problems = read(
        ORDER, customer="C-1", amount="12.50", pieces="3", express="true", paid="false", currency='"EUR"', address__city="Berlin",
        tags='["a", 1]', orders="number\r\n1\r\n",
    )  # fmt: skip
    assert problems == []
    assert value == {
        "customer": "C-1", "amount": 12.5, "pieces": 3, "express": True, "paid": False, "currency": "EUR",
        "address": {"city": "Berlin"}, "tags": ["a", 1], "orders": "number\n1\n",
    }  # fmt: skip


def test_empty_fields_are_omitted() -> None:
    value, problems = read(ORDER, customer="", amount=" ", extra__remark="", tags="", paid="", currency="")
    assert problems == []
    assert value == {"express": False, "address": {}}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("pieces", "3.5", "Enter a whole number."),
        ("pieces", "3e5", "Enter a whole number."),
        ("amount", "12,50", "Enter a number, with a point before the decimals."),
        ("amount", "1e999", "Enter a finite number."),
        ("tags", "[1,", "Invalid JSON: Expecting value at line 1, column 4."),
        ("tags", "NaN", "NaN is not valid JSON."),
        ("tags", "[" * 100_000, "This JSON is nested too deeply."),
    ],
)
def test_an_invalid_value_is_reported_at_its_field_and_stays(name: str, text: str, message: str) -> None:
    form = InputForm(ORDER)
    read_form(form, {f"in/{name}": [text]})
    assert form.problems == [Detail(f"/{name}", "invalid", message)]
    wrong = next(field for field in form.all_fields() if field.pointer == f"/{name}")
    assert (wrong.value, wrong.error) == (text, message)


def test_a_problem_is_shown_at_the_innermost_field_and_others_above() -> None:
    form = InputForm(ORDER)
    form.show_errors([Detail("/address/city", "x", "City."), Detail("/tags/0", "x", "Tag."), Detail("/unknown", "x", "Unknown.")])
    errors = {field.pointer: field.error for field in form.all_fields() if field.error}
    assert errors == {"/address/city": "City.", "/tags": "/0: Tag."}
    assert form.general == [Detail("/unknown", "x", "Unknown.")]


def test_a_value_survives_the_round_trip_through_the_form() -> None:
    address = {"city": "B", "a/b": "x"}
    value = {"customer": "C", "amount": 0.1, "express": True, "currency": 7, "address": address, "tags": [{"k": 1}]}
    form = InputForm(ORDER)
    form.fill(value)
    sent = {field.name: [field.value] for field in form.all_fields() if field.kind != "group" and field.value}
    assert read_form(InputForm(ORDER), sent) == value


@pytest.mark.parametrize("schema", [None, True, {}, {"type": "object"}, {"type": "object", "properties": {}}, {"oneOf": [{}]}, 5])
def test_an_input_without_properties_is_one_json_text(schema: Any) -> None:
    form = InputForm(schema)
    assert form.whole
    assert read_form(form, {"in": ['{"a": 1}']}) == {"a": 1}


def test_an_input_that_allows_no_properties_has_no_field() -> None:
    assert InputForm({"type": "object", "properties": {}, "additionalProperties": False}).fields == []


def test_deep_and_open_schemas_end_in_a_json_text() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(9):
        deep = {"type": "object", "properties": {"x": deep}}
    assert kinds(InputForm(deep))["/x/x/x/x"] == "json"
    for schema in ({"$ref": "#/$defs/y"}, {"type": ["string", "integer"]}, {"type": "string", "anyOf": [{}]}):
        assert kinds(InputForm({"properties": {"x": schema}})) == {"/x": "json"}
    assert kinds(InputForm({"properties": {"x": {"type": ["string", "null"]}}})) == {"/x": "text"}


def test_the_example_comes_from_the_schema_or_from_its_members() -> None:
    whole = InputForm({"properties": {"a": {}}, "examples": [{"a": 1}]})
    assert (whole.has_example, whole.example()) == (True, {"a": 1})
    parts = {"a": {"type": "string", "examples": ["x"]}, "b": {"type": "object", "properties": {"c": {"default": 2}}}}
    form = InputForm({"type": "object", "properties": parts})
    assert (form.has_example, form.example(), form.defaults()) == (True, {"a": "x", "b": {"c": 2}}, {"b": {"c": 2}})
    assert not InputForm({"properties": {"a": {}}}).has_example
