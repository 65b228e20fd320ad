"""How a loaded skill taints a run, and what an approval of the run's calls covers."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.agents.skills.service import HOLDERS, Skills
from appliance.agents.skills.trust import approve_skill
from appliance.agents.tools.skills import SkillTools
from appliance.blobs import Blobs, LocalPlaces
from appliance.governance import StoredAction, canonical_action
from appliance.governance.approvals import ActionApprovals
from tests.agents.world import ASK, World, book, calls, open_world, says

from .sample_skills import skill

LOADS = ("load_tenant_skill", {"name": "returns"})
RULES = [ASK, {"id": "may", "effect": "allow", "tools": ["load_tenant_skill"], "reason": "in this test"}]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(tmp_path) as opened:
        yield opened


@pytest.fixture
def library(world: World, tmp_path: Path) -> Skills:
    """The skills of the world, which its runs may load."""
    library_skills = Skills(Blobs(LocalPlaces(tmp_path / "blobs"), HOLDERS))
    for tool in SkillTools(library_skills).tools():
        world.runs.runner.dependencies.toolbox.add(tool)
    return library_skills


def waiting(world: World) -> tuple[list[str], StoredAction]:
    """Start a run that loads the skill and waits for an approval: its taint, and the stored action."""
    world.make(calls(LOADS), calls(book(amount=1)), says("done"), rules=RULES, skills=["returns"])
    run = world.drive(world.start())
    assert (run.status, world.booked()) == ("waiting", []), run.error
    (approval,) = world.list_approvals("pending")
    return run.tainted_by, ActionApprovals(world.company.sealer).read_action(world.scope, approval.id)


def test_an_untrusted_skill_taints_the_run_and_its_digest_is_in_what_is_approved(world: World, library: Skills) -> None:
    digest = library.put_skill(world.scope, "returns", skill())[0].version_digest
    tainted_by, stored = waiting(world)
    assert tainted_by == ["skill:returns"]
    assert json.loads(stored.canonical.text)["skills"] == [["returns", digest]]
    assert [(used.digest, used.is_trusted) for used in stored.subject.skills] == [(digest, False)]
    world.decide()
    assert (world.drive(stored.subject.run_id).status, len(world.booked())) == ("succeeded", 1)


def test_a_trusted_skill_taints_nothing_and_another_text_of_it_is_another_action(world: World, library: Skills) -> None:
    person = world.town.people["ann"]
    digests, texts = [], []
    for text in (b"Ask.", b"Ask twice."):
        digests.append(library.put_skill(world.scope, "returns", skill(reference=text))[0].version_digest)
        approve_skill(person.scope or world.scope, library, person, "returns", digests[-1])
        tainted_by, stored = waiting(world)
        assert (tainted_by, [used.is_trusted for used in stored.subject.skills]) == ([], [True])
        texts.append(stored)
        world.decide("reject")
    assert [json.loads(each.canonical.text)["skills"] for each in texts] == [[["returns", digest]] for digest in digests]
    first, other = (each.subject.skills for each in texts)
    changed = canonical_action(world.scope, replace(texts[0].subject, skills=other), texts[0].action, texts[0].version)
    assert first != other
    assert changed.digest != texts[0].canonical.digest
