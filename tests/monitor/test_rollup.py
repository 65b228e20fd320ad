"""Rolled-up sums equal the counters they were made from."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import analytics, rollup, tally
from appliance.monitor.analytics import Series, Summary, Window, read_series, read_total
from appliance.monitor.rollup import DAY, HOUR, MINUTE

NOW = 1_790_000_000_000 // DAY * DAY + 13 * HOUR + 7 * MINUTE


def insert_tallies(scope: TenantScope, count: int, days: int) -> None:
    """Counters spread over the last `days`."""
    rng = random.Random(11)  # noqa: S311  made-up figures
    for _ in range(count):
        at = (NOW - int(rng.random() * days * DAY)) // MINUTE * MINUTE
        name, outcome = rng.choice(["intake", "ship", "tell"]), rng.choice(["succeeded", "failed"])
        values = (scope.tenant_id, "execution", at, name, outcome, rng.randrange(30), 1, float(rng.randrange(1000)))
        db.execute(
            "INSERT INTO tally (tenant_id, kind, at, name, outcome, slot, count, sum_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (tenant_id, kind, at, name, outcome, slot) DO UPDATE SET count = tally.count + 1",
            values,
        )


def to_comparable(series: Series) -> list[object]:
    def plain(summary: Summary) -> tuple[object, ...]:
        return dict(summary.by_result), dict(summary.slots), round(summary.sum_ms)

    names = {name: plain(summary) for name, summary in series.names.items()}
    return [[(at, plain(point)) for at, point in series.points], plain(series.total), names]


WINDOWS = [
    Window(NOW - 20 * MINUTE, NOW + 1), Window(NOW - DAY, NOW + 1), Window(NOW - 7 * DAY, NOW + 1), Window(NOW - 30 * DAY, NOW + 1),
    Window(NOW - 30 * DAY, NOW - 11 * DAY, 36 * HOUR), Window(NOW - 9 * DAY, NOW + 1, 2 * HOUR, name="ship"),
    Window(NOW - 5 * DAY, NOW + 1, name="nobody"),
]  # fmt: skip


def test_rolling_up_does_not_change_a_series(
    acme: TenantScope, other: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "now_ms", lambda: NOW)
    db.write(partial(insert_tallies, acme, 1500, 40))
    db.write(partial(insert_tallies, other, 50, 2))
    windows = [replace(each, bucket=each.bucket or 6 * HOUR) if each.until - each.since > 2 * DAY else each for each in WINDOWS]
    before = [to_comparable(read_series(acme, window)) for window in windows]
    counts = [count for window in windows for count in read_series(acme, window).total.by_result.values()]
    assert {type(count) for count in counts} == {int}  # decimal ones could not be answered as JSON
    totals = [totals_since(acme, since) for since in (NOW - DAY, NOW - 30 * DAY)]
    spans = rollup.roll_up()
    assert spans > len(rollup.WIDTHS)
    assert rollup.roll_up() == 0
    assert [to_comparable(read_series(acme, window)) for window in windows] == before
    assert [totals_since(acme, since) for since in (NOW - DAY, NOW - 30 * DAY)] == totals
    tally.compact()
    rollup.purge(NOW - 400 * DAY)
    assert [to_comparable(read_series(acme, window)) for window in windows] == before


def totals_since(scope: TenantScope, since: int) -> tuple[int, int, float | None]:
    total = read_total(scope, "execution", None, since // MINUTE * MINUTE)
    return total.count, total.failures, total.percentile(0.95)


def test_unfinished_periods_are_not_rolled_up(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_ms", lambda: NOW)
    db.write(partial(insert_tallies, acme, 300, 3))
    rollup.roll_up()
    ((newest,),) = db.rows("SELECT MAX(until) FROM tally_mark")
    assert newest == (NOW - rollup.SETTLED_MS) // (15 * MINUTE) * (15 * MINUTE)
    total = read_series(acme, Window(NOW - 2 * DAY, NOW + 1)).total.count
    db.write(lambda: db.execute("DELETE FROM tally WHERE at < ?", (newest,)))
    assert read_series(acme, Window(NOW - 2 * DAY, NOW + 1)).total.count == total
    db.write(lambda: tally.add(acme, "execution", "intake:succeeded", 5))
    assert read_series(acme, Window(NOW - 2 * DAY, NOW + 1)).total.count == total + 1
    assert analytics.read_total(acme, "execution", "intake", NOW // MINUTE * MINUTE).count >= 1


def count_at(scope: TenantScope, monkeypatch: pytest.MonkeyPatch, now: int, *, times: int = 1) -> None:
    """Count executions that end at `now`."""
    monkeypatch.setattr(clock, "now_ms", lambda: now)
    for _ in range(times):
        db.write(lambda: tally.add(scope, "execution", "intake:succeeded", 5))


def counts_since(scope: TenantScope, since: int) -> tuple[int, int, int, int]:
    """The counts since `since`: by points, in total, by names, and as an alert reads them."""
    now = clock.now_ms()
    series = read_series(scope, Window(since, now + 1))
    points, names = sum(point.count for _, point in series.points), sum(each.count for each in series.names.values())
    return points, series.total.count, names, read_total(scope, "execution", None, since // MINUTE * MINUTE).count


def test_nothing_is_lost_when_the_clock_ran_ahead(acme: TenantScope, other: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    for scope in (acme, other):
        count_at(scope, monkeypatch, NOW, times=2)
    count_at(acme, monkeypatch, NOW + 2 * DAY)
    rollup.roll_up()  # a month and a half too far
    count_at(acme, monkeypatch, NOW + 45 * DAY)
    rollup.roll_up()
    count_at(acme, monkeypatch, NOW + 10 * MINUTE, times=3)
    assert counts_since(acme, NOW - DAY) == (5, 5, 5, 5)
    assert rollup.roll_up() == 0
    assert counts_since(acme, NOW - DAY) == (5, 5, 5, 5)
    count_at(acme, monkeypatch, NOW + HOUR)
    monkeypatch.setattr(clock, "now_ms", lambda: NOW + 2 * DAY + HOUR)
    assert counts_since(acme, NOW - DAY) == (7, 7, 7, 7)
    assert rollup.roll_up() == 1  # the late day, which is over
    assert counts_since(acme, NOW - DAY) == (7, 7, 7, 7)
    assert db.rows("SELECT at FROM tally_late") == []
    db.write(lambda: db.execute("DELETE FROM tally WHERE at < ?", (NOW // DAY * DAY + DAY,)))
    assert counts_since(acme, NOW - DAY) == (7, 7, 7, 7), "it was read from the counters, not from the sums"
    assert counts_since(other, NOW - DAY) == (2, 2, 2, 2)


def test_nothing_is_lost_when_the_clock_was_behind(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    count_at(acme, monkeypatch, NOW, times=2)
    monkeypatch.setattr(clock, "now_ms", lambda: NOW + DAY)
    rollup.roll_up()
    count_at(acme, monkeypatch, 3 * DAY)  # as after a battery that was empty
    rollup.roll_up()
    count_at(acme, monkeypatch, NOW + DAY)
    assert rollup.roll_up() == 1
    tally.compact()
    assert counts_since(acme, NOW - 2 * DAY) == (3, 3, 3, 3)
    assert read_total(acme, "execution", None, 0).count == 4


def test_empty_years_are_skipped_at_once(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    count_at(acme, monkeypatch, 3 * DAY)
    count_at(acme, monkeypatch, NOW)
    assert rollup.roll_up() <= 3 * len(rollup.WIDTHS)
    assert read_total(acme, "execution", None, 0).count == 2


@pytest.mark.parametrize("bucket", [75 * MINUTE, 90 * MINUTE, 7 * HOUR + MINUTE])
def test_points_of_an_odd_width_lose_nothing(acme: TenantScope, monkeypatch: pytest.MonkeyPatch, bucket: int) -> None:
    monkeypatch.setattr(clock, "now_ms", lambda: NOW)
    db.write(partial(insert_tallies, acme, 400, 12))
    window = Window(NOW - 13 * DAY, NOW + 1, bucket)
    rollup.roll_up()
    tally.compact()
    rollup.purge(NOW - 400 * DAY)
    series = read_series(acme, window)
    assert (sum(point.count for _, point in series.points), series.total.count) == (400, 400)
    assert series.bucket % HOUR == 0


def test_deleted_narrow_sums_are_not_read(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    count_at(acme, monkeypatch, NOW, times=3)
    monkeypatch.setattr(clock, "now_ms", lambda: NOW + 60 * DAY)  # the clock ran ahead for a while
    rollup.roll_up()
    rollup.purge(NOW - 400 * DAY)
    monkeypatch.setattr(clock, "now_ms", lambda: NOW + 3 * HOUR)
    assert read_series(acme, Window(NOW - HOUR, NOW + HOUR, 15 * MINUTE)).total.count == 3


def test_sums_are_deleted_in_small_batches(acme: TenantScope, other: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_ms", lambda: NOW)
    db.write(partial(insert_tallies, acme, 1500, 40))
    db.write(partial(insert_tallies, other, 20, 40))
    rollup.roll_up()
    monkeypatch.setattr(rollup, "POINTS_PER_WRITE", 5)
    ((old,),) = db.rows("SELECT COUNT(*) FROM tally_wide WHERE at < ?", (NOW - 10 * DAY,))
    narrow_count = "SELECT COUNT(*) FROM tally_wide WHERE width = ? AND at < ?"
    ((deleted,),) = db.rows(narrow_count, (rollup.WIDTHS[0], (NOW - 3 * DAY) // DAY * DAY))
    ((counted_twice,),) = db.rows(narrow_count, (rollup.WIDTHS[0], NOW - 10 * DAY))
    at_once, write = [], db.write

    def note(fn: Callable[[], int]) -> int:
        at_once.append(write(fn))
        return at_once[-1]

    monkeypatch.setattr(db, "write", note)
    assert rollup.purge(NOW - 10 * DAY) == old + deleted - counted_twice
    assert max(at_once) <= 5 * 60  # points, each with its outcomes and slots
    assert db.rows("SELECT COUNT(*) FROM tally_wide WHERE at < ?", (NOW - 10 * DAY,)) == [(0,)]
    assert rollup.purge(NOW - 10 * DAY) == 0
