"""Leases on both databases: claims, fences, late holders, dead and silent owners."""

import threading
from collections.abc import Iterator
from typing import Any

import peewee
import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.db import JsonField, PlatformModel
from appliance.core.leases import Lease, LeaseLost, LeaseTable, OrphanFinder
from tests.processes.world import wait_until
from tests.store.opening import migrated


class WorkRow(PlatformModel):
    place = peewee.TextField()
    number = peewee.IntegerField()
    status = peewee.TextField()
    owner = peewee.TextField(null=True)
    lease_until = peewee.BigIntegerField()
    fence = peewee.IntegerField()
    claims = peewee.IntegerField()
    result = JsonField(null=True)

    class Meta:
        table_name = "leased_work"
        primary_key = peewee.CompositeKey("place", "number")


ONE, TWO = ("here", 1), ("here", 2)
KEY, RUNNING = ("place", "number"), "status = 'running'"
FENCED = LeaseTable(
    WorkRow, KEY, lease="lease_until", owner="owner", fence="fence", running=RUNNING,
    on_claim="status = 'running', claims = claims + 1", on_reclaim="status = 'queued'",
)  # fmt: skip
OWNED = LeaseTable(WorkRow, KEY, lease="lease_until", owner="owner")
DUE = LeaseTable(WorkRow, KEY, lease="lease_until", running="status = 'queued'")
VERSIONED = LeaseTable(WorkRow, KEY, lease="lease_until", owner="owner", fence="fence", is_versioned=True)
LATE = LeaseTable(
    WorkRow, KEY, lease="lease_until", owner="owner", fence="fence", running=RUNNING, on_claim="status = 'running'",
    on_reclaim="status = 'unknown'", settles_late=True,
)  # fmt: skip


@pytest.fixture(autouse=True)
def work(store_url: str) -> Iterator[None]:
    """Two queued rows that nobody owns."""
    columns = "place TEXT, number INTEGER, status TEXT, owner TEXT, lease_until BIGINT, fence INTEGER, claims INTEGER, result TEXT"
    with migrated(store_url):
        db.write(lambda: db.execute(f"CREATE TABLE leased_work ({columns}, PRIMARY KEY (place, number))"))
        for key in (ONE, TWO):
            write("INSERT INTO leased_work VALUES (?, ?, 'queued', NULL, 0, 0, 0, NULL)", *key)
        yield
        db.write(lambda: db.execute("DROP TABLE leased_work"))


def write(sql: str, *params: Any) -> None:
    db.write(lambda: db.execute(sql, params))


def claim(table: LeaseTable, guard: Any, *, owner: str | None = "wrk_1", until: int | None = 100, **more: Any) -> bool:
    return db.write(lambda: table.claim(ONE, guard, owner=owner, until=until, **more))


def settle(table: LeaseTable, guard: Any, **changes: Any) -> None:
    db.write(lambda: table.settle(ONE, guard, changes))


def read(*names: str) -> tuple[Any, ...]:
    (row,) = db.rows(f"SELECT {', '.join(names)} FROM leased_work WHERE place = 'here' AND number = 1")  # noqa: S608
    return row


def test_a_row_is_claimed_once_per_fence_and_its_neighbour_stays() -> None:
    assert claim(FENCED, 0, changes={"result": {"began": True}})
    assert not claim(FENCED, 0, owner="wrk_2")
    assert read("status", "owner", "lease_until", "fence", "claims", "result") == (
        "running", "wrk_1", 100, 1, 1, '{"began":true}',
    )  # fmt: skip
    assert db.rows("SELECT status, owner, fence FROM leased_work WHERE number = 2") == [("queued", None, 0)]
    assert FENCED.list_running() == [Lease(ONE, 1, "wrk_1", 100)]


def test_a_holder_renews_changes_and_settles_its_row() -> None:
    claim(FENCED, 0)
    db.write(lambda: FENCED.renew(ONE, 1, 200))
    assert db.write(lambda: FENCED.renew(ONE, 1, 300, {"result": 7}, returning="claims")) == 1
    db.write(lambda: FENCED.update(ONE, 1, {"claims": 0}))
    assert read("status", "owner", "lease_until", "claims", "result") == ("running", "wrk_1", 300, 0, "7")
    settle(FENCED, 1, status="done", result={"sum": 3})
    assert read("status", "owner", "fence", "result") == ("done", None, 1, '{"sum":3}')
    with pytest.raises(LeaseLost):
        settle(FENCED, 1, status="done again")


