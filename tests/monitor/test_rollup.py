"""What is summed up over wider times says the same as the counters it was made of."""

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


def keep(scope: TenantScope, count: int, days: int) -> None:
    """Counters spread over the last `days`."""
    chance = random.Random(11)  # noqa: S311  made-up figures
    for _ in range(count):
        at = (NOW - int(chance.random() * days * DAY)) // MINUTE * MINUTE
        name, outcome = chance.choice(["intake", "ship", "tell"]), chance.choice(["succeeded", "failed"])
        values = (scope.tenant_id, "execution", at, name, outcome, chance.randrange(30), 1, float(chance.randrange(1000)))
        db.execute(
            "INSERT INTO tally (tenant_id, kind, at, name, outcome, slot, count, sum_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (tenant_id, kind, at, name, outcome, slot) DO UPDATE SET count = tally.count + 1",
            values,
        )


def said(series: Series) -> list[object]:
    def plain(summary: Summary) -> tuple[object, ...]:
        return dict(summary.by_result), dict(summary.slots), round(summary.sum_ms)

    names = {name: plain(summary) for name, summary in series.names.items()}
    return [[(at, plain(point)) for at, point in series.points], plain(series.total), names]


WINDOWS = [
    Window(NOW - 20 * MINUTE, NOW + 1), Window(NOW - DAY, NOW + 1), Window(NOW - 7 * DAY, NOW + 1), Window(NOW - 30 * DAY, NOW + 1),
    Window(NOW - 30 * DAY, NOW - 11 * DAY, 36 * HOUR), Window(NOW - 9 * DAY, NOW + 1, 2 * HOUR, name="ship"),
    Window(NOW - 5 * DAY, NOW + 1, name="nobody"),
]  # fmt: skip


def test_a_series_is_the_same_before_and_after(
    acme: TenantScope, other: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "now_ms", lambda: NOW)
    db.write(partial(keep, acme, 1500, 40))
    db.write(partial(keep, other, 50, 2))
    asked = [replace(each, bucket=each.bucket or 6 * HOUR) if each.until - each.since > 2 * DAY else each for each in WINDOWS]
    before = [said(read_series(acme, window)) for window in asked]
    totals = [said_total(acme, since) for since in (NOW - DAY, NOW - 30 * DAY)]
    spans = rollup.roll_up()
    assert spans > len(rollup.WIDTHS)
    assert rollup.roll_up() == 0
    assert [said(read_series(acme, window)) for window in asked] == before
    assert [said_total(acme, since) for since in (NOW - DAY, NOW - 30 * DAY)] == totals
    tally.compact()
    rollup.purge(NOW - 400 * DAY)
    assert [said(read_series(acme, window)) for window in asked] == before


