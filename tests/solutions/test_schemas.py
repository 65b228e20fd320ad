"""The JSON schemas of a solution's files agree with the reader of the folder."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.connectors.registry import Registry, load_registry
from appliance.core import yaml12
from appliance.core.errors import DefinitionInvalid
from appliance.core.json_schema import Schema, compile_schema
from appliance.solutions.checks import Checks, find_problems
from appliance.solutions.schemas import schema_files
from appliance.solutions.starter import starter_folder
from tests.solutions.conftest import Gos, make_solution, read

REGISTRY: Registry = load_registry()
SCHEMAS = {name.removesuffix(".schema.json"): compile_schema(schema) for name, schema in schema_files(REGISTRY).items()}
COLLECTION = """
name: things
description: All that a collection may have.
fields:
  - {name: code, id: c1, type: text, required: true, unique: true, min_length: 1, max_length: 9, default: x, description: d}
  - {name: weight, type: decimal, scale: 2, min: 0, max: 9}
  - {name: colour, type: select, options: [red, blue]}
  - {name: whole, type: relation, collection: things}
  - {name: more, type: json}
  - {name: at, type: datetime, default: $now}
indexes: [{fields: [code, colour], unique: true}]
search: [code]
access: {list: {code: {_eq: x}}, view: deny}
"""
SOLUTION = "name: small\ndescription: d\nneeds: {connectors: [http], secrets: [erp_token]}\n"
INTEGRATION = """
name: ERP
connector: http
settings:
  base_url: https://erp.example.com
  auth: {kind: bearer, token: = secrets.erp_token}
  headers: {X-Tenant: "{{ secrets.erp_token }}"}
  query: {page: 1}
  timeout_s: 10
  retries: {attempts: 2, wait_s: 1}
  idempotency: {honoured: true}
