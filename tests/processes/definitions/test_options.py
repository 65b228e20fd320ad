"""The options of steps are read with every mistake told at its place."""

from typing import Any

import pytest

from appliance.core.json_schema import compile_schema
from appliance.processes.definitions.definition import DefinitionProblems, parse_definition
from appliance.processes.definitions.nodes import FAILURE_CLASSES
from appliance.processes.definitions.schema import process_schema
from tests.processes.test_definition import INNER, RULE

EACH: dict[str, Any] = {"items": [], "steps": INNER}
TWICE = [{"max_attempts": 2, "classes": ["timeout"]}, {"max_attempts": 3, "classes": ["system", "timeout"]}]


def problems(step: dict[str, Any], **more: Any) -> dict[str, str]:
    try:
        parse_definition({"id": "p", "steps": [step], **more}, {})
    except DefinitionProblems as error:
        return {problem.pointer: problem.message for problem in error.problems}
    return {}


@pytest.mark.parametrize(
    ("step", "pointer"),
    [
        ({**RULE, "retry": TWICE}, "/steps/0/retry/1/classes"),
        ({**RULE, "retry": [{"max_attempts": 2}]}, "/steps/0/retry/0/classes"),
        ({**RULE, "retry": [5]}, "/steps/0/retry/0"),
        ({**RULE, "continue_on_error": "yes"}, "/steps/0/continue_on_error"),
        ({**RULE, "continue_on_error": ["bad luck"]}, "/steps/0/continue_on_error/0"),
        ({**RULE, "undo": []}, "/steps/0/undo"),
        ({**RULE, "undo": {"rule": {}}}, "/steps/0/undo/rule"),
        ({**RULE, "undo": {"stop": {}}}, "/steps/0/undo/stop"),
        ({**RULE, "undo": {**RULE, "id": "u", "undo": {**RULE, "id": "v"}}}, "/steps/0/undo/undo"),
        ({**RULE, "undo": [RULE]}, "/steps/0/undo/0/id"),
        ({"id": "a", "undo": {**RULE, "id": "u"}, "parallel": {"x": [{**RULE, "id": "undo"}]}}, "/steps/0/undo"),
        ({**RULE, "cache": {"ttl": "1h"}}, "/steps/0/cache"),
        ({**RULE, "cache": {"key": 1}}, "/steps/0/cache/ttl"),
        ({**RULE, "cache": {"ttl": "soon", "key": 1}}, "/steps/0/cache/ttl"),
        ({"id": "a", "wait": {"for": "1s"}, "cache": {"ttl": "1h"}}, "/steps/0/cache"),
        ({"id": "a", "datapool": {"collection": "c", "delete": {"id": "x"}}, "cache": {"ttl": "1h"}}, "/steps/0/cache"),
        ({"id": "a", "for_each": {**EACH, "on_error": "shrug"}}, "/steps/0/for_each/on_error"),
    ],
)  # fmt: skip
def test_an_invalid_option_is_reported_with_its_pointer(step: Any, pointer: str) -> None:
    actual = problems(step)
    assert pointer in actual
    assert actual[pointer]


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({}, "/on_failure"),
        ({"process": "Not A Slug"}, "/on_failure/process"),
        ({"steps": []}, "/on_failure/steps"),
        ({"steps": [{"id": "s", "stop": {}}]}, "/on_failure/steps/0/stop"),
        ({"process": "x", "retry": 1}, "/on_failure/retry"),
    ],
)  # fmt: skip
def test_an_invalid_on_failure_is_reported_with_its_pointer(value: Any, pointer: str) -> None:
    assert pointer in problems(RULE, on_failure=value)


def test_on_failure_is_reserved_as_a_step_id_when_it_has_steps() -> None:
    assert problems({**RULE, "id": "on_failure"}, on_failure={"steps": [{**RULE, "id": "s"}]}) == {
        "/steps/0": "'on_failure' is reserved because on_failure has steps; rename this step"
    }


def test_options_are_read_and_the_schema_for_editors_has_them() -> None:
    step = {
        **RULE, "continue_on_error": True,
        "retry": [{"max_attempts": 2, "classes": ["timeout"]}, {"max_attempts": 9, "classes": ["system"], "max": "5s"}],
    }  # fmt: skip
    each = {"id": "e", "continue_on_error": ["policy"], "for_each": {**EACH, "on_error": "collect"}}
    document = {"id": "p", "steps": [{**step, "id": "r"}, each]}
    first, second = parse_definition(document, {}).steps
    assert [policy.max_attempts for policy in first.retry] == [2, 9]
    assert first.continue_on_error == FAILURE_CLASSES
    assert (second.continue_on_error, second.settings["on_error"]) == (("policy",), "collect")
    assert not compile_schema(process_schema()).problems(document)
