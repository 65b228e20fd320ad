"""What is summed up over wider times says the same as the counters it was made of."""

import random
from dataclasses import replace
from functools import partial

import pytest

from appliance.core import clock, db
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
        return dict(summary.by_outcome), dict(summary.slots), round(summary.sum_ms)

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