"""
FILES = {"collection": "collections/things.yaml", "solution": "solution.yaml", "integration": "integrations/erp.yaml"}
TEXTS = {"collection": COLLECTION, "solution": SOLUTION, "integration": INTEGRATION}
STRANGE = [None, True, -1, "", "Plain Words", [], [7], {}, {"unheard_of": 1}]
# An empty value of the wrong type is taken for none; no editor need offer that.
AS_GOOD_AS_ABSENT = ("", "[]", "{}")
# One file does not know its own name, what its other parts are called, or how their values compare.
BEYOND_A_SCHEMA = (
    "its file says", "must name a field", "name of another", "must be one of", "is the id", "is not a secret's name", "less than",
    "_eq", "default", "must be a text field", "min or max", "between", "/access", "circle", "at least", "kind",
)  # fmt: skip


def refusals(kind: str, document: Any) -> list[str]:
    """The problems of reading and checking a folder with this document."""
    files = make_solution(**{FILES[kind]: yaml12.dump(document)})
    try:
        solution = read(files)
    except DefinitionInvalid as error:
        return [detail.message for detail in error.details]
    return [problem.message for problem in find_problems("", Checks(REGISTRY, None), solution, [])]


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place:
        yield place
    if isinstance(value, dict | list):
        for name in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[name], (*place, name))


def changes(document: Any, place: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    for strange in ("taken out", "given a member", *STRANGE):
        changed = copy.deepcopy(document)
        target = changed
        for part in place[:-1]:
            target = target[part]
        if strange == "taken out":
            target.pop(place[-1])
        elif strange == "given a member":
            if not isinstance(target[place[-1]], dict):
                continue
            target[place[-1]]["unheard_of"] = 1
        else:
            target[place[-1]] = strange
        yield str(strange), changed


PLACES = [(kind, place) for kind, text in TEXTS.items() for place in places(yaml12.load(text))]


@pytest.mark.parametrize("kind", FILES)
def test_a_file_with_every_member_is_valid(kind: str) -> None:
    document = yaml12.load(TEXTS[kind])
    assert (refusals(kind, document), SCHEMAS[kind].problems(document)) == ([], [])


@pytest.mark.parametrize(("kind", "place"), PLACES, ids=lambda part: part if isinstance(part, str) else "/".join(map(str, part)))
def test_folder_and_schema_agree(kind: str, place: tuple[Any, ...]) -> None:
    disagreements = []
    for change, document in changes(yaml12.load(TEXTS[kind]), place):
        refused, problems = refusals(kind, document), SCHEMAS[kind].problems(document)
        if not refused and problems and change not in AS_GOOD_AS_ABSENT:
            disagreements.append(f"{change}: the folder is taken, the schema refuses: {problems[0]}")
        elif refused and not problems and not any(word in each for each in refused for word in BEYOND_A_SCHEMA):
            disagreements.append(f"{change}: the schema is content, the folder is refused: {refused[0]}")
    assert disagreements == []


def schema_of(path: Path) -> Schema | None:
    if path.name.endswith(".tests.yaml"):
        return SCHEMAS["rule-tests"]
    if path.parent.name == "tests":
        return SCHEMAS["cases"]
    if path.name in ("solution.yaml", "process.yaml"):
        return SCHEMAS[path.stem]
    return SCHEMAS.get({"collections": "collection", "integrations": "integration"}.get(path.parent.name, ""))


def test_the_starter_is_valid_by_the_schemas() -> None:
    looked_at = 0
    for path in starter_folder().rglob("*.yaml"):
        schema = schema_of(path)
        if schema is not None:
            looked_at += 1
            assert schema.problems(yaml12.load(path.read_text())) == [], path
    assert looked_at >= 8


@pytest.mark.parametrize(
    ("table", "right"),
    [
        ({"cases": [{"input": {}, "output": 1}]}, True), ({"cases": [{"input": {}, "error": "x", "name": "n"}]}, True),
        ({"cases": []}, False), ({"cases": [{"input": {}}]}, False), ({"cases": [{"input": 1, "output": 1}]}, False),
        ({"cases": [{"input": {}, "output": 1, "error": "x"}]}, False), ({"case": []}, False),
    ],
)  # fmt: skip
def test_test_tables_have_a_schema(table: Any, right: bool) -> None:
    assert (SCHEMAS["rule-tests"].problems(table) == []) is right


@pytest.mark.parametrize(
    ("case", "right"),
    [
        ({}, True), ({"input": {}, "input_file": "x"}, False), ({"expect": {"status": "done"}}, False), ({"inptu": {}}, False),
        ({"mocks": {"a": {"output": 1, "outputs": [1]}}}, False), ({"mocks": {"a": {"calls": {"b.c": {"error": {}}}}}}, True),
        ({"mocks": {"a": {"error": {"retryable": "yes"}}}}, False), ({"expect": {"steps": {"a": {"time": 1}}}}, False),
        ({"expect": {"effects": [{"argz": []}]}}, False), ({"expect": {"calls": [{"args": []}]}}, True),
        ({"records": {"things": {}}}, False),
    ],
)  # fmt: skip
def test_cases_have_a_schema(case: Any, right: bool) -> None:
    assert (SCHEMAS["cases"].problems({"process": "p", "cases": [case]}) == []) is right


@pytest.mark.parametrize(
    ("case", "right"),
    [
        ({"input": "go"}, True), ({"step": "a"}, False), ({"mocks": {"a": {"output": 1}}}, True), ({"mocks": {"a": {}}}, False),
        ({"mocks": {"a": [{"when": {"x": 1}, "error": {"code": "conflict"}}]}}, True), ({"expect": {"order": "any"}}, True),
        ({"mocks": {"a": {"error": {"code": "magic"}}}}, False), ({"expect": {"calls": [{"input": {}}]}}, False),
        ({"expect": {"never": [{"tool": "a"}], "output_where": {"text": {"_eq": "x"}}, "most_turns": 3}}, True),
    ],
)  # fmt: skip
def test_cases_of_agents_have_a_schema(case: Any, right: bool) -> None:
    assert (SCHEMAS["cases"].problems({"agent": "a", "cases": [case]}) == []) is right


def test_a_secret_written_out_is_marked_in_the_editor() -> None:
    document = yaml12.load(INTEGRATION)
    document["settings"]["auth"]["token"] = "swordfish"
    assert SCHEMAS["integration"].problems(document) != []


def test_check_writes_the_schemas_where_no_apply_looks(gos: Gos, tmp_path: Path) -> None:
    for name, text in make_solution().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert gos("check", tmp_path, "--write-types")[0] == 0
    written = {path.name: json.loads(path.read_text()) for path in (tmp_path / ".gos").iterdir()}
    assert written == schema_files(REGISTRY)
    assert gos("check", tmp_path)[0] == 0
