"""The JSON Schema of an agent for editors agrees with the parser of definitions."""

import copy
from typing import Any

import pytest

from appliance.agents.definition import MEMBERS, parse_definition
from appliance.agents.schema import agent_schema
from appliance.core.errors import DefinitionInvalid
from appliance.core.json_schema import compile_schema
from tests.agents.test_definition import WHOLE

SCHEMA = compile_schema(agent_schema())
STRANGE = [
    None, True, -1, 0, 10**9, "", "Plain Words", "load_tenant_skill", "a:b:c", "x:*", [], [7], ["a", "a"], {}, {"unheard_of": 1},
]  # fmt: skip
PLACES: list[tuple[Any, ...]] = [
    *((member,) for member in WHOLE), ("tools", 0), ("skills", 0), ("output", "type"),
    *(("budget", each) for each in WHOLE["budget"]),
]  # fmt: skip


def refusal(document: Any) -> str:
    try:
        parse_definition("triage", document)
    except DefinitionInvalid as error:
        return error.message
    return ""


def test_the_schema_knows_every_member_that_is_read() -> None:
    assert tuple(agent_schema()["properties"]) == MEMBERS
    assert WHOLE.keys() == set(MEMBERS)
    assert (refusal(WHOLE), SCHEMA.problems(WHOLE)) == ("", [])


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "/".join(map(str, place)))
def test_reading_and_schema_agree(place: tuple[Any, ...]) -> None:
    disagreements = []
    for strange in ("taken out", *STRANGE):
        document = copy.deepcopy(WHOLE)
        target: Any = document
        for part in place[:-1]:
            target = target[part]
        if strange == "taken out":
            target.pop(place[-1])
        else:
            target[place[-1]] = strange
        refused, problems = refusal(document), SCHEMA.problems(document)
        if bool(refused) != bool(problems) and "but the URL names" not in refused:
            disagreements.append(f"{strange!r}: read: {refused or 'taken'}; schema: {problems[0] if problems else 'content'}")
    assert disagreements == []
