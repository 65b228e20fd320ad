"""Of several servers, each grants its share of a limit; a single one grants all of it."""

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from appliance.core import clock
from appliance.core.database.presence import ServerCount
from appliance.core.errors import ConcurrencyLimited, RateLimited
from appliance.core.scope import TenantScope
from appliance.sites.front.buckets import BucketLimit, Buckets
from appliance.tenants import RateLimiter, StreamLimits, Streams
from appliance.tenants.keys import keys
from appliance.webapps.traffic import Quotas
from tests.store.opening import migrated

SCOPE = TenantScope("acme", "key:key_1", frozenset())
NOON = 12 * 3_600_000


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time; tests move it on."""
    time = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: time[0])
    return time


def servers_of(count: int) -> ServerCount:
    servers = ServerCount()
    servers.count = count
    return servers


def is_refused(work: Callable[[], object]) -> bool:
    try:
        work()
    except (RateLimited, ConcurrencyLimited):
        return True
    return False


def count_granted(work: Callable[[], object], tries: int) -> int:
    return sum(not is_refused(work) for _ in range(tries))


@given(some.integers(1, 1_000_000), some.integers(1, 100))
def test_all_shares_exceed_the_limit_by_less_than_the_number_of_servers(limit: int, count: int) -> None:
    total = count * servers_of(count).share(limit)
    assert limit <= total < limit + count
    assert servers_of(count).share(limit) >= 1
    assert ServerCount().share(limit) == limit


@pytest.fixture(scope="module", autouse=True)
def no_quotas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A database in which no tenant has a quota."""
    with migrated(f"sqlite:///{tmp_path_factory.mktemp('quotas')}/gos.db"):
        yield


def limiter_of(servers: ServerCount) -> Callable[[], Any]:
    limiter, caller = RateLimiter(servers), keys.Caller(SCOPE, "key_1", 10, 60)
    return lambda: limiter.count(caller)


def buckets_of(servers: ServerCount) -> Callable[[], Any]:
    buckets = Buckets(servers)
    return lambda: buckets.take(("route", "ada"), BucketLimit(10, 60))


def quotas_of(servers: ServerCount) -> Callable[[], Any]:
    quotas = Quotas(10, 0, servers)
    return lambda: quotas.count("acme", "shop", NOON)


def streams_per_key_of(servers: ServerCount) -> Callable[[], Any]:
    streams = Streams(StreamLimits(10, 100, 1000), servers)
    return lambda: streams.open(SCOPE, SimpleNamespace(become_stream=lambda release: None))


def streams_per_tenant_of(servers: ServerCount) -> Callable[[], Any]:
    streams, numbers = Streams(StreamLimits(10, 10, 1000), servers), iter(range(1000))

    def open_stream() -> None:
        scope = TenantScope("acme", f"key:{next(numbers)}", frozenset())
        streams.open(scope, SimpleNamespace(become_stream=lambda release: None))

    return open_stream


LIMITED = [limiter_of, buckets_of, quotas_of, streams_per_key_of, streams_per_tenant_of]


@pytest.mark.parametrize("make", LIMITED)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_servers_grant_a_limit_of_ten_together(
    make: Callable[[ServerCount], Callable[[], Any]], count: int, now: list[float]
) -> None:
    granted = [count_granted(make(servers_of(count)), 20) for _ in range(count)]
    assert granted == [math.ceil(10 / count)] * count


@pytest.mark.parametrize("make", LIMITED)
def test_one_that_starts_or_dies_adds_at_most_its_share(
    make: Callable[[ServerCount], Callable[[], Any]], now: list[float]
) -> None:
    """The bound of docs/cluster.md: what was granted before the change, and the new share of whoever comes or stays."""
    servers = servers_of(1)
    work = make(servers)
    assert count_granted(work, 20) == 10
    servers.count = 2
    assert count_granted(work, 20) == 0, "it has granted more than its share already"
    assert count_granted(make(servers_of(2)), 20) == 5, "the one that has started"
    here = make(servers)
    assert count_granted(here, 5) == 5
    servers.count = 1
    assert count_granted(here, 20) == (0 if make is buckets_of else 5), "a bucket refills, and faster"


def test_the_headers_and_the_error_tell_of_the_share(now: list[float]) -> None:
    count = limiter_of(servers_of(3))
    assert count().headers() == {"RateLimit-Policy": '"default";q=10;w=60', "RateLimit": '"default";r=3;t=60'}
    assert count_granted(count, 20) == 3
    with pytest.raises(RateLimited) as refused:
        count()
    assert str(refused.value.message) == (
        "this key can make 10 requests in 60 s, an equal share on each of 3 servers; try again in 60 s"
    )


def test_a_bucket_of_a_share_refills_with_the_share(now: list[float]) -> None:
    take = buckets_of(servers_of(2))
    assert count_granted(take, 20) == 5
    now[0] += 24.0
    assert count_granted(take, 20) == 2


def test_the_errors_of_streams_tell_of_the_share() -> None:
    for make, name in ((streams_per_key_of, "streams_per_key"), (streams_per_tenant_of, "streams_per_tenant")):
        work = make(servers_of(2))
        assert count_granted(work, 5) == 5
        with pytest.raises(ConcurrencyLimited, match=rf"5 event streams open on this server, its share of 10 \(limits.{name}\)"):
            work()
