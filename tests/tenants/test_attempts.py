"""Limits of sign-in attempts: in memory on SQLite, in rows that processes share on PostgreSQL, and alike on both."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import RateLimited
from appliance.tenants.sign_in import Attempts, DailyLimit, counts, open_counts
from appliance.tenants.sign_in.counts import Counts, MemoryCounts
from tests.store.conftest import on_server

SHOP = ("acme", "shop")
DAY_MS = 86_400_000


class Clock:
    """A time that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ms = clock.now_ms()
        monkeypatch.setattr(clock, "now_ms", lambda: self.ms)
        monkeypatch.setattr(clock, "monotonic", lambda: self.ms / 1000)

    def pass_ms(self, ms: int) -> None:
        self.ms += ms


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch, database: None) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def make(time: Clock) -> Callable[[], Attempts]:
    """Makes the limits of a process, all of the same kind."""
    return lambda: Attempts(free=3, first=2.0, longest=60.0, counts=open_counts("test"))


@pytest.fixture
def attempts(make: Callable[[], Attempts]) -> Attempts:
    return make()


def is_limited(attempts: Attempts, address: str, app: str = "shop") -> bool:
    try:
        attempts.begin(("acme", app), address)
    except RateLimited as error:
        return int(error.headers["Retry-After"]) >= 1
    return False


def test_attempts_are_delayed_per_address_without_delaying_others(attempts: Attempts, time: Clock) -> None:
    assert [is_limited(attempts, "192.0.2.1") for _ in range(4)] == [False, False, False, True]
    assert not is_limited(attempts, "192.0.2.2")
    assert not is_limited(attempts, "192.0.2.1", "other")
    time.pass_ms(2000)
    assert not is_limited(attempts, "192.0.2.1")
    time.pass_ms(2000)
    assert is_limited(attempts, "192.0.2.1")  # four seconds now
    time.pass_ms(2000)
    assert not is_limited(attempts, "192.0.2.1")
    attempts.succeed(SHOP, "192.0.2.1")
    assert not is_limited(attempts, "192.0.2.1")


def test_failed_attempts_are_forgotten_after_an_hour(attempts: Attempts, time: Clock) -> None:
    for _ in range(3):
        assert not is_limited(attempts, "192.0.2.1")
    assert attempts.has_tried(SHOP, "192.0.2.1")
    time.pass_ms(3_600_001)
    assert not attempts.has_tried(SHOP, "192.0.2.1")
    assert [is_limited(attempts, "192.0.2.1") for _ in range(4)] == [False, False, False, True]


def test_an_ipv6_network_counts_as_one_address(attempts: Attempts) -> None:
    assert [is_limited(attempts, f"2001:db8:0:1::{number}") for number in range(4)] == [False, False, False, True]
    assert not is_limited(attempts, "2001:db8:0:2::1")
    assert not is_limited(attempts, "::ffff:192.0.2.1")


def test_many_addresses_share_a_budget_of_attempts(attempts: Attempts, time: Clock) -> None:
    assert not any(is_limited(attempts, f"198.51.100.{number}") for number in range(101))
    assert [is_limited(attempts, "192.0.2.9") for _ in range(2)] == [False, True]
    time.pass_ms(60_001)
    assert [is_limited(attempts, "192.0.2.10") for _ in range(2)] == [False, False]


def test_successful_attempts_do_not_use_up_the_budget_of_all(attempts: Attempts) -> None:
    for number in range(200):
        attempts.begin(SHOP, f"198.51.100.{number}")
        attempts.succeed(SHOP, f"198.51.100.{number}")
    assert [is_limited(attempts, "192.0.2.9") for _ in range(2)] == [False, False]


def test_many_failures_in_a_day_pace_further_attempts(time: Clock) -> None:
    pace = DailyLimit(3, 60.0, open_counts("day"))
    assert not pace.has_failed(SHOP)
    for _ in range(3):
        pace.begin(SHOP)
        pace.fail(SHOP)
    for _ in range(3):
        with pytest.raises(RateLimited) as refused:
            pace.begin(SHOP)
        assert 59 <= int(refused.value.headers["Retry-After"]) <= 60
        time.pass_ms(61_000)
        pace.begin(SHOP)
    pace.begin(("acme", "other"))
    time.pass_ms(DAY_MS)
    assert not pace.has_failed(SHOP)
    pace.begin(SHOP)


