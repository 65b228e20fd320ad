"""A crash between a call's effect and the journal entry of its answer: the run resumes with that same call."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.agents.runs import Run
from appliance.agents.store import FINISHED
from appliance.core.database import db, writers
from appliance.governance import switch_off
from appliance.processes import Execution
from tests.agents.equipped import Shop, equip_process, put_process
from tests.agents.world import ALLOW, TAINTED, World, calls, open_world, says
from tests.governance.ruling import put_rules
from tests.processes.host.test_journal import PowerCut

READ = ("query_entities", {"collection": "marks"})
PUBLISH = ("publish_webapp", {"app": "shop", "version": 2})
WORK = ("execute_process", {"process_id": "work", "input": {"n": 1}})


def ask_for(tool: str, **more: Any) -> dict[str, Any]:
    return {"id": "ask", "effect": "require_approval", "tools": [tool], "reason": "look first", **more}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(tmp_path) as opened:
        yield opened


@pytest.fixture
def shop(world: World) -> Iterator[Shop]:
    instance = Shop(world)
    instance.equip()
    yield instance
    instance.close()


def finish(world: World, run_id: str) -> Run:
    """Drive it to its end; a person approves whatever is asked."""
    while (run := world.drive(run_id)).status not in FINISHED:
        world.decide()
    return run


def cut_after_dispatch(world: World, run_id: str, equip: Callable[[], None] = lambda: None) -> None:
    """The process dies when the dispatch of the call is durable, before its next write; another process takes over."""
    write = db.write

    def write_until_dark(fn: Callable[[], Any], *, is_shared: bool = False) -> Any:
        if not writers.state.inside and any(entry.kind == "dispatched" for entry in world.journal(run_id)):
            raise PowerCut
        return write(fn, is_shared=is_shared)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db, "write", write_until_dark)
        with pytest.raises(PowerCut):
            finish(world, run_id)
    world.restart()
    equip()
    assert returned_entries(world, run_id) == []


def returned_entries(world: World, run_id: str) -> list[Any]:
    return [entry.data for entry in world.journal(run_id) if entry.kind == "returned"]


def executions(world: World) -> list[tuple[str, int]]:
    return [(row.actor, row.version) for row in world.scope.select(Execution)]


def test_an_approved_read_resumes_with_its_used_approval(world: World) -> None:
    once = {"calls_per_run": 1}
    world.make(calls(READ), says("done"), rules=[ask_for(READ[0], obligations=once), ALLOW], tools=[READ[0]])
    run_id = world.start()
    cut_after_dispatch(world, run_id)
    assert [each.status for each in world.list_approvals()] == ["used"]
    assert finish(world, run_id).output == "done"
    assert [each["ok"] for each in returned_entries(world, run_id)] == [True], returned_entries(world, run_id)
    assert [each.status for each in world.list_approvals()] == ["used"]


def test_a_dispatched_read_needs_a_new_approval_under_other_policies(world: World) -> None:
    world.make(calls(READ), says("done"), rules=[ask_for(READ[0]), ALLOW], tools=[READ[0]])
    run_id = world.start()
    cut_after_dispatch(world, run_id)
    put_rules(world.scope, ask_for(READ[0]), ALLOW, {**TAINTED, "id": "more"})
    assert world.drive(run_id).status == "waiting"
    world.decide()
    assert world.drive(run_id).status == "succeeded"
    assert [each["ok"] for each in returned_entries(world, run_id)] == [True], returned_entries(world, run_id)
    assert [each.status for each in world.list_approvals()] == ["used", "used"]


@pytest.mark.parametrize("rule", [ALLOW, ask_for(PUBLISH[0])])
def test_a_publication_that_was_taken_back_is_not_repeated(world: World, shop: Shop, rule: dict[str, Any]) -> None:
    world.make(calls(PUBLISH), says("done"), rules=[rule], tools=[PUBLISH[0]])
    run_id = world.start()
    cut_after_dispatch(world, run_id, shop.equip)
    assert shop.served == 2
    shop.serve(1)
    assert finish(world, run_id).status == "succeeded"
    (result,) = returned_entries(world, run_id)
    assert (result["ok"], result["result"]["state"], result["result"]["version"]["state"]) == (True, "published", "superseded")
    assert shop.served == 1


def test_a_dispatched_call_that_is_denied_now_is_reported_as_begun(world: World, shop: Shop) -> None:
    world.make(calls(PUBLISH), says("done"), rules=[ALLOW], tools=[PUBLISH[0]])
    run_id = world.start()
    cut_after_dispatch(world, run_id, shop.equip)
    switch_off(world.scope, "tool", PUBLISH[0], "enough")
    finish(world, run_id)
    (result,) = returned_entries(world, run_id)
    assert (result["error"]["code"], result["error"]["begun"]) == ("policy_denied", True)
    assert "had already started and is not undone" in result["error"]["message"]


@pytest.mark.parametrize("rule", [ALLOW, ask_for(WORK[0])])
def test_a_process_is_started_once_whatever_is_published_meanwhile(world: World, rule: dict[str, Any]) -> None:
    put_process(world.scope, 1)
    equip_process(world)
    world.make(calls(WORK), says("done"), rules=[rule], tools=[WORK[0]])
    run_id = world.start()
    cut_after_dispatch(world, run_id, lambda: equip_process(world))
    put_process(world.scope, 2)
    db.write(lambda: db.execute("UPDATE execution SET created_at = created_at - 200000000"))  # days later
    assert finish(world, run_id).status == "succeeded"
    (result,) = returned_entries(world, run_id)
    assert (result["ok"], result["result"]["version"]) == (True, 1)
    assert executions(world) == [(f"run:{run_id}", 1)]


def test_the_version_that_was_approved_is_executed(world: World) -> None:
    put_process(world.scope, 1)
    equip_process(world)
    world.make(calls(WORK), says("done"), rules=[ask_for(WORK[0]), ALLOW], tools=[WORK[0]])
    run_id = world.start()
    world.drive(run_id)
    (approval,) = world.list_approvals()
    assert "version = 1" in approval.about.summary
    put_process(world.scope, 2)
    world.decide()
    assert world.drive(run_id).status == "succeeded"
    assert executions(world) == [(f"run:{run_id}", 1)]
