"""The published schema says what the parser says: what is changed in a whole definition is taken by both or refused by both."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.core import yaml12
from appliance.core.json_schema import compile_schema
from appliance.processes.definitions.definition import DefinitionProblems, parse_definition
from appliance.processes.definitions.nodes import KINDS
from appliance.processes.definitions.schema import process_schema
from appliance.processes.definitions.schema_kinds import kind_schemas

WHOLE = yaml12.load((Path(__file__).parent / "every_member.yaml").read_text())
FILES = {"rules/price.json": "{}", "steps/a.ts": ""}
SCHEMA = compile_schema(process_schema())
STRANGE = [None, True, 7, -1, "", "plain", "= input.a", "30s", [], ["x"], {}, {"strange": 1}]
# What a schema cannot say: it knows one document, and no order, number or word of another place in it.
BEYOND_A_SCHEMA = re.compile(
    "there is no file|ids are unique|only the last option|must be a plain word|nested|expression is empty|from 1 ms|from 0 ms|"
    "at most 15m|belongs to kind|no JSON Schema|each once|one line|reserved|expires is between|"
    "is not a time zone|cron expression|is taken by"
)
Place = tuple[str | int, ...]


@pytest.fixture(autouse=True)
def published_schema() -> None:
    """This page compares more closely itself."""


def refusals(document: Any) -> list[str]:
    try:
        parse_definition(document, FILES)
    except DefinitionProblems as error:
        return [f"{problem.pointer}: {problem.message}" for problem in error.problems]
    return []


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    yield place
    if isinstance(value, dict | list):
        for name in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[name], (*place, name))


def changed(place: Place, change: Any) -> Any:
    """A copy, which shares with the whole what does not lead to the place."""
    document = target = copy.copy(WHOLE)
    for part in place:
        above, target[part] = target, copy.copy(target[part])
        target = target[part]
    change(above, place[-1])
    return document


def changes(place: Place) -> Iterator[tuple[str, Any]]:
    """What is done to a place, and the document it makes."""
    yield "taken out", changed(place, lambda target, name: target.pop(name))
    for strange in STRANGE:
        yield f"made {strange!r}", changed(place, lambda target, name, strange=strange: target.__setitem__(name, strange))

    def add(target: Any, name: Any) -> None:
        if isinstance(target[name], dict):
            target[name]["unheard_of"] = 1

    yield "given a member", changed(place, add)


def is_of_the_builder(place: Place) -> bool:
    """Whether the place is in a value or a schema that the builder makes up."""
    free = {"filter", "input", "output", "values", "details", "schema", "collect", "query", "batch", "decision", "arguments"}
    return any(part in free for part in place[:-1])


def is_as_good_as_absent(place: Place, change: str) -> bool:
    """In a question to people an empty value of the wrong type counts as none; no editor need offer that."""
    return "human" in place and change in ("made ''", "made []", "made {}")


PLACES = [place for place in places(WHOLE) if place and not is_of_the_builder(place)]


def test_every_kind_and_member_is_in_the_whole_definition() -> None:
    assert refusals(WHOLE) == []
    assert SCHEMA.problems(WHOLE) == []
    kinds = {part for place in places(WHOLE) for part in place if part in KINDS}
    assert set(kind_schemas()) == kinds == set(KINDS)
    text = json.dumps(WHOLE)
    missing = [name for name in sorted(members_of(process_schema())) if f'"{name}"' not in text]
    assert missing == []


def members_of(part: Any) -> Iterator[str]:
    """The name of every member that the schema lists."""
    if isinstance(part, dict):
        if part.get("additionalProperties") is False:
            yield from part["properties"]
        for inner in part.values():
            yield from members_of(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from members_of(inner)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "/".join(map(str, place)))
def test_parser_and_schema_agree(place: Place) -> None:
    disagreements = []
    for change, document in changes(place):
        refused, problems = refusals(document), SCHEMA.problems(document)
        if not refused and problems and not is_as_good_as_absent(place, change):
            disagreements.append(f"{change}: the parser takes it, the schema does not: {problems[0]}")
        elif refused and not problems and not all(BEYOND_A_SCHEMA.search(each) for each in refused):
            disagreements.append(f"{change}: the schema takes it, the parser does not: {refused[0]}")
    assert disagreements == []
