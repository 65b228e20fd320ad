"""What a tenant may do so many times a day, counted in rows on both databases."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from appliance.core.database import db
from appliance.core.errors import RateLimited
from appliance.core.scope import TenantScope
from appliance.quotas import daily, expiry, limits
from appliance.quotas.kinds import DAY
from appliance.tenants import quota_settings

NAME = "executions_per_day"


def start(scope: TenantScope) -> None:
    db.write(partial(daily.admit, scope, NAME), is_shared=True)


def try_to_start(scope: TenantScope) -> bool:
    try:
        start(scope)
    except RateLimited:
        return False
    return True


def test_the_quota_is_exact_and_the_refusal_says_which_and_until_when(acme: TenantScope, now: list[int]) -> None:
    quota_settings.change_quotas(acme, {NAME: "3"})
    for _ in range(3):
        start(acme)
    with pytest.raises(RateLimited) as caught:
        start(acme)
    assert caught.value.extra == {
        "quota": NAME, "used": 3, "limit": 3, "retryable": False, "resets_at": "2024-10-05T00:00:00.000Z",
    }  # fmt: skip
    assert caught.value.headers["Retry-After"] == str(DAY // 2000)
    assert caught.value.message == (
        "this tenant has started 3 of the 3 executions that it may start on a day (UTC); try again after 2024-10-05T00:00Z, or ask "
        "the operator of the appliance to raise the quota executions_per_day"
    )
    now[0] += DAY // 2
    start(acme)
    assert daily.read_used("acme", NAME) == 1
    now[0] += 4 * DAY
    assert daily.purge(now[0]) >= 2


def test_what_is_rolled_back_does_not_count(acme: TenantScope) -> None:
    quota_settings.change_quotas(acme, {NAME: "2"})

    def fail() -> None:
        daily.admit(acme, NAME)
        raise LookupError

    for _ in range(5):
        with pytest.raises(LookupError):
            db.write(fail)
    assert [try_to_start(acme) for _ in range(3)] == [True, True, False]


def test_it_counts_while_there_is_a_limit_and_for_each_tenant(acme: TenantScope) -> None:
    start(acme)
    assert daily.read_used("acme", NAME) == 0
    quota_settings.change_quotas(acme, {NAME: "3"})
    assert [try_to_start(acme) for _ in range(4)] == [True, True, True, False]
    assert (daily.read_used("acme", NAME), daily.read_used("globex", NAME)) == (3, 0)
    quota_settings.change_quotas(acme, {NAME: "default"})
    start(acme)
    db.write(partial(daily.add, acme, NAME))
    assert daily.read_used("acme", NAME) == 3


def test_threads_that_start_at_once_do_not_exceed_it(acme: TenantScope) -> None:
    """Each thread writes through a writer of its own; none relies on what this process remembers."""
    quota_settings.change_quotas(acme, {NAME: "40"})
    with ThreadPoolExecutor(8) as threads:
        admitted = list(threads.map(lambda _: try_to_start(acme), range(80)))
    assert (sum(admitted), daily.read_used("acme", NAME)) == (40, 40)


def test_what_other_processes_start_counts_near_the_limit_at_once(acme: TenantScope) -> None:
    quota_settings.change_quotas(acme, {NAME: "100"})
    start(acme)
    elsewhere = "INSERT INTO quota_use (tenant_id, name, day, stripe, used) VALUES ('acme', ?, ?, 99, 98)"
    db.write(lambda: db.execute(elsewhere, (NAME, 20_000 * DAY)))
    assert [try_to_start(acme) for _ in range(2)] == [True, False]


def test_far_from_the_limit_an_execution_may_begin_before_it_is_counted(
    acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert daily.may_begin(acme, NAME)
    quota_settings.change_quotas(acme, {NAME: "1000"})
    assert daily.may_begin(acme, NAME)
    db.write(lambda: db.execute("INSERT INTO quota_use VALUES ('acme', ?, ?, 99, 850)", (NAME, 20_000 * DAY)))
    monkeypatch.setattr(daily, "FRESH_SECONDS", 0.0)
    assert not daily.may_begin(acme, NAME)


def test_an_expired_sandbox_starts_nothing(acme: TenantScope, now: list[int]) -> None:
    expires_at = now[0] + 3 * DAY
    db.write(lambda: expiry.set_expiry(acme, expires_at))
    limits.defaults.sandbox = {NAME: 5}
    limits.set_default(NAME, None)
    start(acme)
    now[0] = expires_at
    with pytest.raises(RateLimited, match="this sandbox tenant expired on 2024-10-07"):
        start(acme)
