"""Tenant acme on both databases, with a clock that tests set, and no quota but those that a test sets."""

from collections.abc import Iterator

import pytest

from appliance.core import clock
from appliance.core.scope import TenantScope
from appliance.quotas import limits, notices
from appliance.quotas.kinds import DAY
from appliance.tenants import service

NOON = 20_000 * DAY + DAY // 2


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time, which a test can change."""
    times = [NOON]
    monkeypatch.setattr(clock, "now_ms", lambda: times[0])
    return times


@pytest.fixture
def acme(two_tenants: None, now: list[int], monkeypatch: pytest.MonkeyPatch) -> Iterator[TenantScope]:
    monkeypatch.setattr(limits, "defaults", limits.Defaults())
    notices.take_pending()
    yield service.system_scope("acme")
    notices.take_pending()
