"""After a crash at any write a prompt has one answer, a recorded answer is not requested again, and every call is counted."""

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.llm import ProfileCreated
from appliance.processes.engine import store
from tests.llm.provider import Provider
from tests.processes.world import World, code

from .test_journal import MOST_WRITES, PowerCut, When, crash_and_drive, power_cut


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_write_leaves_one_answer_and_every_call_paid(
    idle_world: World, provider: Provider, when: When
) -> None:
    world = idle_world
    world.add_profile(provider)
    body = """
const first = await api.llm.generate({profile: 'default', prompt: 'one'});
await api.datapool.create('marks', {what: first});
const second = await api.llm.generate({profile: 'default', prompt: 'two: ' + first});
return [first, second];
"""
    step = {"id": "ask", "llm": {"profile": "default", "prompt": "three"}}
    mark = {"id": "mark", "datapool": {"collection": "marks", "create": {"values": {"what": "= steps.ask"}}}}
    grants = {"llm": ["default"], "datapool": {"marks": ["write"]}}
    process = world.publish([code("a", body), step, mark], grants=grants)
    for number in range(1, MOST_WRITES):
        world.wipe()
        provider.forget()
        execution = world.start(process, soon=False)
        cut = crash_and_drive(world, execution, [(number, when)])
        row = world.get(execution)
        assert row.status == "succeeded", (number, row.error)
        assert world.marks() == [("hello", None), ("hello", None)], number
        requests = [request.texts[-1] for request in provider.requests]
        assert sorted(set(requests)) == ["one", "three", "two: hello"], number
        assert len(requests) <= 4, "a crash costs one call at most"
        sums = db.rows("SELECT calls FROM llm_execution_usage WHERE execution_id = ?", (execution,))
        open_calls = db.rows("SELECT count(*) FROM llm_reservation WHERE execution_id = ?", (execution,))
        assert sums[0][0] == len(requests) or sums[0][0] == len(requests) + 1, (number, requests)
        assert open_calls == [(0,)], number
        if not cut:
            break
    assert 8 < number < MOST_WRITES


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_write_of_a_step_that_waits_for_its_profile(idle_world: World, provider: Provider, when: When) -> None:
    world = idle_world
    process = world.publish([{"id": "ask", "llm": {"profile": "late", "prompt": "?"}}])
    for number in range(1, MOST_WRITES):
        execution = world.start(process, soon=False)
        cut = False
        try:
            with power_cut(number, when):
                _finish(world, provider, execution)
        except PowerCut:
            cut = True
            _finish(world, provider, execution)
        row = world.get(execution)
        assert (row.status, row.output) == ("succeeded", "hello"), (number, row.error)
        statuses = db.rows("SELECT status FROM approval WHERE execution_id = ?", (execution,))
        assert statuses == [("cancelled",)], number
        world.models.delete_profile(world.scope, "late")
        if not cut:
            break
    assert 4 < number < MOST_WRITES


def _create(world: World, provider: Provider) -> None:
    """Creates the profile and announces it in the same write, as wired in the appliance."""

    def create() -> None:
        world.add_profile(provider, "late")
        world.flow.answer_profile(ProfileCreated(world.scope, "late"))

    db.write(create)


def _finish(world: World, provider: Provider, execution: str) -> None:
    """Drives the execution and creates the profile once it waits."""
    for _ in range(20):
        world.lose_worker(execution)
        world.runner.drive("acme", execution)
        row = world.get(execution)
        if row.status in store.FINISHED:
            return
        if row.status == "waiting" and (row.next_run_at or 0) > clock.now_ms():
            _create(world, provider)
    raise AssertionError(world.get(execution).status)


def test_a_profile_that_is_gone_again_is_waited_for_again(idle_world: World, provider: Provider) -> None:
    world = idle_world
    execution = world.start(world.publish([{"id": "ask", "llm": {"profile": "late", "prompt": "?"}}]), soon=False)
    world.runner.drive("acme", execution)
    first = world.get(execution).waiting_for["waits"][0]["approval_id"]
    _create(world, provider)
    world.models.delete_profile(world.scope, "late")
    world.runner.drive("acme", execution)
    row = world.get(execution)
    assert (row.status, row.waiting_for["waits"][0]["approval_id"] != first) == ("waiting", True), row.error
    _finish(world, provider, execution)
    assert world.get(execution).output == "hello"
    world.models.delete_profile(world.scope, "late")
