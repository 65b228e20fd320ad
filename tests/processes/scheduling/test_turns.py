"""Fair sharing: the tenant that runs least comes first, priority counts, and no execution starves."""

from itertools import pairwise

from appliance.core.database import db
from appliance.processes.executions.service import find_queue_place
from appliance.processes.scheduling import admission, fair_share
from appliance.processes.scheduling.fair_share import FairShare
from tests.processes.world import World, rule


def test_the_tenant_that_runs_least_comes_first() -> None:
    places = FairShare(8)
    assert places.acquire(["a", "b"]) == "a"
    assert places.acquire(["a", "b"]) == "b"
    assert places.acquire(["a", "b"]) == "a", "among equals whoever was served longest ago"
    places.release("a")
    places.begin_extra("b")
    assert places.acquire(["b", "a"]) == "a", "what runs beside the places counts too"


def test_the_last_quarter_is_for_tenants_that_run_nothing() -> None:
    places = FairShare(8)
    assert [places.acquire(["a"]) for _ in range(7)] == ["a"] * 6 + [None]
    assert [places.acquire(["a", name]) for name in ("b", "c", "d")] == ["b", "c", None]
    places.release("a")
    assert places.acquire(["a", "d"]) == "d"
    places.release("d")
    assert places.acquire(["a"]) is None, "the place that is free is kept"


def test_one_place_alone_is_used_by_everybody() -> None:
    places = FairShare(1)
    assert [places.acquire(["a"]), places.acquire(["b"])] == ["a", None]
    places.release("a")
    assert places.acquire(["a", "b"]) == "b"


def test_a_step_of_priority_counts_as_ten_minutes_of_waiting() -> None:
    minute = 60_000
    assert admission.rank_of(0, 1) < admission.rank_of(0, 0)
    assert admission.rank_of(9 * minute, 1) < admission.rank_of(0, 0) < admission.rank_of(11 * minute, 1)
    assert admission.rank_of(0, -10) < admission.rank_of(201 * minute, 10), "the lowest has its turn before what is new for ever"


def queue_up(world: World) -> list[str]:
    process = world.publish([rule("one", "= 1")])
    return [world.start(process, soon=False, priority=priority) for priority in (0, -2, 7, 0)]


def test_the_queue_of_a_tenant_is_sorted_by_priority_then_age(idle_world: World) -> None:
    world = idle_world
    usual, low, high, later = queue_up(world)
    assert world.scope.tenant_id in fair_share.ready_tenants()
    ahead_by_id = {}
    for each in (usual, low, high, later):
        queue_place = find_queue_place(world.get(each))
        assert queue_place is not None
        ahead_by_id[each] = queue_place.ahead
    assert [ahead_by_id[b] - ahead_by_id[a] for a, b in pairwise((high, usual, later, low))] == [1, 1, 1]
    order = []
    while (claim := world.flow.intake.claim_next()) is not None:
        order.append(claim.execution_id)
        world.runner.run(claim)
        world.flow._fair_queue.release("acme")
    assert [each for each in order if each in ahead_by_id] == [high, usual, later, low]


def test_a_child_takes_the_queue_position_of_its_waiting_parent(idle_world: World) -> None:
    """Queued behind everything accepted since, a parent would have to wait for the whole queue."""
    world = idle_world
    child = world.publish([rule("one", "= 1")])
    parents_by_wait = {wait: world.publish([{"id": "sub", "process": {"use": child, "wait": wait}}]) for wait in (True, False)}
    parents = [world.start(process, soon=False) for process in parents_by_wait.values()]
    later = world.start(child, soon=False)
    order = []
    while (claim := world.flow.intake.claim_next()) is not None:
        order.append(claim.execution_id)
        world.runner.run(claim)
        world.flow._fair_queue.release("acme")
    children = {row.parent: row.id for row in (world.get(each) for each in order) if row.parent}
    awaited, other = (children[parent] for parent in parents)
    assert order.index(awaited) < order.index(later) < order.index(other)


def test_the_index_answers_without_looking_at_the_backlog(idle_world: World) -> None:
    if not db.is_sqlite():
        return
    for sql, values in ((fair_share._READY_TENANTS, ()), (fair_share._FIRST, ("acme",))):
        plan = " ".join(row[3] for row in db.rows(f"EXPLAIN QUERY PLAN {sql}", values))
        assert "execution_ready" in plan
        assert "execution_open" not in plan
        assert "TEMP B-TREE" not in plan
