"""Schedules: due times across daylight saving changes, and that each is run once, whatever the clock does."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.core import clock
from appliance.core.database import db
from appliance.processes.executions.service import Execution
from appliance.processes.triggers import cron
from appliance.processes.triggers.cron import Cron, CronInvalid, time_zone
from appliance.processes.triggers.service import Firing, TriggerState, list_triggers
from tests.processes.world import World, rule

BERLIN = "Europe/Berlin"
MINUTE, HOUR = 60_000, 3_600_000


def ms(text: str) -> int:
    """Milliseconds of an RFC 3339 time."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def due(expression: str, after: str, count: int, zone: str = BERLIN) -> list[str]:
    """The next due times as the zone's clocks show them."""
    due_times = Cron(expression, zone).due_after(ms(after))
    times = [datetime.fromtimestamp(next(due_times) / 1000, UTC) for _ in range(count)]
    return [moment.astimezone(ZoneInfo(zone)).isoformat() for moment in times]


def test_a_time_of_day_that_is_left_out_is_due_right_after_the_gap() -> None:
    assert due("30 2 * * *", "2027-03-27T12:00:00+01:00", 2) == ["2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"]
    assert due("0 2,3 * * *", "2027-03-28T00:00:00+01:00", 2) == ["2027-03-28T03:00:00+02:00", "2027-03-29T02:00:00+02:00"]


def test_a_time_of_day_that_comes_twice_is_due_the_first_time() -> None:
    assert due("30 2 * * *", "2026-10-24T12:00:00+02:00", 2) == ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]
    between = "2026-10-25T02:15:00+01:00"
    assert due("30 2 * * *", between, 1) == ["2026-10-26T02:30:00+01:00"], "the second 02:30 of that night is none"


def test_intervals_go_by_the_time_that_passes() -> None:
    assert due("*/30 * * * *", "2027-03-28T01:00:00+01:00", 3) == [
        "2027-03-28T01:30:00+01:00", "2027-03-28T03:00:00+02:00", "2027-03-28T03:30:00+02:00",
    ]  # fmt: skip
    assert due("0 * * * *", "2026-10-25T01:00:00+02:00", 3) == [
        "2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00",
    ]  # fmt: skip


def test_zones_come_with_the_appliance(monkeypatch: pytest.MonkeyPatch) -> None:
    import zoneinfo

    assert time_zone(BERLIN).key == BERLIN
    monkeypatch.setattr(zoneinfo, "TZPATH", ())
    cron.time_zone.cache_clear()
    assert Cron("0 6 * * *", BERLIN).next_after(ms("2026-07-01T00:00:00+00:00")) == ms("2026-07-01T04:00:00+00:00")


@pytest.mark.parametrize("name", ["../../../etc/passwd", "Mars/Olympus", "", "europe/berlin"])
def test_a_zone_is_a_name_of_the_database(name: str) -> None:
    with pytest.raises(CronInvalid):
        time_zone(name)


@settings(max_examples=150, deadline=None)
@given(
    expression=st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 2,3 * * *", "15 */2 * * *", "5 1-4 * * 0", "0 6 1 * *"]),
    zone=st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC"]),
    begin=st.integers(ms("2026-01-01T00:00:00+00:00"), ms("2027-12-31T00:00:00+00:00")),
    hours=st.integers(1, 72),
    most=st.integers(1, 30),
)
def test_looking_back_finds_the_same_due_times_as_looking_ahead(
    expression: str, zone: str, begin: int, hours: int, most: int
) -> None:
    schedule = Cron(expression, zone)
    until = begin + hours * HOUR
    in_a_day = takewhile(lambda each: each <= until + 24 * HOUR, schedule.due_after(begin))  # beyond until, for one out of order
    ahead = [each for each in in_a_day if each <= until]
    assert ahead == sorted(set(ahead))
    assert schedule.latest(begin, until, most) == ahead[-most:]