def test_memory_for_failed_attempts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "MAX_TRACKED", 50)
    memory = MemoryCounts()
    pace = DailyLimit(3, 60.0, memory)
    for number in range(200):
        pace.fail(("acme", str(number)))
    assert 30 < len(memory._counts) <= 50


# -- on one server


@on_server
def test_processes_count_together(make: Callable[[], Attempts], time: Clock) -> None:
    here, there = make(), make()
    assert [is_limited(each, "192.0.2.1") for each in (here, there, here, there, here)] == [False, False, False, True, True]
    time.pass_ms(2000)
    assert [is_limited(each, "192.0.2.1") for each in (there, here)] == [False, True]
    time.pass_ms(4000)
    there.begin(SHOP, "192.0.2.1")
    there.succeed(SHOP, "192.0.2.1")
    assert not here.has_tried(SHOP, "192.0.2.1")


@on_server
def test_processes_pace_a_day_together(time: Clock) -> None:
    here, there = (DailyLimit(2, 60.0, open_counts("day")) for _ in range(2))
    here.fail(SHOP)
    there.fail(SHOP)
    for each in (here, there):
        with pytest.raises(RateLimited):
            each.begin(SHOP)
    time.pass_ms(61_000)
    here.begin(SHOP)
    with pytest.raises(RateLimited):
        there.begin(SHOP)


@on_server
@pytest.mark.writes_once(reason="other writes run between the two runs of one")
def test_of_concurrent_attempts_only_the_free_ones_are_admitted(make: Callable[[], Attempts]) -> None:
    processes = [make() for _ in range(8)]
    with ThreadPoolExecutor(len(processes)) as threads:
        limited = list(threads.map(lambda each: is_limited(each, "192.0.2.1"), processes * 4))
    assert limited.count(False) == 3


@on_server
def test_different_kinds_are_counted_apart(time: Clock) -> None:
    one, other = (Attempts(1, 60.0, 60.0, open_counts(kind)) for kind in ("one", "other"))
    assert [is_limited(each, "192.0.2.1") for each in (one, other, one, other)] == [False, False, True, True]


@on_server
def test_a_refused_attempt_writes_nothing(make: Callable[[], Attempts]) -> None:
    attempts = make()
    for _ in range(3):
        attempts.begin(SHOP, "192.0.2.1")
    stored = db.rows("SELECT digest, used, until, ends FROM attempt_count ORDER BY digest")
    assert is_limited(attempts, "192.0.2.1")
    assert db.rows("SELECT digest, used, until, ends FROM attempt_count ORDER BY digest") == stored
    assert [row[1] for row in sorted(stored, key=lambda row: -row[3])] == [3, 3], "the address's and that of all"


@on_server
def test_ended_counts_are_deleted_and_at_most_so_many_are_kept(
    make: Callable[[], Attempts], time: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert counts.purge(time.ms) == 0
    attempts = make()
    for number in range(10):
        attempts.begin(("acme", str(number)), "192.0.2.1")
        time.pass_ms(1)
    assert db.rows("SELECT COUNT(*) FROM attempt_count") == [(20,)]
    time.pass_ms(60_000)
    assert counts.purge(time.ms) == 10, "the budgets of all addresses"
    remembered = open_counts("remembered")
    for number in range(5):
        remembered.change(((str(number),),), lambda changed, now: setattr(changed[0], "ends", now + 90_000.0))
        time.pass_ms(1)
    monkeypatch.setattr(counts, "MAX_ROWS", 4)
    assert counts.purge(time.ms) == 6 + 1, "those that only remember something displace none of the others"
    assert [attempts.has_tried(("acme", str(number)), "192.0.2.1") for number in range(10)] == [False] * 6 + [True] * 4
    time.pass_ms(3_600_000)
    assert counts.purge(time.ms) == 4


@on_server
def test_neither_logins_nor_addresses_are_stored(time: Clock) -> None:
    secret: Counts = open_counts("test")
    Attempts(1, 2.0, 60.0, secret).begin(("login", "ann@acme.test\0\ud800" + "x" * 10_000), "192.0.2.1")
    stored = repr(db.rows("SELECT * FROM attempt_count"))
    assert "ann@" not in stored
    assert "192.0.2" not in stored