def said_total(scope: TenantScope, since: int) -> tuple[int, int, float | None]:
    total = read_total(scope, "execution", None, since // MINUTE * MINUTE)
    return total.count, total.failures, total.percentile(0.95)


def test_the_sums_are_read_and_what_is_not_over_is_not_summed_up(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_ms", lambda: NOW)
    db.write(partial(keep, acme, 300, 3))
    rollup.roll_up()
    ((newest,),) = db.rows("SELECT MAX(until) FROM tally_mark")
    assert newest == (NOW - rollup.SETTLED_MS) // (15 * MINUTE) * (15 * MINUTE)
    whole = read_series(acme, Window(NOW - 2 * DAY, NOW + 1)).total.count
    db.write(lambda: db.execute("DELETE FROM tally WHERE at < ?", (newest,)))
    assert read_series(acme, Window(NOW - 2 * DAY, NOW + 1)).total.count == whole
    db.write(lambda: tally.add(acme, "execution", "intake:succeeded", 5))
    assert read_series(acme, Window(NOW - 2 * DAY, NOW + 1)).total.count == whole + 1
    assert analytics.read_total(acme, "execution", "intake", NOW // MINUTE * MINUTE).count >= 1


def count_at(scope: TenantScope, monkeypatch: pytest.MonkeyPatch, now: int, *, times: int = 1) -> None:
    """As an execution that ends when the clock says `now`."""
    monkeypatch.setattr(clock, "now_ms", lambda: now)
    for _ in range(times):
        db.write(lambda: tally.add(scope, "execution", "intake:succeeded", 5))


def counted(scope: TenantScope, since: int) -> tuple[int, int, int, int]:
    """What is counted from `since` on: by the points, all together, of the names, and for an alert."""
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
    assert counted(acme, NOW - DAY) == (5, 5, 5, 5)
    assert rollup.roll_up() == 0
    assert counted(acme, NOW - DAY) == (5, 5, 5, 5)
    count_at(acme, monkeypatch, NOW + HOUR)
    monkeypatch.setattr(clock, "now_ms", lambda: NOW + 2 * DAY + HOUR)
    assert counted(acme, NOW - DAY) == (7, 7, 7, 7)
    assert rollup.roll_up() == 1  # the late day, which is over
    assert counted(acme, NOW - DAY) == (7, 7, 7, 7)
    assert db.rows("SELECT at FROM tally_late") == []
    db.write(lambda: db.execute("DELETE FROM tally WHERE at < ?", (NOW // DAY * DAY + DAY,)))
    assert counted(acme, NOW - DAY) == (7, 7, 7, 7), "it was read from the counters, not from the sums"
    assert counted(other, NOW - DAY) == (2, 2, 2, 2)


def test_nothing_is_lost_when_the_clock_was_behind(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    count_at(acme, monkeypatch, NOW, times=2)
    monkeypatch.setattr(clock, "now_ms", lambda: NOW + DAY)
    rollup.roll_up()
    count_at(acme, monkeypatch, 3 * DAY)  # as after a battery that was empty
    rollup.roll_up()
    count_at(acme, monkeypatch, NOW + DAY)
    assert rollup.roll_up() == 1
    tally.compact()
    assert counted(acme, NOW - 2 * DAY) == (3, 3, 3, 3)
    assert read_total(acme, "execution", None, 0).count == 4


def test_years_in_which_nothing_happened_are_passed_at_once(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    count_at(acme, monkeypatch, 3 * DAY)
    count_at(acme, monkeypatch, NOW)
    assert rollup.roll_up() <= 3 * len(rollup.WIDTHS)
    assert read_total(acme, "execution", None, 0).count == 2


@pytest.mark.parametrize("bucket", [75 * MINUTE, 90 * MINUTE, 7 * HOUR + MINUTE])
def test_points_of_an_odd_width_lose_nothing(acme: TenantScope, monkeypatch: pytest.MonkeyPatch, bucket: int) -> None:
    monkeypatch.setattr(clock, "now_ms", lambda: NOW)
    db.write(partial(keep, acme, 400, 12))
    window = Window(NOW - 13 * DAY, NOW + 1, bucket)
    rollup.roll_up()
    tally.compact()
    rollup.purge(NOW - 400 * DAY)
    series = read_series(acme, window)
    assert (sum(point.count for _, point in series.points), series.total.count) == (400, 400)
    assert series.bucket % HOUR == 0


def test_narrow_sums_that_are_gone_are_not_read(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    count_at(acme, monkeypatch, NOW, times=3)
    monkeypatch.setattr(clock, "now_ms", lambda: NOW + 60 * DAY)  # the clock ran ahead for a while
    rollup.roll_up()
    rollup.purge(NOW - 400 * DAY)
    monkeypatch.setattr(clock, "now_ms", lambda: NOW + 3 * HOUR)
    assert read_series(acme, Window(NOW - HOUR, NOW + HOUR, 15 * MINUTE)).total.count == 3


def test_sums_are_deleted_a_few_at_a_time(acme: TenantScope, other: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_ms", lambda: NOW)
    db.write(partial(keep, acme, 1500, 40))
    db.write(partial(keep, other, 20, 40))
    rollup.roll_up()
    monkeypatch.setattr(rollup, "POINTS_PER_WRITE", 5)
    ((old,),) = db.rows("SELECT COUNT(*) FROM tally_wide WHERE at < ?", (NOW - 10 * DAY,))
    narrow = "SELECT COUNT(*) FROM tally_wide WHERE width = ? AND at < ?"
    ((gone,),) = db.rows(narrow, (rollup.WIDTHS[0], (NOW - 3 * DAY) // DAY * DAY))
    ((both,),) = db.rows(narrow, (rollup.WIDTHS[0], NOW - 10 * DAY))
    at_once, write = [], db.write

    def note(fn: Callable[[], int]) -> int:
        at_once.append(write(fn))
        return at_once[-1]

    monkeypatch.setattr(db, "write", note)
    assert rollup.purge(NOW - 10 * DAY) == old + gone - both
    assert max(at_once) <= 5 * 60  # points, each with its outcomes and slots
    assert db.rows("SELECT COUNT(*) FROM tally_wide WHERE at < ?", (NOW - 10 * DAY,)) == [(0,)]
    assert rollup.purge(NOW - 10 * DAY) == 0
