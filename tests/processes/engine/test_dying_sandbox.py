"""Sandbox processes killed while steps of two tenants wait for a foreign system."""

import os
import signal

import pytest

from appliance.core.errors import Overloaded
from appliance.processes import Waiter
from appliance.processes.definitions import versions
from appliance.processes.definitions.dependencies import load_nothing
from appliance.processes.definitions.versions import Draft, PublishRequest
from appliance.processes.executions import service as executions
from appliance.processes.executions.service import Execution
from appliance.processes.executions.starting import StartRequest
from appliance.sandbox import Pool, Settings
from appliance.solutions import Problem as SolutionProblem
from appliance.solutions import raise_problems
from tests.processes.world import Bell, World, code, wait_until

BODY = "return await api.integrations.execute('bell', 'hold', {})"


def start_other(world: World) -> Execution:
    """An execution of the tenant globex, which has no integration: its step waits in the sandbox by computing."""
    step = code("spin", "const ends = Date.now() + 1500; while (Date.now() < ends); return 'done'")
    versions.save_draft(world.other, "other", Draft({"id": "other", "steps": [step]}, {}))
    world.flow.publish_process(world.other, "other", PublishRequest())
    return world.flow.start_execution(world.other, "other", StartRequest({}), waiter=Waiter())


def test_steps_of_two_tenants_go_on_at_once_in_the_same_attempt_and_ring_once(world: World) -> None:
    execution = world.start(world.publish([code("a", BODY)]))
    assert Bell.arrived.acquire(timeout=10)
    other = start_other(world)
    wait_until(lambda: world.pool.health()["busy"] == 2)
    restarts = world.pool.health()["restarts"]
    for number in world.pool.process_ids():
        os.kill(number, signal.SIGKILL)
    wait_until(lambda: world.pool.health()["restarts"] == restarts + 2 and world.pool.health()["processes"] == 2, 3)
    Bell.go_on.set()
    done = world.finish(execution)
    assert (done.status, world.steps(done)["a"].attempt) == ("succeeded", 1)
    assert len(Bell.rung) == 1
    wait_until(lambda: executions.get_execution(world.other, other.id).status == "succeeded")
    (spun,) = executions.list_steps(world.other, executions.get_execution(world.other, other.id))
    assert (spun.attempt, spun.output) == (1, "done")


def test_code_that_could_not_be_checked_is_not_reported_as_wrong(world: World) -> None:
    stopped = Pool(Settings(processes=1))
    stopped.start()
    stopped.stop()
    world.save("unseen", [code("a", "return 1")])
    context = versions.CheckContext(stopped, load_nothing, check_all_types=False)
    with pytest.raises(Overloaded, match="try again"):
        versions.publish_process(world.scope, context, "unseen", PublishRequest())


def test_a_solution_with_unchecked_code_is_not_reported_as_wrong() -> None:
    with pytest.raises(Overloaded, match="try again"):
        raise_problems([SolutionProblem("processes/a/process.yaml", "sandbox_lost", "gone")])
