"""The journal after a crash: evaluation times stay the same, and replays see a single run."""

from appliance.core import clock
from appliance.core.database import db
from appliance.processes.engine import store
from appliance.processes.engine.decide import StepRun
from appliance.processes.host.final_entries import parse_final_entry
from tests.processes.host.test_closing import closing_line
from tests.processes.host.test_journal import INTERPRETER, crash_and_drive
from tests.processes.world import World, code, rule

from .replaying import replay


def test_a_code_step_whose_input_mentions_the_clock_begins_as_before_after_a_crash(idle_world: World) -> None:
    world = idle_world
    process = world.publish(
        [code("a", "await api.datapool.create('marks', {what: String(input)}); return input;", input="= Date.now()")]
    )
    for number in range(1, 12):
        world.wipe()
        execution = world.start(process, soon=False)
        cut = crash_and_drive(world, execution, [(number, "after")])
        row = world.get(execution)
        assert row.status == "succeeded", (number, row.error)
        assert world.marks() == [(str(row.output), None)]
        if not cut:
            break
    assert 3 < number < 11


def test_a_step_run_seen_running_before_the_crash_notes_its_later_moment(idle_world: World) -> None:
    world = idle_world
    execution = world.start(world.publish([rule("a", "= Date.now()")]), soon=False)
    claim = world.runner.claim("acme", execution)
    assert claim is not None
    early = clock.now_ms() - 5_000
    run = StepRun("a", "", "a", "rule", "running", 1, started_at=early)
    db.write(lambda: store.save_run(claim.scope, execution, run))
    world.lose_worker(execution)
    world.runner.drive("acme", execution)
    row = world.get(execution)
    assert (row.status, world.steps(row)["a"].started_at) == ("succeeded", early)
    assert parse_final_entry(closing_line(world, execution)).now == row.output


def test_a_journal_that_crashes_interrupted_replays(idle_world: World) -> None:
    world = idle_world
    process = world.publish([code("a", INTERPRETER)])
    operations = ["now", "create", "random", "both", "read", "pair", "ring", "update"]
    for number in range(2, 14):
        world.wipe()
        execution = world.start(process, {"ops": operations}, soon=False)
        crash_and_drive(world, execution, [(number, "after"), (2, "before")])
        report = replay(world, execution)
        assert report.is_identical, (number, report.first)