def test_after_another_claim_no_write_of_the_earlier_holder_has_an_effect() -> None:
    claim(FENCED, 0)
    assert claim(FENCED, 1, owner="wrk_2", until=500)
    before = read("*")
    for verb in (
        lambda: FENCED.check(ONE, 1), lambda: FENCED.renew(ONE, 1, 9_000), lambda: FENCED.update(ONE, 1, {"result": "late"}),
        lambda: FENCED.renew(ONE, 1, 9_000, returning="claims"), lambda: FENCED.settle(ONE, 1, {"status": "late"}),
    ):  # fmt: skip
        with pytest.raises(LeaseLost, match="leased_work"):
            db.write(verb)
    db.write(lambda: FENCED.release(ONE, 1))
    assert read("*") == before
    assert FENCED.is_current(ONE, 2)


def test_a_lost_lease_undoes_the_rest_of_its_write() -> None:
    claim(FENCED, 0)
    claim(FENCED, 1, owner="wrk_2")

    def late() -> None:
        db.execute("UPDATE leased_work SET result = 'late' WHERE number = 2")
        FENCED.settle(ONE, 1, {"status": "done"})

    with pytest.raises(LeaseLost):
        db.write(late)
    assert db.rows("SELECT result FROM leased_work WHERE number = 2") == [(None,)]


def test_a_released_row_can_be_claimed_at_once() -> None:
    claim(FENCED, 0)
    db.write(lambda: FENCED.release(ONE, 1, at=40))
    assert read("owner", "lease_until", "fence") == (None, 40, 1)
    assert claim(FENCED, 1)


def test_a_reclaimed_row_refuses_its_former_holder() -> None:
    claim(FENCED, 0)
    (lost,) = FENCED.list_running()
    assert db.write(lambda: FENCED.reclaim(lost, {"claims": 9}))
    assert read("status", "owner", "claims") == ("queued", None, 9)
    assert not db.write(lambda: FENCED.reclaim(lost))
    with pytest.raises(LeaseLost):
        settle(FENCED, 1, status="done")


def test_a_lease_that_was_renewed_meanwhile_is_not_reclaimed() -> None:
    claim(FENCED, 0)
    (silent,) = FENCED.list_running()
    db.write(lambda: FENCED.renew(ONE, 1, 900))
    assert not db.write(lambda: FENCED.reclaim(silent))
    assert FENCED.is_current(ONE, 1)


def test_a_row_that_settles_late_does_so_until_it_is_claimed_again() -> None:
    claim(LATE, 0)
    db.write(lambda: LATE.reclaim(LATE.list_running()[0]))
    assert read("status") == ("unknown",)
    settle(LATE, 1, status="done")
    assert read("status") == ("done",)
    assert claim(LATE, 1)
    with pytest.raises(LeaseLost):
        settle(LATE, 1, status="late")


def test_without_a_fence_the_owner_is_the_guard() -> None:
    assert claim(OWNED, None)
    assert not claim(OWNED, None, owner="wrk_2")
    assert claim(OWNED, "wrk_1", owner="wrk_2")
    with pytest.raises(LeaseLost):
        settle(OWNED, "wrk_1", status="late")
    settle(OWNED, "wrk_2", status="done")
    assert read("status", "owner") == ("done", None)


def test_without_an_owner_the_lease_is_the_guard() -> None:
    assert claim(DUE, 0, owner=None, until=100)
    assert not claim(DUE, 0, owner=None, until=101)
    assert claim(DUE, 100, owner=None, until=200)
    with pytest.raises(LeaseLost):
        settle(DUE, 100, lease_until=7)
    settle(DUE, 200, lease_until=7)
    assert read("lease_until") == (7,)


def test_a_versioned_row_is_claimed_once_its_lease_has_run_out_and_the_first_result_counts() -> None:
    assert claim(VERSIONED, 0, owner="a", now=50)
    assert not claim(VERSIONED, 0, owner="b", now=99)
    assert claim(VERSIONED, 0, owner="b", until=300, now=100)
    db.write(lambda: VERSIONED.release(ONE, 0, owner="a"))
    assert read("lease_until") == (300,)
    settle(VERSIONED, 0, result="of a")
    assert read("fence", "result") == (1, '"of a"')
    with pytest.raises(LeaseLost):
        settle(VERSIONED, 0, result="of b")


def test_a_lease_without_a_new_time_keeps_the_one_it_has() -> None:
    write("UPDATE leased_work SET lease_until = 77")
    assert claim(FENCED, 0, until=None)
    assert read("lease_until", "fence") == (77, 1)


