"""After a machine's clock was set, its durations are moved once, by the first of its processes, on both dialects."""

import subprocess
import sys
import threading

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.processes.definitions import versions
from appliance.processes.engine import store, suspension
from appliance.processes.engine.decide import StepRun
from appliance.processes.engine.store import Claim
from appliance.processes.engine.suspension import PendingCall
from appliance.processes.executions import service as executions
from appliance.processes.executions.service import Execution
from appliance.processes.executions.starting import ExecutionOrigin, StartRequest, insert_execution
from appliance.processes.scheduling.clock_jumps import ClockJumps, move_durations
from appliance.tenants import system_scope
from tests.processes.world import Wall

HOUR = 3_600_000
JUMPED = """
import sys
from appliance.core import clock
from appliance.core.database import db
from appliance.processes.scheduling.clock_jumps import ClockJumps, move_durations
db.open_database(sys.argv[1])
jumps, now = ClockJumps([move_durations], lambda: None), clock.now_ms
jumps.now_ms()
print("ready", flush=True)
sys.stdin.readline()
clock.now_ms = lambda: now() + 2 * 3_600_000
jumps.now_ms()
db.close_database()
"""


class Rows:
    """Executions that have waited since `at`; `dues` are their due times in hours after that."""

    def __init__(self, wall: Wall) -> None:
        self.wall = wall
        self.scope: TenantScope = system_scope("acme")
        self.at = clock.now_ms()
        definition = {"id": "idle", "steps": [{"id": "one", "rule": {"expression": "= 1"}}]}
        versions.save_draft(self.scope, "idle", versions.Draft(definition, {}))

    def process(self) -> ClockJumps:
        """The clock tracker of a process on this machine."""
        created = ClockJumps([move_durations], lambda: None)
        created.now_ms()
        return created

    def add(self, *runs: StepRun, calls: tuple[PendingCall, ...] = (), **values: object) -> str:
        """An execution with these step runs that are open, which have these calls."""

        def insert() -> str:
            row, _ = insert_execution(self.scope, "idle", 1, StartRequest({}), ExecutionOrigin())
            claim = Claim(self.scope, row.id, "idle", 1, 1, {}, None, self.at, self.at, 0, False, "", 1)
            for run in runs:
                store.save_run(self.scope, row.id, run)
            for call in calls:
                suspension.add_call(claim, call)
            first = {"status": "waiting", "next_run_at": store.earliest_due(claim), **values}
            self.scope.update(Execution, **first).where(Execution.id == row.id).execute()
            return str(row.id)

        return db.write(insert)

    def run(self, hours: float, *, measured_by: str | None = None, status: str = "waiting", path: str = "one") -> StepRun:
        due = self.at + int(hours * HOUR)
        return StepRun(path, "", path, "wait", status, next_run_at=due, measured_by=measured_by, started_at=self.at)

    def call(self, number: int, hours: float, *, measured_by: str | None = None) -> PendingCall:
        due = self.at + int(hours * HOUR)
        return PendingCall("one", "", 1, number, "timer", f"wai_{number}", "", due, measured_by=measured_by)

    def due(self, execution_id: str) -> float:
        row = executions.get_execution(self.scope, execution_id)
        ((first,),) = db.rows("SELECT MIN(next_run_at) FROM step_run WHERE execution_id = ?", (execution_id,))
        assert row.next_run_at == first
        return round(int(first - self.at) / HOUR, 1)


@pytest.fixture
def rows(two_tenants: None, monkeypatch: pytest.MonkeyPatch) -> Rows:
    return Rows(Wall(monkeypatch))


