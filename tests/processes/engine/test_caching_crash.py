"""Code with a cache after a crash; apart from the other tests of caching, whose running flow would take its executions."""

from appliance.core.database import db
from tests.processes.world import World, code

from .test_caching import HOUR


def test_code_interrupted_by_a_crash_continues_from_its_journal(idle_world: World) -> None:
    world = idle_world
    body = "const made = await api.datapool.create('marks', {what: 'once'}); return made.id"
    process = world.publish([code("a", body, cache=HOUR)])
    cut, whole = (world.start(process, soon=False) for _ in range(2))
    claim = world.runner.claim("acme", cut)
    assert claim is not None
    world.runner.drive("acme", whole)
    db.write(lambda: db.execute(
        "INSERT INTO journal SELECT tenant_id, ?, path, iteration, attempt, call, position, method, args, ok, "
        "replace(answer, '\"id\":\"', '\"id\":\"own'), clock, at FROM journal WHERE execution_id = ? AND call > 0",
        (cut, whole),
    ))  # fmt: skip
    world.lose_worker(cut)
    world.runner.drive("acme", cut)
    row = world.get(cut)
    assert row.status == "succeeded", row.error
    assert row.output.startswith("own"), "its own answer, not the other execution's output"
    assert len(world.marks()) == 1
