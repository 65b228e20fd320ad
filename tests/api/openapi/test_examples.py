"""Every operation of the OpenAPI document has a recorded request, answer and refusal, which its schemas allow."""

import json
import re
from typing import Any

import jsonschema_rs
import pytest

from appliance.api import load_appliance_routes, load_routes
from appliance.api.frame.docs import contract
from appliance.api.frame.error_responses import declared_codes
from appliance.api.frame.examples import EXAMPLES_FILE, load_examples
from appliance.api.frame.routing import PREFIX, Json, Route
from appliance.tenants.keys import is_key_text
from tests.api.openapi.normalizing import KEY
from tests.api.test_descriptions import referred

EVERY = [pytest.param(route, id=f"{route.method} {route.path}") for route in [*load_routes(), *load_appliance_routes()]]
BINARY = {"export_solution", "get_document_preview"}
"""Operations that answer with an archive or a picture, which an example cannot show."""
RECORD = "run `.venv/bin/python -m tests.api.openapi.recording {}` and commit appliance/api/examples.json"


def operation_of(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = contract()["paths"][PREFIX + route.path][route.method.lower()]
    return operation


def needed_schemas(part: Any, names: set[str]) -> set[str]:
    """Add the names of the components to which a schema leads, so that not all of them are compiled for each example."""
    for name in re.findall(r"#/components/schemas/(\w+)", json.dumps(part)):
        if name not in names:
            names.add(name)
            needed_schemas(contract()["components"]["schemas"][name], names)
    return names


def problems(content: dict[str, Any]) -> list[str]:
    """What an example has that the schema beside it does not allow."""
    schemas = {name: contract()["components"]["schemas"][name] for name in needed_schemas(content["schema"], set())}
    validator = jsonschema_rs.Draft202012Validator({**content["schema"], "components": {"schemas": schemas}})
    return [f"{list(error.instance_path)}: {error.message}" for error in validator.iter_errors(content["example"])]


def test_no_example_is_of_an_operation_that_is_gone() -> None:
    assert set(load_examples()) <= {route.name for route in [*load_routes(), *load_appliance_routes()]}


@pytest.mark.parametrize("route", EVERY)
def test_an_answer_is_shown_that_its_schema_allows(route: Route) -> None:
    example = load_examples()[route.name]
    [content] = operation_of(route)["responses"][str(example.status)]["content"].values()
    assert ("example" in content) != (route.name in BINARY), RECORD.format(route.name)
    if "example" in content:
        assert problems(content) == [], RECORD.format(route.name)


@pytest.mark.parametrize("route", EVERY)
def test_a_request_is_shown_that_its_schema_allows(route: Route) -> None:
    example = load_examples()[route.name]
    assert set(example.path) == set(route.parameters), RECORD.format(route.name)
    for parameter in map(referred, operation_of(route)["parameters"]):
        if parameter["in"] == "path" or "example" in parameter:
            assert problems({"schema": parameter["schema"], "example": parameter["example"]}) == [], RECORD.format(route.name)
    if route.needs_body and not (isinstance(route.body, Json) and route.body.kind == "archive"):
        assert problems(operation_of(route)["requestBody"]["content"][example.media]) == [], RECORD.format(route.name)


@pytest.mark.parametrize("route", EVERY)
def test_a_refusal_is_shown_that_the_operation_lists(route: Route) -> None:
    example = load_examples()[route.name]
    content = operation_of(route)["responses"][str(example.refusal_status)]["content"]["application/json"]
    assert content["example"]["error"]["code"] in declared_codes(route)[example.refusal_status], RECORD.format(route.name)
    assert problems(content) == [], RECORD.format(route.name)


def test_the_only_key_in_the_examples_is_one_that_nobody_has() -> None:
    text = EXAMPLES_FILE.read_text("utf-8")
    assert set(re.findall(r"gos_[a-z]+_[0-9A-Za-z]{20,}", text)) == {KEY}
    assert is_key_text(KEY), "it looks like a real one"
    assert "localhost" not in text, "the recording appliance has no place in the examples"