class MovedClock:
    """The wall clock of the appliance, set by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = ms("2026-11-21T08:00:30+00:00")
        monkeypatch.setattr(clock, "now_ms", lambda: self.now)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> MovedClock:
    return MovedClock(monkeypatch)


class Watch:
    """A world whose triggers are driven by the test: `look` does what a worker does every half second."""

    def __init__(self, world: World, wall: MovedClock) -> None:
        self.world, self.wall = world, wall

    def publish(self, schedule: dict[str, Any], **more: Any) -> str:
        return self.world.publish([rule("a", "= input")], triggers=[{"schedule": schedule}], **more)

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.world.flow.triggers.clockwork.tick()
        pending = db.rows("SELECT tenant_id, id FROM firing WHERE status = 'pending'")
        for tenant_id, firing_id in pending:
            self.world.flow.triggers.firings.perform(tenant_id, firing_id)

    def go(self, minutes: float) -> None:
        self.wall.now += int(minutes * MINUTE)
        self.look()

    def run(self, process_id: str) -> list[str]:
        """The due times that were run, in the order of their executions."""
        rows = self.world.scope.select(Firing).where((Firing.process_id == process_id) & (Firing.status == "started"))
        for row in rows:
            assert self.world.scope.get(Execution, id=row.execution_id).process_id == process_id
        return [clock.rfc3339(row.due_at)[11:16] for row in rows.order_by(Firing.id)]

    def skipped(self, process_id: str) -> list[str]:
        rows = self.world.scope.select(Firing).where((Firing.process_id == process_id) & (Firing.status == "skipped"))
        return [clock.rfc3339(row.due_at)[11:16] for row in rows.order_by(Firing.id)]


@pytest.fixture
def watch(idle_world: World, wall: MovedClock) -> Iterator[Watch]:
    yield Watch(idle_world, wall)
    db.write(lambda: [db.execute("DELETE FROM firing"), db.execute("DELETE FROM trigger_state")])


def test_a_due_time_is_run_once_however_many_look(watch: Watch) -> None:
    process_id = watch.publish({"cron": "*/10 * * * *", "input": {"at": "= trigger.due_at", "late": "= trigger.missed"}})
    watch.look(3)
    assert watch.run(process_id) == [], "nothing is run before its time"
    watch.go(9.6)
    watch.look(3)
    assert watch.run(process_id) == ["08:10"]
    [row] = watch.world.scope.select(Execution).where(Execution.process_id == process_id)
    assert row.input == {"at": "2026-11-21T08:10:00.000Z", "late": False}
    assert row.actor == f"trigger:{process_id}/schedule"
    watch.go(10)
    assert watch.run(process_id) == ["08:10", "08:20"]


@pytest.mark.parametrize(
    ("on_missed", "run", "skipped"),
    [("skip", [], ["08:40"]), ("run_once", ["08:40"], ["08:30"]), ("run_all", ["08:20", "08:30", "08:40"], ["08:10"])],
)
def test_missed_times_are_run_as_the_definition_says(watch: Watch, on_missed: str, run: list[str], skipped: list[str]) -> None:
    schedule: dict[str, Any] = {"cron": "*/10 * * * *", "on_missed": on_missed}
    process_id = watch.publish(schedule | ({"max_missed": 3} if on_missed == "run_all" else {}))
    watch.go(45)
    assert (watch.run(process_id), watch.skipped(process_id)) == (run, skipped)
    watch.go(5)
    assert watch.run(process_id) == [*run, "08:50"], "what comes on time is run"


def test_of_missed_times_and_one_on_time_run_once_runs_the_one(watch: Watch) -> None:
    process_id = watch.publish({"cron": "*/10 * * * *"})
    watch.go(40)
    assert watch.run(process_id) == ["08:40"]


@pytest.mark.parametrize("on_missed", ["skip", "run_once", "run_all"])
def test_a_clock_that_jumps_runs_nothing_early_and_nothing_twice(watch: Watch, on_missed: str) -> None:
    process_id = watch.publish({"cron": "*/10 * * * *", "on_missed": on_missed})
    watch.go(10)
    watch.go(-120)
    watch.look(2)
    assert watch.run(process_id) == ["08:10"]
    watch.go(110)
    assert watch.run(process_id) == ["08:10"], "the clock shows 08:00 a second time"
    watch.go(120)
    watch.go(-120)
    for _ in range(14):
        watch.go(10)
    result = watch.run(process_id)
    assert len(result) == len(set(result))
    assert result[-2:] == ["10:10", "10:20"], "after the jump it goes on from where the clock is again"


def test_due_times_that_pass_after_a_clock_was_set_back_are_not_announced(watch: Watch) -> None:
    """The clock passes them a second time, so the view says when the schedule resumes."""

    def announced() -> tuple[list[str], str | None]:
        (view,) = list_triggers(watch.world.scope, process_id)
        again = None if view.resumes_at is None else clock.rfc3339(view.resumes_at)[11:16]
        return [clock.rfc3339(due)[11:16] for due in view.due], again

    process_id = watch.publish({"cron": "*/10 * * * *"})
    watch.go(10)
    assert announced() == (["08:20", "08:30", "08:40"], None)
    watch.go(-120)
    assert announced() == (["08:20", "08:30", "08:40"], "08:20")
    watch.go(120)
    watch.world.flow.pause_process(watch.world.scope, process_id)
    watch.go(20)
    assert announced() == (["08:40", "08:50", "09:00"], None)
    watch.world.flow.resume_process(watch.world.scope, process_id)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_was_years_ahead_does_not_end_schedules(watch: Watch, restarted: bool) -> None:
    """The next tick corrects it, or the first one of a process that starts afterwards."""
    often, weekly = watch.publish({"cron": "*/10 * * * *"}), watch.publish({"cron": "0 6 * * 1"})
    monday = watch.world.scope.get(TriggerState, process_id=weekly, trigger_id="schedule").next_due
    watch.go(10)
    years = 5 * 365 * 24 * 60
    watch.go(years)
    ahead = len(watch.run(often))
    if restarted:
        watch.world.flow.triggers.clockwork._last_tick = 0
    watch.go(-years)
    watch.go(10)
    watch.go(10)
    assert watch.run(often)[ahead:] == ["08:20", "08:30"]
    assert watch.world.scope.get(TriggerState, process_id=weekly, trigger_id="schedule").next_due == monday


def test_a_poll_that_was_put_off_by_years_is_asked_again(watch: Watch) -> None:
    process_id = watch.publish({"cron": "*/10 * * * *"})
    settings = db.dump_json({"use": "mail", "trigger": "new", "query": {}, "every_ms": 60_000})
    sql = "UPDATE trigger_state SET kind = 'integration', settings = ?, next_due = ? WHERE process_id = ?"
    for days, is_polled in ((1, False), (400, True)):
        postponed = watch.wall.now + days * 24 * HOUR
        db.write(partial(db.execute, sql, (settings, postponed, process_id)))
        watch.world.flow.triggers.clockwork.restore_due_times(watch.wall.now)
        due = watch.world.scope.get(TriggerState, process_id=process_id, trigger_id="schedule").next_due
        assert due == (watch.wall.now + MINUTE if is_polled else postponed)


def test_a_paused_process_does_not_fire_and_its_policy_decides_afterwards(watch: Watch) -> None:
    process_id = watch.publish({"cron": "*/10 * * * *", "on_missed": "run_all"})
    watch.world.flow.pause_process(watch.world.scope, process_id)
    watch.go(25)
    assert watch.run(process_id) == []
    [view] = list_triggers(watch.world.scope, process_id)
    assert view.is_paused
    watch.world.flow.resume_process(watch.world.scope, process_id)
    watch.look()
    assert watch.run(process_id) == ["08:10", "08:20"]


def test_republishing_keeps_unchanged_schedules_and_restarts_changed_ones(watch: Watch) -> None:
    process_id = watch.publish({"cron": "*/10 * * * *"})
    watch.go(10)
    scope = watch.world.scope

    def publish(schedule: dict[str, Any], name: str) -> TriggerState:
        watch.world.republish(process_id, [rule("a", "= input")], name=name, triggers=[{"schedule": schedule}])
        return scope.get(TriggerState, process_id=process_id, trigger_id="schedule")

    stored = publish({"cron": "*/10 * * * *"}, "renamed")
    assert stored.last_execution_id is not None
    anew = publish({"cron": "0 * * * *"}, "renamed")
    assert (anew.last_execution_id, clock.rfc3339(anew.next_due)[11:16]) == (None, "09:00")
    watch.world.republish(process_id, [rule("a", "= input")])
    assert scope.find(TriggerState, process_id=process_id) is None
    watch.go(120)
    assert watch.run(process_id) == ["08:10"], "a version without triggers has none"


def test_an_event_that_does_not_fit_is_a_failure_that_can_be_tried_again(watch: Watch) -> None:
    from appliance.core.pages import PageRequest
    from appliance.monitor import failures
    from appliance.processes.executions.failure_retries import FailureRetries

    schema = {"type": "object", "required": ["day"]}
    process_id = watch.publish({"cron": "*/10 * * * *"}, input=schema)
    watch.go(10)
    assert watch.run(process_id) == []
    scope = watch.world.scope
    [view] = list_triggers(scope, process_id)
    assert (view.row.last_error["code"], view.row.failed_in_row) == ("validation_failed", 1)
    [group] = failures.list_failures(scope, PageRequest(), process_id=process_id).items
    assert (group.step, group.code) == ("trigger schedule", "validation_failed")
    watch.world.republish(process_id, [rule("a", "= input")], triggers=[{"schedule": {"cron": "*/10 * * * *"}}])
    result = failures.retry_all(scope, group.id, FailureRetries(watch.world.flow))
    assert (len(result.retried), result.refused) == (1, {})
    assert watch.run(process_id) == ["08:10"]
    assert failures.get_failure(scope, group.id).state == "resolved"


def test_the_event_of_a_worker_that_died_is_taken_up(watch: Watch) -> None:
    process_id = watch.publish({"cron": "*/10 * * * *"})
    watch.wall.now += 10 * MINUTE
    clockwork = watch.world.flow.triggers.clockwork
    clockwork.tick()
    queue = watch.world.flow.queue
    db.write(lambda: db.execute("DELETE FROM task"))  # it was handed out, and its worker died
    clockwork.tick()
    assert queue.list_waiting("trigger") == set(), "it may still be under way"
    watch.wall.now += 6_000
    clockwork.tick()
    clockwork.tick()
    assert len(queue.list_waiting("trigger")) == 1
    watch.look()
    assert watch.run(process_id) == ["08:10"]