def test_due_rows_come_earliest_first_up_to_a_number() -> None:
    write("UPDATE leased_work SET lease_until = 30 WHERE number = 1")
    write("UPDATE leased_work SET lease_until = 20 WHERE number = 2")
    assert DUE.list_due("number, lease_until", 30, 5) == [(2, 20), (1, 30)]
    assert DUE.list_due("number", 30, 1) == [(2,)]
    assert DUE.list_due("number", 29, 5) == [(2,)]
    assert DUE.list_due("number", 30, 5, "claims = ? AND number <> ?", (0, 2)) == [(1,)]
    claim(FENCED, 0, until=10)
    assert DUE.list_due("number", 30, 5) == [(2,)], "one in progress is not due"


def test_a_change_of_the_clock_moves_the_leases_in_progress() -> None:
    claim(FENCED, 0)
    db.write(lambda: FENCED.shift(-30))
    assert db.rows("SELECT number, lease_until FROM leased_work ORDER BY number") == [(1, 70), (2, 0)]
    db.write(lambda: OWNED.shift(5))
    assert db.rows("SELECT number, lease_until FROM leased_work ORDER BY number") == [(1, 75), (2, 5)]


def finder(*alive: str, active: bool = False, silent_seconds: float = 0.0) -> OrphanFinder:
    return OrphanFinder(FENCED, "wrk_me", alive.__contains__, lambda key: active, silent_seconds)


@pytest.mark.parametrize(
    ("owner", "now", "alive", "is_active", "expected"),
    [
        ("wrk_dead", 50, (), False, True), (None, 50, (), False, True), ("wrk_other", 50, ("wrk_other",), False, False),
        ("wrk_me", 100, ("wrk_me",), False, False), ("wrk_me", 101, ("wrk_me",), False, True),
        ("wrk_me", 101, ("wrk_me",), True, False),
    ],
)  # fmt: skip
def test_a_row_is_abandoned_when_nobody_works_on_it(
    owner: str | None, now: int, alive: tuple[str, ...], is_active: bool, expected: bool
) -> None:
    claim(FENCED, 0, owner=owner)
    watch = finder(*alive, active=is_active)
    (lease,) = FENCED.list_running()
    assert watch.is_abandoned(lease, now) is expected
    assert watch.find(now, 5) == [lease] * expected


def test_a_living_owner_is_silent_after_a_while_on_the_monotonic_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    claim(FENCED, 0, owner="wrk_other")
    seconds = [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: seconds[0])
    watch = finder("wrk_other", silent_seconds=20)
    far = 10**9  # the wall clock jumped
    assert watch.find(far, 5) == []
    seconds[0] = 19.0
    assert watch.find(far, 5) == []
    db.write(lambda: FENCED.renew(ONE, 1, 150))
    seconds[0] = 21.0
    assert watch.find(far, 5) == [], "it has renewed its lease since"
    seconds[0] = 41.0
    assert watch.find(150, 5) == [], "its lease has not run out"
    assert watch.find(far, 5) == [], "the time is measured anew"
    seconds[0] = 61.0
    assert watch.find(far, 5) == FENCED.list_running()


def test_presence_is_read_once_per_owner_and_the_batch_is_limited() -> None:
    claim(FENCED, 0, owner="wrk_dead")
    db.write(lambda: FENCED.claim(TWO, 0, owner="wrk_dead", until=90))
    reads: list[str] = []

    def is_alive(owner: str) -> bool:
        reads.append(owner)
        return False

    watch = OrphanFinder(FENCED, "wrk_me", is_alive, lambda key: False)
    assert [lease.key for lease in watch.find(0, 5)] == [TWO, ONE]
    assert reads == ["wrk_dead"]
    assert len(watch.find(0, 1)) == 1


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_checked_row_is_not_claimed_before_the_commit_of_its_holder() -> None:
    """Otherwise the next holder would read what this one has not written yet, and do it again."""
    assert claim(FENCED, 0)
    inside, go_on = threading.Event(), threading.Event()

    def commit() -> None:
        FENCED.check(ONE, 1)
        inside.set()
        assert go_on.wait(20)
        db.execute("UPDATE leased_work SET result = '1' WHERE place = 'here' AND number = 1")

    def claim_next() -> tuple[bool, Any]:
        is_claimed = FENCED.claim(ONE, 1, owner="wrk_2", until=200)
        return is_claimed, read("result")[0]

    holder = db.submit(commit, is_shared=True)
    assert inside.wait(20)
    following = db.submit(claim_next, is_shared=True)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    wait_until(lambda: following.done() or db.rows(waiting) == [(1,)])
    go_on.set()
    holder.result(20)
    assert following.result(20) == (True, "1")
