"""Periodic jobs: run early, stopped, waited for no longer than the limit, and not delayed by each other."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from appliance.core import clock, scheduling
from appliance.core.errors import StorageFull
from appliance.core.scheduling import LONG, PROMPT, QUICK, Lane, PeriodicJob, Rest, Scheduler

SINGLE = Lane("single", 1)


def thread_count(*names: str) -> int:
    return sum(thread.name in names for thread in threading.enumerate())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)  # between two looks at another thread, up to the deadline


class BlockingJob:
    """A job whose calls wait until they may end."""

    def __init__(self, scheduler: Scheduler, name: str, lane: Lane = QUICK) -> None:
        self.started, self.go_on = threading.Semaphore(0), threading.Event()
        self.calls = self.most_at_once = self._at_once = 0
        self.job = PeriodicJob(name, 3600, self._work, lane)
        self.job.start(scheduler)

    def _work(self) -> None:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self.calls += 1
        self.started.release()
        self.go_on.wait(30)
        self._at_once -= 1


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    yield Scheduler()
    wait_until(lambda: not thread_count("scheduler"))


def test_a_stop_waits_for_the_call_in_progress_and_begins_no_other(scheduler: Scheduler) -> None:
    blocked = BlockingJob(scheduler, "slow work")
    blocked.job.hasten()
    assert blocked.started.acquire(timeout=30)
    blocked.job.signal()
    blocked.job.hasten()
    blocked.go_on.set()
    assert blocked.job.stop(30)
    assert blocked.calls == 1


def test_a_stop_gives_up_waiting_after_its_time(scheduler: Scheduler, caplog: pytest.LogCaptureFixture) -> None:
    blocked = BlockingJob(scheduler, "endless work")
    blocked.job.hasten()
    assert blocked.started.acquire(timeout=30)
    assert not blocked.job.stop(0.01)
    assert "endless work is still running" in caplog.text
    blocked.go_on.set()
    assert blocked.job.stop(30)


def test_a_request_during_a_call_causes_another_afterwards_and_never_a_second_at_once(scheduler: Scheduler) -> None:
    blocked = BlockingJob(scheduler, "requested", PROMPT)
    blocked.job.hasten()
    assert blocked.started.acquire(timeout=30)
    for _ in range(3):
        blocked.job.hasten()
    assert not blocked.started.acquire(timeout=0.05)
    blocked.go_on.set()
    assert blocked.started.acquire(timeout=30)
    assert blocked.job.stop(30)
    assert (blocked.calls, blocked.most_at_once) == (2, 1)


def test_a_job_runs_when_requested_though_its_period_is_longer_and_at_once_when_requested_before_its_start(
    scheduler: Scheduler,
) -> None:
    later, early = threading.Event(), threading.Event()
    jobs = [PeriodicJob("later", 3600, later.set), PeriodicJob("early", 3600, early.set)]
    jobs[1].hasten()
    for job in jobs:
        job.start(scheduler)
    assert early.wait(30)
    assert not later.is_set()
    jobs[0].run_within(0.01)
    jobs[0].run_within(3600)
    assert later.wait(30)
    assert all(job.stop(30) for job in jobs)


def test_a_busy_lane_delays_its_own_jobs_only(scheduler: Scheduler) -> None:
    blocking, waiting = BlockingJob(scheduler, "blocking", SINGLE), BlockingJob(scheduler, "waiting", SINGLE)
    blocking.job.hasten()
    assert blocking.started.acquire(timeout=30)
    waiting.job.hasten()
    for number in range(5):  # each of these blocks its thread too, and none waits for another
        prompt = BlockingJob(scheduler, f"prompt {number}", PROMPT)
        prompt.job.hasten()
        assert prompt.started.acquire(timeout=30)
        prompt.go_on.set()
        assert prompt.job.stop(30)
    assert not waiting.calls
    blocking.go_on.set()
    assert waiting.started.acquire(timeout=30)
    waiting.go_on.set()
    assert blocking.job.stop(30)
    assert waiting.job.stop(30)


def test_a_stopped_job_that_waits_for_a_thread_is_not_run(scheduler: Scheduler) -> None:
    blocking, waiting = BlockingJob(scheduler, "blocking", SINGLE), BlockingJob(scheduler, "waiting", SINGLE)
    blocking.job.hasten()
    assert blocking.started.acquire(timeout=30)
    waiting.job.hasten()
    assert waiting.job.stop(30)
    blocking.go_on.set()
    assert blocking.job.stop(30)
    third = BlockingJob(scheduler, "third", SINGLE)
    third.job.hasten()
    assert third.started.acquire(timeout=30)
    third.go_on.set()
    assert third.job.stop(30)
    assert not waiting.calls


def test_threads_exist_only_while_there_is_work(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "IDLE_SECONDS", 0.05)
    lane = Lane("own lane", None)
    assert thread_count("scheduler", "own lane") == 0
    several = [BlockingJob(scheduler, str(number), lane) for number in range(4)]
    for blocked in several:
        blocked.job.hasten()
    assert all(blocked.started.acquire(timeout=30) for blocked in several)
    assert (thread_count("scheduler"), thread_count("own lane")) == (1, 4)
    for blocked in several:
        blocked.go_on.set()
    wait_until(lambda: not thread_count("own lane"))
    assert thread_count("scheduler") == 1
    assert all(blocked.job.stop(30) for blocked in several)
    wait_until(lambda: not thread_count("scheduler"))


def test_work_that_fails_is_named_and_a_full_disk_is_one_line(scheduler: Scheduler, caplog: pytest.LogCaptureFixture) -> None:
    errors, done = [StorageFull("the disk of the appliance is full"), RuntimeError("odd")], threading.Event()

    def work() -> None:
        if not errors:
            done.set()
            return
        raise errors.pop(0)

    own = PeriodicJob("slow-work", 0.001, work, LONG)
    own.start(scheduler)
    assert done.wait(30)
    assert own.stop(30)
    assert [bool(record.exc_info) for record in caplog.records] == [False, True]
    assert [record.getMessage().split(";")[0] for record in caplog.records] == ["slow-work failed"] * 2
    assert "is full" in caplog.records[0].getMessage()


def test_a_job_for_which_no_thread_can_be_started_runs_later(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scheduling, "RETRY_SECONDS", 0.01)
    refusals, start = [RuntimeError("can't start new thread")], threading.Thread.start

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name == "full" and refusals:
            raise refusals.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    done = threading.Event()
    own = PeriodicJob("patient", 3600, done.set, Lane("full", 1))
    own.start(scheduler)
    own.hasten()
    assert done.wait(30)
    assert own.stop(30)
    assert "no thread could be started for patient" in caplog.text


class QuietJob:
    """A frequent job that counts its calls, and whose next row is due at `due` (epoch ms)."""

    def __init__(self, scheduler: Scheduler, due: int | None) -> None:
        self.due, self.calls = due, 0
        self.job = PeriodicJob("quiet", 0.001, self._work, rest=Rest(next_due=lambda: self.due))
        self.job.start(scheduler)

    def _work(self) -> None:
        self.calls += 1


class Ticks:
    """A job without a rest, by which a test sees that time has passed for the others."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._ticked = threading.Semaphore(0)
        self.job = PeriodicJob("ticks", 0.001, self._ticked.release, PROMPT)
        self.job.start(scheduler)

    def wait(self, count: int) -> None:
        for _ in range(count):
            assert self._ticked.acquire(timeout=30)