def test_two_processes_that_notice_a_jump_move_what_lasts_once(rows: Rows) -> None:
    mine = clock.boot_id()
    processes = [rows.process() for _ in range(8)]
    lasts, ends = rows.add(rows.run(1, measured_by=mine)), rows.add(rows.run(1))
    retries = rows.add(rows.run(2, measured_by=mine, status="retrying"), rows.run(5, path="two"))
    rows.wall.jumped = 2 * HOUR
    threads = [threading.Thread(target=each.now_ms) for each in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [rows.due(each) for each in (lasts, ends, retries)] == [3, 1, 4]
    assert rows.process().offset_ms == processes[0].offset_ms, "one that begins now finds nothing left to do"
    rows.wall.jumped = -2 * HOUR
    processes[0].now_ms()
    processes[7].now_ms()
    assert [rows.due(each) for each in (lasts, ends, retries)] == [-1, 1, 0]


def test_processes_of_one_machine_move_what_lasts_once(rows: Rows, store_url: str) -> None:
    """Several operating-system processes that notice the jump at the same moment."""
    lasts = rows.add(rows.run(1, measured_by=clock.boot_id()))
    command = [sys.executable, "-c", JUMPED, store_url]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("now\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    assert rows.due(lasts) == 3


def test_durations_measured_by_another_machine_are_not_moved(rows: Rows) -> None:
    """The same holds for durations from before a reboot, which follow the wall clock."""
    other = rows.add(rows.run(1, measured_by="another boot"))
    rows.process()
    rows.wall.jumped = 2 * HOUR
    rows.process()
    assert rows.due(other) == 1


def test_a_jump_while_nobody_ran_is_found_by_the_next_start(rows: Rows, caplog: pytest.LogCaptureFixture) -> None:
    rows.process()
    lasts = rows.add(rows.run(1, measured_by=clock.boot_id()))
    rows.wall.jumped = 2 * HOUR
    rows.process()
    assert rows.due(lasts) == 3
    rows.wall.offset = 5 * HOUR
    rows.process()
    assert rows.due(lasts) == 3, "time that passes is no jump"


def test_a_step_with_several_calls_goes_on_with_the_first_of_them(rows: Rows) -> None:
    mine = clock.boot_id()
    first = rows.process()
    both = rows.add(rows.run(1), calls=(rows.call(1, 1, measured_by=mine), rows.call(2, 1.5)))
    answered = rows.add(rows.run(0), calls=(rows.call(3, 1, measured_by=mine),))
    rows.wall.jumped = 2 * HOUR
    first.now_ms()
    assert [rows.due(each) for each in (both, answered)] == [1.5, 0]
    result = suspension.load_calls(rows.scope, both, ("one", "", 1))
    assert [(result[number].due_at - rows.at) / HOUR for number in (1, 2)] == [pytest.approx(3, abs=0.01), 1.5]


def test_leases_and_what_waits_beside_work_are_moved_and_what_is_over_is_not(rows: Rows) -> None:
    mine = clock.boot_id()
    first = rows.process()
    busy = rows.add(rows.run(1, measured_by=mine), status="running", next_run_at=None, lease_until=rows.at)
    over = rows.add(rows.run(1, measured_by=mine), status="failed", lease_until=rows.at)
    rows.wall.jumped = -2 * HOUR
    first.now_ms()

    def seen(execution_id: str) -> tuple[float, float]:
        sql = "SELECT lease_until, (SELECT next_run_at FROM step_run WHERE execution_id = id) FROM execution WHERE id = ?"
        ((lease, due),) = db.rows(sql, (execution_id,))
        return round((lease - rows.at) / HOUR, 1), round((due - rows.at) / HOUR, 1)

    assert (seen(busy), seen(over)) == ((-2, -1), (0, 1))


def test_small_clock_steps_add_up_and_are_logged_once(rows: Rows, caplog: pytest.LogCaptureFixture) -> None:
    first = rows.process()
    lasts = rows.add(rows.run(0, measured_by=clock.boot_id()))
    for jumped in (500, 1_000, 1_500):
        rows.wall.jumped = jumped
        first.now_ms()
    assert executions.get_execution(rows.scope, lasts).next_run_at == rows.at
    rows.wall.jumped = 2_500
    first.now_ms()
    assert executions.get_execution(rows.scope, lasts).next_run_at == pytest.approx(rows.at + 2_500, abs=100)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["the clock was set ahead by 2 s"]
    rows.wall.jumped = -7_200_000
    first.now_ms()
    assert caplog.records[-1].getMessage().startswith("the clock was set back by 7202 s")


def test_a_process_that_missed_a_jump_there_and_back_finds_what_another_left(rows: Rows) -> None:
    first, second = rows.process(), rows.process()
    lasts = rows.add(rows.run(1, measured_by=clock.boot_id()))
    rows.wall.jumped = 2 * HOUR
    second.now_ms()
    rows.wall.jumped = 0
    first.refresh()
    assert rows.due(lasts) == 1


def test_a_jump_that_was_not_committed_is_found_again(rows: Rows) -> None:
    first = rows.process()
    lasts = rows.add(rows.run(1, measured_by=clock.boot_id()))
    rows.wall.jumped = 2 * HOUR

    def look_and_fail() -> None:
        first.now_ms()
        raise ValueError("undone")

    with pytest.raises(ValueError, match="undone"):
        db.write(look_and_fail)
    assert rows.due(lasts) == 1
    first.now_ms()
    assert rows.due(lasts) == 3


def test_a_thread_that_is_held_up_between_two_clocks_sees_no_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    boot = iter([1_000, 9_000, 9_000, 9_001])
    wall = iter([51_000, 59_001])
    monkeypatch.setattr(clock, "since_boot_ms", lambda: next(boot))
    monkeypatch.setattr(clock, "now_ms", lambda: next(wall))
    assert clock.apart_ms() == 50_001
