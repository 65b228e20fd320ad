"""Concurrency keys: the limit and the order hold, also across crashes, and no execution waits for a free slot."""

from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ConcurrencyLimited, ValidationFailed
from appliance.processes.executions.service import find_queue_place
from tests.processes.world import Bell, World, rule, wait_until

HOLD = {"id": "ring", "integration": {"use": "bell", "action": "hold", "input": {"n": "= input.n"}}}


def limited(world: World, steps: list[dict[str, Any]] | None = None, **concurrency: Any) -> str:
    return world.publish(steps or [HOLD], concurrency={"limit": 1, **concurrency})


def states(world: World, *ids: str) -> list[str]:
    rows = [world.get(each) for each in ids]
    return [f"{row.status}/{row.wait_reason}" if row.wait_reason else row.status for row in rows]


def start_and_wait(world: World, process: str, **request: Any) -> str:
    """An execution that is in the middle of its step."""
    execution = world.start(process, {"n": 1, "who": "a"}, **request)
    assert Bell.arrived.acquire(timeout=10)
    return execution


@pytest.mark.parametrize("immediate", [True, False])
def test_an_execution_without_a_slot_waits_in_order(world: World, immediate: bool) -> None:
    process = limited(world)
    first = start_and_wait(world, process)
    others = [world.start(process, {"n": n}, soon=immediate) for n in (2, 3)]
    urgent = world.start(process, {"n": 4}, soon=immediate, priority=5)
    assert states(world, *others, urgent) == ["queued/slot"] * 3
    row = world.get(others[1])
    assert row.waiting_for == {"concurrency": {"key": "", "limit": 1}}
    queue_place = find_queue_place(row)
    assert queue_place is not None
    assert (queue_place.position, queue_place.ahead) == (3, 2)
    Bell.go_on.set()
    for each in (first, *others, urgent):
        assert world.finish(each).status == "succeeded"
    assert [payload["n"] for _, payload in Bell.rung] == [1, 4, 2, 3]


def test_every_concurrency_key_has_its_own_slots(world: World) -> None:
    process = limited(world, key="= input.who")
    first = start_and_wait(world, process)
    same = world.start(process, {"n": 2, "who": "a"})
    other = world.start(process, {"n": 3, "who": "b"})
    assert Bell.arrived.acquire(timeout=10)
    assert states(world, first, same, other) == ["running", "queued/slot", "running"]
    with pytest.raises(ValidationFailed, match=r"`input\.who`"):
        world.start(process, {"n": 4})
    Bell.go_on.set()
    assert world.finish(same).status == "succeeded"


def test_an_execution_that_waits_keeps_its_slot(world: World) -> None:
    process = limited(world, [{"id": "pause", "wait": {"for": "300ms"}}, rule("last", "= 1")])
    first = world.start(process)
    world.wait_for_status(first, "waiting")
    second = world.start(process)
    assert states(world, second) == ["queued/slot"]
    assert world.finish(second).started_at >= world.get(first).finished_at


def test_reject_answers_at_once_and_leaves_nothing(world: World) -> None:
    process = limited(world, behaviour="reject")
    first = start_and_wait(world, process)
    with pytest.raises(ConcurrencyLimited, match="at most 1 at once"):
        world.start(process, {"n": 2})
    count = "SELECT count(*) FROM execution WHERE process_id = ?"
    assert db.rows(count, (process,)) == [(1,)]
    Bell.go_on.set()
    world.finish(first)
    assert world.finish(world.start(process, {"n": 3})).status == "succeeded"


def test_cancel_running_cancels_the_older_ones_and_begins_when_they_have_stopped(world: World) -> None:
    process = limited(world, behaviour="cancel_running")
    first = start_and_wait(world, process)
    second = world.start(process, {"n": 2})
    third = world.start(process, {"n": 3})
    assert states(world, first, second, third) == ["cancelling", "cancelled", "queued/slot"]
    Bell.go_on.set()
    assert world.finish(third).status == "succeeded"
    assert world.finish(first).status == "cancelled"
    assert world.get(third).started_at >= world.get(first).finished_at


def test_cancel_running_cancels_what_waits_in_the_same_transaction(world: World) -> None:
    process = limited(world, [{"id": "pause", "wait": {"for": "1h"}}], behaviour="cancel_running")
    first = world.start(process)
    world.wait_for_status(first, "waiting")
    second = world.start(process)
    assert states(world, first) == ["cancelled"]
    assert world.wait_for_status(second, "waiting").wait_reason == "timer"
    world.flow.cancel_execution(world.scope, second)


def test_a_scheduled_one_takes_no_slot_before_its_time(world: World) -> None:
    process = limited(world)
    tomorrow = world.start(process, {"n": 9}, run_at=clock.now_ms() + 86_400_000)
    first = start_and_wait(world, process)
    due = world.start(process, {"n": 2}, run_at=clock.now_ms() + 100)
    wait_until(lambda: states(world, due) == ["queued/slot"])
    Bell.go_on.set()
    assert world.finish(due).status == "succeeded"
    assert states(world, first, tomorrow) == ["succeeded", "scheduled"]


def test_a_slot_is_passed_on_while_the_process_is_paused_but_nothing_begins(world: World) -> None:
    process = limited(world)
    first = start_and_wait(world, process)
    second, third = (world.start(process, {"n": n}) for n in (2, 3))
    world.flow.pause_process(world.scope, process)
    Bell.go_on.set()
    world.finish(first)
    assert states(world, second, third) == ["queued/paused", "queued/slot"]
    world.flow.resume_process(world.scope, process)
    assert [world.finish(each).status for each in (second, third)] == ["succeeded", "succeeded"]


def test_never_more_at_once_than_the_limit(world: World) -> None:
    Bell.go_on.set()
    process = world.publish([HOLD, {"id": "pause", "wait": {"for": "1ms"}}], concurrency={"limit": 3})
    ids = [world.start(process, {"n": n}, soon=n % 3 == 0) for n in range(40)]
    assert {world.finish(each).status for each in ids} == {"succeeded"}
    spans = [(world.get(each).started_at, world.get(each).finished_at) for each in ids]
    # A slot is passed on in the commit that ends its holder, so that not even their last milliseconds meet.
    assert max(sum(1 for began, ended in spans if began <= at < ended) for at, _ in spans) <= 3
