"""Rate limits of visitors refill evenly, and their memory is bounded."""

import pytest

from appliance.core import clock
from appliance.core.errors import RateLimited
from appliance.core.networks import network_of
from appliance.sites.front.buckets import BucketLimit, Buckets

ADA, BOB = ("route", "ada"), ("route", "bob")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time; tests move it on."""
    time = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: time[0])
    return time


def test_tokens_refill_evenly(now: list[float]) -> None:
    buckets, few = Buckets(), BucketLimit(3, 60)
    assert [buckets.take(ADA, few).remaining for _ in range(3)] == [2, 1, 0]
    with pytest.raises(RateLimited) as refused:
        buckets.take(ADA, few)
    assert refused.value.headers["Retry-After"] == "20"
    assert buckets.take(BOB, few).remaining == 2
    now[0] += 19.5
    with pytest.raises(RateLimited) as refused:
        buckets.take(ADA, few)
    assert refused.value.headers["Retry-After"] == "1"
    now[0] += 0.5
    assert buckets.take(ADA, few).remaining == 0
    now[0] += 10_000
    assert [buckets.take(ADA, few).remaining for _ in range(3)] == [2, 1, 0]


def test_the_least_recent_callers_are_dropped(now: list[float]) -> None:
    buckets, one = Buckets(max_buckets=2), BucketLimit(1, 60)
    for key in (ADA, BOB):
        buckets.take(key, one)
    with pytest.raises(RateLimited):
        buckets.take(ADA, one)
    buckets.take(("route", "eve"), one)
    with pytest.raises(RateLimited):
        buckets.take(ADA, one)
    assert buckets.take(BOB, one).remaining == 0


def test_a_network_counts_as_one_caller() -> None:
    assert network_of("2001:db8:1:2:aaaa::1") == network_of("2001:db8:1:2::ffff") != network_of("2001:db8:1:3::1")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") != network_of("192.0.2.2")
    assert network_of("somewhere") == "somewhere"
