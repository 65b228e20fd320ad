"""Runs of a tenant that is being reset or deleted, before they are cancelled."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core.database import db
from appliance.core.errors import Overloaded
from tests.agents.world import World, open_world, says
from tests.tenants.fencing import KINDS, fenced


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("state", ["queued", "due"])
def test_no_run_of_a_tenant_that_is_reset_or_deleted_is_begun(world: World, how: str, state: str) -> None:
    world.make(Overloaded("busy", extra={"retryable": True, "retry_after": 60}), says("x"))
    run_id = world.start()
    if state == "due":
        assert world.drive(run_id).status == "waiting"
    db.write(lambda: db.execute("UPDATE agent_run SET next_run_at = 1, created_at = 1"))
    db.write(lambda: db.execute("DELETE FROM task"))  # it is lost
    turns, before = len(world.script.turn_numbers), world.get(run_id).status
    assert [run for _, run in world.runs._due()] == [run_id]
    with fenced(world.scope, how):
        assert world.runs._due() == []
        assert world.drive(run_id).status == before
    assert len(world.script.turn_numbers) == turns
    assert world.drive(run_id).status != before
