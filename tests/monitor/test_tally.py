"""Counters over time: exact sums, percentiles near the truth, and the same answer after they were merged."""

import random
from collections.abc import Iterable
from functools import partial

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import InvalidRequest
from appliance.core.scope import TenantScope
from appliance.monitor import analytics, tally
from appliance.monitor.analytics import Summary, Window
from appliance.monitor.tally import DAY, HOUR, MINUTE


def last_hour(**changes: object) -> Window:
    now = clock.now_ms()
    return Window(now - HOUR, now + MINUTE, **changes)  # type: ignore[arg-type]


def test_executions_are_counted_by_outcome_and_tenant(acme: TenantScope, other: TenantScope) -> None:
    def count() -> None:
        for status in ("succeeded", "succeeded", "failed", "cancelled"):
            tally.add(acme, "execution", f"intake:{status}", 20)
        tally.add(acme, "execution", "billing:timed_out", 10)
        tally.add(acme, "step", "code:succeeded", 5)
        tally.add(other, "execution", "intake:failed", 900)

    db.write(count)
    series = analytics.read_series(acme, last_hour())
    assert series.total.by_result == {"succeeded": 2, "failed": 1, "cancelled": 1, "timed_out": 1}
    assert (series.total.count, series.total.failures, series.total.mean_ms) == (5, 2, 18.0)
    assert [(name, summary.count) for name, summary in series.names.items()] == [("intake", 4), ("billing", 1)]
    assert analytics.read_series(acme, last_hour(), most_names=1).names == {"intake": series.names["intake"]}
    assert analytics.read_series(acme, last_hour(), most_names=0).names == {}
    assert sum(point.count for _, point in series.points) == 5
    assert analytics.read_series(acme, last_hour(name="billing")).total.count == 1
    assert analytics.read_series(acme, last_hour(kind="step")).names["code"].count == 1


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_a_percentile_is_within_a_tenth_of_the_truth(share: float) -> None:
    rng = random.Random(7)  # noqa: S311  # the same numbers every time
    durations = sorted(rng.lognormvariate(4, 1.5) for _ in range(20_000))
    truth = durations[int(share * len(durations))]
    assert summary_of(durations).percentile(share) == pytest.approx(truth, rel=0.1)


def summary_of(durations: Iterable[float]) -> Summary:
    summary = Summary()
    for duration in durations:
        summary.add("succeeded", tally.slot_of(duration), (1, duration, duration, duration))
    return summary


@pytest.mark.parametrize(
    ("durations", "half", "most"),
    [
        ([457], 457, 457), ([457, 480], 457, 480), ([457, 480, 501], 480, 501), ([0, 0], 0, 0), ([3, 457, 480, 9000], 457, 9000),
        ([12.5, 1, 60_000], 12.5, 60_000),
    ],
)  # fmt: skip
def test_percentiles_of_a_few_are_exact(acme: TenantScope, durations: list[float], half: float, most: float) -> None:
    for duration in durations:
        db.write(partial(tally.add, acme, "execution", "intake:succeeded", duration))
    for summary in (analytics.read_series(acme, last_hour()).total, analytics.read_names(acme, last_hour())["intake"]):
        assert (summary.percentile(0.5), summary.percentile(0.95)) == (half, most)


def test_percentiles_stay_exact_when_counters_are_merged(acme: TenantScope) -> None:
    day = (clock.now_ms() - 200 * DAY) // DAY * DAY
    for hour, duration in enumerate((457.0, 480.0, 501.0)):
        event = tally.CountedEvents("intake", day + hour * HOUR, "succeeded", tally.slot_of(duration), 1, *[duration] * 3)
        db.write(partial(tally.add_events, acme, "execution", event))
    assert tally.compact() == 2
    total = analytics.read_total(acme, "execution", "intake", day)
    assert (total.percentile(0.3), total.percentile(0.5), total.percentile(0.95)) == (457, 480, 501)


def test_percentiles_of_similar_durations_stay_within_their_range() -> None:
    summary = summary_of([450, 460, 470, 480, 490])
    assert [summary.percentile(share) for share in (0.0, 0.5, 1.0)] == [450, 470, 490]