def test_a_job_rests_until_the_database_changes_or_it_is_requested() -> None:
    state = [0]
    scheduler = Scheduler(lambda: state[0])
    quiet, ticks = QuietJob(scheduler, None), Ticks(scheduler)
    wait_until(lambda: quiet.calls == 2)  # the second has seen the state of the first, so it can rest
    ticks.wait(50)
    assert quiet.calls == 2
    state[0] += 1
    wait_until(lambda: quiet.calls == 4)
    ticks.wait(50)
    assert quiet.calls == 4
    quiet.job.hasten()
    wait_until(lambda: quiet.calls == 5)
    ticks.wait(50)
    assert quiet.calls == 5
    assert quiet.job.stop(30)
    assert ticks.job.stop(30)


def test_a_rest_ends_when_a_row_is_due_on_either_clock_and_is_never_long(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(lambda: "unchanged")
    later = clock.now_ms() + 3_600_000
    quiet, ticks = QuietJob(scheduler, later), Ticks(scheduler)
    wait_until(lambda: quiet.calls == 2)
    ticks.wait(50)
    assert quiet.calls == 2
    monkeypatch.setattr(clock, "now_ms", lambda: later + 1)  # the wall clock was set
    wait_until(lambda: quiet.calls > 10)  # and as long as a row is due, no call is left out
    monkeypatch.undo()
    monkeypatch.setattr(scheduling, "MOST_REST_SECONDS", 0.01)
    ticks.wait(20)
    calls = quiet.calls
    wait_until(lambda: quiet.calls > calls + 3)
    assert quiet.job.stop(30)
    assert ticks.job.stop(30)


def test_a_job_does_not_rest_after_a_failure_or_while_the_state_cannot_be_read() -> None:
    failing = [True]

    def read_state() -> str:
        if failing[0]:
            raise OSError("the database server does not respond")
        return "same"

    scheduler = Scheduler(read_state)
    quiet = QuietJob(scheduler, None)
    wait_until(lambda: quiet.calls > 20)
    failing[0] = False
    ticks = Ticks(scheduler)

    def is_resting() -> bool:
        calls = quiet.calls
        ticks.wait(50)
        return quiet.calls == calls

    wait_until(is_resting)
    assert quiet.job.stop(30)
    assert ticks.job.stop(30)


def test_a_job_without_work_is_left_out_unless_it_is_requested(scheduler: Scheduler) -> None:
    calls: list[int] = []
    has_work = [False]
    job, ticks = PeriodicJob("flush", 0.001, lambda: calls.append(1), rest=Rest(has_work=lambda: has_work[0])), Ticks(scheduler)
    job.start(scheduler)
    ticks.wait(50)
    assert not calls
    job.hasten()
    wait_until(lambda: len(calls) == 1)
    has_work[0] = True
    wait_until(lambda: len(calls) > 3)
    assert job.stop(30)
    assert ticks.job.stop(30)
