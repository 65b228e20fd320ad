"""Executions are accepted, claimed, run and ended once, wherever another process comes in the middle."""

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.core.database import db
from appliance.core.huey_adapter import make_huey
from appliance.core.leases import LeaseTable
from appliance.processes.engine.store import LEASES, Claim
from appliance.processes.executions.service import EventAnswer
from appliance.processes.executions.starting import StartRequest
from appliance.sandbox import Pool, Settings
from tests.processes.world import World, code, make_world, open_database
from tests.store.cluster import Cluster
from tests.store.interleaving import Ends, Step, interleave

MARK = {"id": "mark", "datapool": {"collection": "marks", "create": {"values": {"what": "= input.what"}}}}
UNIQUE = iter(range(1, 100_000))


@pytest.fixture(scope="module")
def url(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    url = cluster.emptied()
    with open_database(tmp_path_factory.mktemp("executions"), url):
        yield url


@pytest.fixture(scope="module")
def world(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A flow that has not been started, so that nothing runs but what a test runs."""
    pool = Pool(Settings(processes=1, slots=4))
    pool.start()
    try:
        yield make_world(tmp_path_factory.mktemp("flow"), pool)
    finally:
        pool.stop()


@pytest.fixture(scope="module")
def marking(world: World) -> str:
    """A process with one step that writes a mark."""
    return world.publish([MARK])


def start(world: World, process: str, **request: Any) -> tuple[str, str]:
    """An execution and the mark that it will write."""
    what = f"m{next(UNIQUE)}"
    return world.start(process, {"what": what}, soon=False, **request), what


def count_marks(what: str) -> int:
    ((table,),) = db.rows("SELECT table_name FROM collection WHERE tenant_id = 'acme' AND name = 'marks'")
    return sum(what in row for row in db.rows(f'SELECT * FROM "{table}"'))  # noqa: S608


def ends_of(execution_id: str) -> list[str]:
    """The types of the events that say that an execution has ended."""
    sql = "SELECT type FROM execution_event WHERE execution_id = ? AND type IN ('succeeded', 'failed', 'cancelled') ORDER BY id"
    return [row[0] for row in db.rows(sql, (execution_id,))]


def run(world: World, claim: Claim | None) -> None:
    assert claim is not None
    world.runner.run(claim)


def test_a_queued_execution_is_claimed_once(world: World, marking: str) -> None:
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        at["id"], _ = start(world, marking)
        return (lambda: world.runner.claim("acme", at["id"]),) * 2

    def judge(ends: Ends) -> None:
        assert ends.errors == []
        [claim] = [each for each in ends.results if each is not None]
        assert db.rows("SELECT status, fence FROM execution WHERE id = ?", (at["id"],)) == [("running", claim.fence)]

    assert interleave(begin, judge) >= 6


def test_two_claims_get_two_executions(world: World, marking: str) -> None:
    waiting: list[str] = []

    def begin() -> tuple[Step, Step]:
        db.write(lambda: db.execute("UPDATE execution SET status = 'cancelled', finished_at = 1 WHERE finished_at IS NULL"))
        waiting[:] = [start(world, marking)[0] for _ in range(2)]
        return (world.flow.intake.claim_next,) * 2

    def judge(ends: Ends) -> None:
        assert ends.errors == []
        claimed = [each for each in ends.results if each is not None]
        for _ in claimed:
            world.flow.intake._places.release("acme")
        assert len({claim.execution_id for claim in claimed}) == len(claimed) >= 1
        assert {claim.execution_id for claim in claimed} <= set(waiting)

    interleave(begin, judge)


def test_a_key_starts_one_execution(world: World, marking: str) -> None:
    def begin() -> tuple[Step, Step]:
        token = f"t{next(UNIQUE)}"
        return (lambda: world.flow.start_execution(world.scope, marking, StartRequest({"what": token}, token=token)).id,) * 2

    def judge(ends: Ends) -> None:
        assert ends.errors == []
        assert ends.results[0] == ends.results[1]

    interleave(begin, judge)


def test_a_slot_is_held_once(world: World) -> None:
    """Without a limit these starts would be written side by side."""
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        at["process"] = world.publish([MARK], concurrency={"limit": 1})
        return (lambda: world.flow.start_execution(world.scope, at["process"], StartRequest({"what": "x"})),) * 2

    def judge(ends: Ends) -> None:
        assert ends.errors == []
        rows = db.rows("SELECT wait_reason FROM execution WHERE process_id = ?", (at["process"],))
        assert sorted(reason or "" for (reason,) in rows) == ["", "slot"]

    interleave(begin, judge)


def test_an_execution_is_cancelled_or_succeeds(world: World, marking: str) -> None:
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        at["id"], at["what"] = start(world, marking)
        claim = world.runner.claim("acme", at["id"])
        return lambda: run(world, claim), lambda: world.flow.cancel_execution(world.scope, at["id"]).status

    def judge(ends: Ends) -> None:
        assert ends.errors in ([], ["ExecutionFinished"])
        status = world.get(at["id"]).status
        assert ends_of(at["id"]) == [status]
        assert status in ("succeeded", "cancelled")
        if status == "succeeded":
            assert count_marks(at["what"]) == 1
        if ends.errors:
            assert status == "succeeded"

    interleave(begin, judge)


def test_what_an_execution_has_written_is_there_once_after_it_was_taken_over(
    world: World, marking: str
) -> None:
    """The first worker goes on although the second has claimed the execution: only one of them is heard."""
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        at["id"], at["what"] = start(world, marking)
        claim = world.runner.claim("acme", at["id"])
        world.lose_worker(at["id"])

        def take_over() -> None:
            second = world.runner.claim("acme", at["id"])
            if second is not None:
                world.runner.run(second)

        return lambda: run(world, claim), take_over

    def judge(ends: Ends) -> None:
        assert ends.errors == []
        assert (world.get(at["id"]).status, ends_of(at["id"])) == ("succeeded", ["succeeded"])
        assert count_marks(at["what"]) == 1

    interleave(begin, judge)


def test_without_the_fence_something_is_written_twice(
    world: World, marking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeaseTable, "is_current", lambda *_: True)
    monkeypatch.setitem(vars(LEASES), "_in_progress", "tenant_id = ? AND id = ? AND ? IS NOT NULL")
    with pytest.raises(AssertionError, match="was halted before"):
        test_what_an_execution_has_written_is_there_once_after_it_was_taken_over(world, marking)


def test_an_event_is_delivered_once(world: World) -> None:
    process = world.publish([{"id": "paid", "wait": {"event": "= input.what"}}])
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        at["id"], at["what"] = start(world, process)
        run(world, world.runner.claim("acme", at["id"]))
        [wait] = (world.get(at["id"]).waiting_for or {})["waits"]

        def deliver(number: int) -> Any:
            return world.flow.resume_execution(world.scope, at["id"], process, EventAnswer(wait["token"], {"n": number}))

        return lambda: deliver(0), lambda: deliver(1)

    def judge(ends: Ends) -> None:
        assert ends.errors == ["Conflict"]
        run(world, world.runner.claim("acme", at["id"]))
        delivered = [number for number, each in enumerate(ends.results) if not isinstance(each, Exception)]
        assert [world.get(at["id"]).output] == [{"n": number} for number in delivered]

    interleave(begin, judge)


@pytest.mark.parametrize("asks", ["step", "code"])
def test_what_an_execution_waits_for_is_recorded_once_after_it_was_taken_over(world: World, asks: str) -> None:
    """An execution that comes to wait for an event, taken over in the middle, waits for one event and goes on with it."""
    body = "return (await api.events.wait(input.what)).n"
    step = {"id": "paid", "wait": {"event": "= input.what"}} if asks == "step" else code("paid", body)
    process = world.publish([step])
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        at["id"], at["what"] = start(world, process)
        claim = world.runner.claim("acme", at["id"])
        world.lose_worker(at["id"])

        def take_over() -> None:
            second = world.runner.claim("acme", at["id"])
            if second is not None:
                world.runner.run(second)

        return lambda: run(world, claim), take_over

    def judge(ends: Ends) -> None:
        assert ends.errors == []
        row = world.get(at["id"])
        assert row.status == "waiting"
        [wait] = (row.waiting_for or {})["waits"]
        assert len(db.rows("SELECT 1 FROM pending_call WHERE execution_id = ? AND ok IS NULL", (at["id"],))) == 1
        world.flow.resume_execution(world.scope, at["id"], process, EventAnswer(wait["token"], {"n": 7}))
        run(world, world.runner.claim("acme", at["id"]))
        assert (world.get(at["id"]).status, ends_of(at["id"])) == ("succeeded", ["succeeded"])

    interleave(begin, judge)


def test_an_event_that_comes_while_an_execution_is_suspended_is_heard(world: World) -> None:
    """The code has asked for its event and is about to be stored: what answers it now is not missed."""
    process = world.publish([code("paid", "return (await api.events.wait(input.what)).n")])
    at: dict[str, str] = {}

    def begin() -> tuple[Step, Step]:
        at["id"], at["what"] = start(world, process)
        claim = world.runner.claim("acme", at["id"])

        def answer() -> bool:
            rows = db.rows("SELECT token FROM pending_call WHERE execution_id = ?", (at["id"],))
            for (token,) in rows:
                world.flow.resume_execution(world.scope, at["id"], process, EventAnswer(token, {"n": 7}))
            return bool(rows)

        return lambda: run(world, claim), answer

    def judge(ends: Ends) -> None:
        assert ends.errors == []
        if ends.results[1] and world.get(at["id"]).status == "waiting":
            claim = world.runner.claim("acme", at["id"])
            assert claim is not None, "it is answered, so it is due"
            world.runner.run(claim)
        row = world.get(at["id"])
        assert (row.status, row.output) == (("succeeded", 7) if ends.results[1] else ("waiting", None))

    interleave(begin, judge)


def test_a_message_of_the_queue_is_taken_once(world: World) -> None:
    storage = make_huey("gos").storage

    def begin() -> tuple[Step, Step]:
        db.write(lambda: [db.execute("DELETE FROM task"), storage.enqueue(b"one")])
        return (storage.dequeue,) * 2

    def judge(ends: Ends) -> None:
        assert ends.errors == []
        assert sorted(str(each) for each in ends.results) == ["None", "b'one'"]

    interleave(begin, judge)
