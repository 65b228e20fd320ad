"""Daily quotas of keys, on both databases: of several processes, of chains of keys, after a rotation and at midnight."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import PolicyDenied, RateLimited, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.tenants import RateLimiter
from appliance.tenants.keys import KeyChanges, changes, daily_quotas, keys
from appliance.tenants.keys.daily_quotas import DAY, DailyQuotas
from tests.redteam.test_key_lineage import SEALER, by, issue, make_person, one, use

__all__ = ["one"]
NOON = 20_000 * DAY + DAY // 2


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time, which a test can change."""
    times = [NOON]
    monkeypatch.setattr(clock, "now_ms", lambda: times[0])
    return times


@pytest.fixture
def ann(one: TenantScope, now: list[int]) -> TenantScope:
    return make_person(one, "ann@acme.test")


def spend(text: str, times: int, limiter: RateLimiter) -> None:
    for _ in range(times):
        limiter.count(use(text))


def refusal(text: str, limiter: RateLimiter) -> RateLimited:
    with pytest.raises(RateLimited) as caught:
        limiter.count(use(text))
    return caught.value


def test_a_quota_is_used_up_and_begins_again_at_midnight(ann: TenantScope, now: list[int]) -> None:
    key_id, text = issue(ann, daily_requests=3)
    limiter = RateLimiter()
    spend(text, 3, limiter)
    error = refusal(text, limiter)
    assert (error.headers["Retry-After"], error.extra["limit"]) == (str(DAY // 2000), "daily_requests")
    assert error.message == "this key can make 3 requests a day (UTC); try again in 43200 s"
    limiter.quotas.flush()
    assert daily_quotas.read_usage(ann) == {key_id: 3}
    now[0] += DAY // 2
    spend(text, 3, limiter)
    refusal(text, limiter)
    limiter.quotas.flush()
    assert daily_quotas.read_usage(ann) == {key_id: 3}
    now[0] += 2 * DAY
    assert daily_quotas.purge(now[0]) == 2


def test_processes_share_what_they_have_added(ann: TenantScope, now: list[int]) -> None:
    key_id, text = issue(ann, daily_requests=4)
    first, second = RateLimiter(), RateLimiter()
    spend(text, 2, first)
    first.quotas.flush()
    spend(text, 2, second)
    second.quotas.flush()
    now[0] += 2_000
    assert daily_quotas.read_usage(ann) == {key_id: 4}
    third = RateLimiter()
    refusal(text, third)
    refusal(text, second)
    if db.is_shared():
        refusal(text, first)


def test_nothing_is_lost_or_counted_twice_by_a_failed_flush(ann: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    key_id, text = issue(ann, daily_requests=10)
    limiter = RateLimiter()
    spend(text, 3, limiter)
    with monkeypatch.context() as broken:
        broken.setattr(db, "write", _fail)
        with pytest.raises(OSError, match="no"):
            limiter.quotas.flush()
    limiter.quotas.flush()
    limiter.quotas.flush()
    assert not limiter.quotas.has_counts()
    assert daily_quotas.read_usage(ann) == {key_id: 3}
    spend(text, 7, limiter)
    refusal(text, limiter)


def _fail(*_: Any, **__: Any) -> None:
    raise OSError("no")


def test_requests_count_on_every_key_above(ann: TenantScope) -> None:
    _, first = issue(ann, daily_requests=3)
    _, second = issue(by(first), daily_requests=100)
    limiter = RateLimiter()
    spend(second, 2, limiter)
    spend(first, 1, limiter)
    assert "the key that issued this one can make 3 requests a day" in refusal(second, limiter).message
    refusal(first, limiter)


def test_a_rotated_key_continues_the_count(ann: TenantScope) -> None:
    key_id, text = issue(ann, daily_requests=3)
    limiter = RateLimiter()
    spend(text, 2, limiter)
    limiter.quotas.flush()
    _, newer = keys.rotate_key(by(text), SEALER, key_id, 3600)
    newest_row, newest = keys.rotate_key(by(newer), SEALER, by(newer).actor.removeprefix("key:"), 3600)
    assert (newest_row.counted_as, newest_row.daily_requests) == (key_id, 3)
    spend(newest, 1, limiter)
    for each in (text, newer, newest):
        refusal(each, limiter)


def test_a_quota_is_changed_by_others_only(ann: TenantScope) -> None:
    key_id, text = issue(ann, daily_requests=1)
    limiter = RateLimiter()
    spend(text, 1, limiter)
    refusal(text, limiter)
    with pytest.raises(PolicyDenied):
        changes.change_key(by(text), key_id, KeyChanges(daily_requests=5))
    changes.change_key(ann, key_id, KeyChanges(daily_requests=2))
    by(text)
    spend(text, 1, limiter)
    refusal(text, limiter)
    changes.change_key(ann, key_id, KeyChanges(daily_requests=0))
    by(text)
    spend(text, 5, limiter)
    for wrong in (-1, daily_quotas.MAX_QUOTA + 1):
        with pytest.raises(ValidationFailed):
            changes.change_key(ann, key_id, KeyChanges(daily_requests=wrong))


def test_many_requests_at_once_do_not_exceed_a_quota(ann: TenantScope) -> None:
    quotas, quota = DailyQuotas(), daily_quotas.DailyQuota("key_1", "key_1", 50)

    def ask(_: int) -> bool:
        try:
            quotas.count("acme", "key_1", (quota,))
        except RateLimited:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(200))) == 50
