"""A crash at any write of a run: nothing is done twice, nothing lost, no answered turn asked again; two workers at once."""

import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from appliance.agents import runs
from appliance.agents.runs import Run
from appliance.agents.store import FINISHED
from appliance.core import clock
from appliance.core.database import db
from tests.agents.world import ALLOW, ASK, TAINTED, World, book, calls, mark, open_world, says
from tests.processes.host.test_journal import MOST_WRITES, PowerCut, When, power_cut

POINTS: Mapping[tuple[bool, When], range] = {
    (True, "before"): range(1, MOST_WRITES, 2), (False, "before"): range(2, MOST_WRITES, 2),
    (True, "after"): range(1, MOST_WRITES, 4), (False, "after"): range(3, MOST_WRITES, 8),
}  # fmt: skip
"""At which writes the process dies, on SQLite or not: just before each of them on one of the two, and just after some, which is
nearly just before the next."""
HUMAN = ("request_human_input", {"kind": "input", "title": "Which?"})


@pytest.fixture
def world(tmp_path: Path, store_url: str) -> Iterator[World]:
    with open_world(tmp_path, store_url) as opened:
        yield opened


def finish(world: World, run_id: str) -> Run:
    """Drive it to its end; people decide whatever they are asked."""
    while (run := world.drive(run_id)).status not in FINISHED:
        for approval in world.list_approvals("pending"):
            world.decide("approve" if approval.request.kind == "approval" else "answer", None if approval.about.digest else "red")
        db.write(lambda: db.execute("UPDATE agent_run SET next_run_at = 1 WHERE status = 'waiting' AND next_run_at IS NOT NULL"))
    return run


def crash_and_finish(world: World, run_id: str, number: int, when: When) -> tuple[Run, bool]:
    """The process dies at its `number`-th write and another one continues; the run, and whether there were so many writes."""
    try:
        with power_cut(number, when):
            return finish(world, run_id), False
    except PowerCut:
        world.restart()
        return finish(world, run_id), True


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_write_does_nothing_twice_and_loses_nothing(world: World, when: When) -> None:
    turns = [calls(mark("first"), book(amount=1)), calls(HUMAN, mark("second")), says("done")]
    world.make(*turns, rules=[{**ASK, "operations": ["set"]}, ALLOW, TAINTED])
    for number in POINTS[db.is_sqlite(), when]:
        world.forget()
        run, cut = crash_and_finish(world, world.start(), number, when)
        assert (run.status, run.output) == ("succeeded", "done"), (number, run.error)
        assert world.marks() == ["first", "second"], number
        assert len({key for _, key, _ in world.booked()}) == 1, number  # a repetition is the same request
        assert [each.status for each in world.list_approvals()] == ["used", "answered"], number
        assert max(Counter(world.script.turn_numbers).values()) <= 1 + cut, number
        assert sum(Counter(world.script.turn_numbers).values()) <= 3 + cut, number
        entries = world.journal(run.id)
        assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
        assert Counter(entry.kind for entry in entries if entry.kind in ("answered", "returned")) == {"answered": 3, "returned": 4}
        if not cut:
            break
    assert 15 < number < MOST_WRITES


def test_an_unrepeatable_write_happens_once_or_is_reported_as_unknown(world: World) -> None:
    world.make(calls(book("book", amount=1)), says("done"))
    ends: Counter[str] = Counter()
    for number in itertools.count(1):
        world.forget()
        run, cut = crash_and_finish(world, world.start(), number, "before")
        code = (run.error or {}).get("code", run.status)
        ends[code] += 1
        assert code in ("succeeded", "outcome_unknown"), (number, run.error)
        assert len(world.booked()) == 1 or code == "outcome_unknown", number
        if not cut:
            break
    assert ends["outcome_unknown"] >= 1
    assert ends["succeeded"] > ends["outcome_unknown"]


def test_a_cancel_is_not_lost_in_a_crash(world: World) -> None:
    world.make(calls(book(amount=1)), says("done"), rules=[ASK, ALLOW])
    run_id = world.start()
    world.drive(run_id)
    world.decide()
    with pytest.raises(PowerCut), power_cut(2, "before"):
        world.drive(run_id)
    runs.cancel_run(world.scope, "clerk", run_id)
    world.restart()
    assert (finish(world, run_id).status, world.booked()) == ("cancelled", [])


def test_only_one_of_two_workers_drives_a_run(world: World) -> None:
    world.make(calls(mark("once"), book(amount=1)), says("done"))
    _, other, _ = world.process(listens=False)
    for _ in range(5):
        run_id = world.start()
        gate = threading.Barrier(2)

        def drive(which: object, run_id: str = run_id, gate: threading.Barrier = gate) -> None:
            gate.wait(20)
            which.runner.drive("one", run_id)  # type: ignore[attr-defined]

        threads = [threading.Thread(target=drive, args=(each,)) for each in (world.runs, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert world.get(run_id).status == "succeeded"
    assert world.marks() == ["once"] * 5
    assert len(world.booked()) == 5
    world.closers.pop()()


def test_a_clock_change_takes_no_run_from_a_live_worker(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.make(calls(mark("once")), says("done"))
    _, other, _ = world.process(listens=False)
    run_id = world.start()
    now, monotonic, swept = clock.now_ms, clock.monotonic, []

    def jump(number: int) -> None:
        monkeypatch.setattr(clock, "now_ms", lambda: now() + 7_200_000 * (number + 1))
        other.runner.drive("one", run_id)
        swept.append(other.sweep())

    world.script.before = jump
    assert world.drive(run_id).status == "succeeded"
    assert (swept, world.marks()) == ([0, 0], ["once"])
    world.script.before = lambda number: None
    claimed_id = world.start()
    assert db.write(lambda: world.runs.runner._claim(world.scope, claimed_id)) is not None
    monkeypatch.setattr(clock, "now_ms", lambda: now() + 24 * 3_600_000)
    assert (other.sweep(), world.get(claimed_id).status) == (0, "running")
    monkeypatch.setattr(clock, "monotonic", lambda: monotonic() + 20)
    assert (other.sweep(), world.get(claimed_id).status) == (1, "queued"), "silent for two thirds of a lease, it is taken from it"
    world.closers.pop()()


def test_a_worker_that_lost_the_run_commits_nothing_more(world: World) -> None:
    world.make(calls(mark("no")), says("done"))
    run_id = world.start()

    def take_over(number: int) -> None:
        db.write(lambda: db.execute("UPDATE agent_run SET fence = fence + 1"))

    world.script.before = take_over
    world.drive(run_id)
    assert world.marks() == []
    assert [entry.kind for entry in world.journal(run_id)] == ["asked"]
    assert world.get(run_id).status == "running"


def test_a_run_that_keeps_killing_its_worker_fails(world: World) -> None:
    world.make(says("done"))
    run_id = world.start()
    db.write(lambda: db.execute("UPDATE agent_run SET claims = 20"))
    run = world.drive(run_id)
    assert (run.status, (run.error or {})["code"]) == ("failed", "poisoned")


def test_the_sweeper_queues_runs_without_a_worker(world: World) -> None:
    world.make(says("done"))
    run_id = world.start()
    db.write(lambda: db.execute("UPDATE agent_run SET status = 'running', owner = 'wrk_dead', fence = 5"))
    assert world.runs.sweep() == 1
    assert world.get(run_id).status == "queued"
    assert world.drive(run_id).status == "succeeded"
    assert world.runs.sweep() == 0