def test_counters_of_an_earlier_release_keep_to_their_slot() -> None:
    summary = Summary()
    summary.add("succeeded", 9, (2, 10.0, None, None))
    assert [summary.percentile(0.0), summary.percentile(1.0)] == pytest.approx([4.0, 4.757], abs=0.001)
    one = Summary()
    one.add("succeeded", 9, (1, 4.5, None, None))
    assert one.percentile(0.95) == 4.5


def test_a_duration_lies_in_its_slot() -> None:
    for duration in (0, 0.4, 1, 1.5, 7, 1000, 3_600_000, 90 * DAY):
        low, high = tally.bounds_of(tally.slot_of(duration))
        assert low <= duration + 1e-9
        assert duration <= high + 1e-9
    assert tally.percentiles([], (0.5, 0.95)) == [None, None]


def insert_tally(scope: TenantScope, at: int, count: int = 1, kind: str = "execution") -> None:
    db.write(
        lambda: db.execute(
            "INSERT INTO tally (tenant_id, kind, at, name, outcome, slot, count, sum_ms) "
            "VALUES (?, ?, ?, 'intake', 'succeeded', 9, ?, ?)",
            (scope.tenant_id, kind, at, count, count * 4.5),
        )
    )


def test_old_counters_are_merged_without_changing_their_sums(acme: TenantScope, other: TenantScope) -> None:
    now = clock.now_ms()
    hour = (now - 10 * DAY) // HOUR * HOUR
    day = (now - 200 * DAY) // DAY * DAY
    fresh = now // MINUTE * MINUTE
    for minute in range(60):
        insert_tally(acme, hour + minute * MINUTE, 2)
        insert_tally(acme, day + minute * 20 * MINUTE, 3)
        insert_tally(other, hour + minute * MINUTE)
    insert_tally(acme, fresh)
    insert_tally(acme, hour + MINUTE, 5, kind="step")
    before = analytics.read_series(acme, Window(day, now + MINUTE, DAY)).total
    assert tally.compact() == 59 + 40 + 1 + 59 + 19  # hours of one tenant, then the other's, then the day
    assert tally.compact() == 0
    after = analytics.read_series(acme, Window(day, now + MINUTE, DAY)).total
    assert (after.by_result, after.slots, after.sum_ms) == (before.by_result, before.slots, before.sum_ms)
    rows = db.rows("SELECT kind, at, count FROM tally WHERE tenant_id = 'acme' ORDER BY kind, at")
    assert rows == [("execution", day, 180), ("execution", hour, 120), ("execution", fresh, 1), ("step", hour, 5)]
    assert db.rows("SELECT at, count FROM tally WHERE tenant_id = 'other'") == [(hour, 60)]


def test_points_cover_the_window_including_empty_buckets(acme: TenantScope) -> None:
    now = clock.now_ms()
    series = analytics.read_series(acme, Window(now - DAY, now))
    assert series.bucket == 15 * MINUTE
    assert [at for at, _ in series.points] == list(range(series.since, series.until, series.bucket))
    assert series.total.count == 0
    assert series.total.mean_ms is None


def test_a_bucket_is_never_finer_than_what_is_kept(acme: TenantScope) -> None:
    now = clock.now_ms()
    assert analytics.read_series(acme, Window(now - 3 * DAY, now, 5 * MINUTE)).bucket == HOUR
    assert analytics.read_series(acme, Window(now - 100 * DAY, now, HOUR)).bucket == DAY


@pytest.mark.parametrize(("span", "bucket"), [(0, None), (-5, None), (DAY, 1), (DAY, 90_000), (DAY, MINUTE), (20_000 * DAY, None)])
def test_an_invalid_window_is_refused(acme: TenantScope, span: int, bucket: int | None) -> None:
    now = clock.now_ms()
    with pytest.raises(InvalidRequest):
        analytics.read_series(acme, Window(now - span, now, bucket))


def test_retention_deletes_old_counters(acme: TenantScope) -> None:
    insert_tally(acme, MINUTE)
    insert_tally(acme, 2 * MINUTE)
    assert tally.purge(2 * MINUTE) == 1
    assert db.rows("SELECT at FROM tally") == [(2 * MINUTE,)]
