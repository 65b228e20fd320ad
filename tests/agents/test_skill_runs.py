"""A run that has loaded a skill writes without an approval only what the skill was granted, and sees lost trust at once."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from appliance.agents.skills.service import HOLDERS, Skills
from appliance.agents.skills.trust import approve_skill, revoke_skill
from appliance.agents.tools.skills import SkillTools
from appliance.blobs import Blobs, LocalPlaces
from appliance.core.scope import TenantScope
from appliance.tenants import SignedIn
from tests.agents.skills.sample_skills import skill
from tests.agents.world import ALLOW, World, calls, mark, open_world, says

LOAD = ("load_tenant_skill", {"name": "returns"})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(tmp_path) as opened:
        yield opened


@pytest.fixture
def library(world: World) -> Skills:
    """With the skill `returns`, which requests two tools."""
    skills = Skills(Blobs(LocalPlaces(world.folder / "blobs"), HOLDERS))
    skills.put_skill(world.scope, "returns", skill(more="allowed-tools: query_entities write_entities\n"))
    for tool in SkillTools(skills).tools():
        world.runs.runner.dependencies.toolbox.add(tool)
    return skills


def ann(world: World) -> tuple[TenantScope, SignedIn]:
    person = world.town.people["ann"]
    assert person.scope is not None
    return person.scope, person


def approve(world: World, library: Skills, *tools: str) -> None:
    scope, person = ann(world)
    digest = library.get_skill(scope, "returns").version_digest
    approve_skill(scope, library, person, "returns", digest, tools)


def start(world: World) -> str:
    world.make(calls(LOAD), calls(mark("x")), says("done"), rules=[ALLOW], skills=["returns"])
    return world.start()


@pytest.mark.parametrize(("tools", "status"), [(["write_entities"], "succeeded"), (["query_entities"], "waiting"), ([], "waiting")])
def test_a_run_writes_without_approval_what_its_skill_was_granted(
    world: World, library: Skills, tools: Sequence[str], status: str
) -> None:
    approve(world, library, *tools)
    run = world.drive(start(world))
    assert (run.status, "skill:returns" in run.tainted_by) == (status, False)
    if status == "waiting":
        (approval,) = world.list_approvals("pending")
        assert "write_entities is not granted to the skill returns" in str(approval.about.policy)
        assert world.marks() == []
        world.decide()
        assert world.drive(run.id).status == "succeeded"
    assert world.marks() == ["x"]


def revoke(world: World, library: Skills) -> None:
    scope, person = ann(world)
    revoke_skill(scope, library, person, "returns")


def change(world: World, library: Skills) -> None:
    library.put_skill(world.scope, "returns", skill(more="allowed-tools: write_entities\n"))


def delete(world: World, library: Skills) -> None:
    library.delete_skill(world.scope, "returns")


@pytest.mark.parametrize("lose", [revoke, change, delete])
def test_lost_trust_applies_to_a_run_in_progress(
    world: World, library: Skills, lose: Callable[[World, Skills], None]
) -> None:
    approve(world, library, "write_entities")
    run_id = start(world)
    world.script.before = lambda turn: lose(world, library) if turn == 2 else None
    assert world.drive(run_id).status == "waiting"
    (approval,) = world.list_approvals("pending")
    assert "skill:returns" in str(approval.about.policy)
    world.decide()
    run = world.drive(run_id)
    assert (run.status, "skill:returns" in run.tainted_by, world.marks()) == ("succeeded", True, ["x"])
