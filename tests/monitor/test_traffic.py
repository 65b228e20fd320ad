"""Requests per key and web app are counted for their tenant, and kept when they cannot be stored at once."""

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import rollup, traffic
from appliance.monitor.traffic import AnsweredRequest, KeyTraffic, read_numbers

HOUR = 3_600_000


def of_key(scope: TenantScope, key_id: str) -> TenantScope:
    return TenantScope(scope.tenant_id, f"key:{key_id}")


def test_requests_of_a_key_are_counted_with_failures_and_bytes(acme: TenantScope, other: TenantScope) -> None:
    traffic_counter = KeyTraffic()
    for status, ms, sent in ((200, 10.0, 100), (202, 10.0, 50), (404, 10.0, 7), (503, 900.0, 3)):
        traffic_counter.add(of_key(acme, "key_1"), status, ms, sent)
    traffic_counter.add(of_key(acme, "key_2"), 200, 5.0, 1)
    traffic_counter.add(of_key(other, "key_3"), 200, 5.0, 1)
    traffic_counter.add(acme, 200, 5.0, 1)  # a person
    traffic_counter.flush()
    traffic_counter.flush()
    now = clock.now_ms()
    numbers = read_numbers(acme, "key", now - HOUR, now + 1)
    assert list(numbers) == ["key_1", "key_2"]
    first = numbers["key_1"]
    assert (first.summary.count, first.summary.failures, first.sent) == (4, 2, 160)
    assert dict(first.summary.by_result) == {"succeeded": 2, "refused": 1, "failed": 1}
    assert first.summary.percentile(0.95) == pytest.approx(900, rel=0.2)
    assert read_numbers(acme, "webapp", now - HOUR, now + 1) == {}


def test_counts_that_could_not_be_stored_are_kept(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    traffic_counter = KeyTraffic()
    traffic_counter.add(of_key(acme, "key_1"), 200, 10.0, 100)
    with monkeypatch.context() as broken:
        broken.setattr(db, "write", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            traffic_counter.flush()
    traffic_counter.flush()
    now = clock.now_ms()
    assert read_numbers(acme, "key", now - HOUR, now + 1)["key_1"].summary.count == 1


def test_a_deleted_tenant_does_not_prevent_counting_others(acme: TenantScope) -> None:
    now = clock.now_ms()
    deleted = AnsweredRequest("gone", "key", "key_9", now, 200, 1.0, 1)
    db.write(lambda: traffic.count_requests([deleted, AnsweredRequest("acme", "webapp", "shop", now, 200, 1.0, 9)]))
    assert read_numbers(acme, "webapp", now - HOUR, now + 1)["shop"].sent == 9


def test_numbers_are_the_same_once_they_are_summed_up(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.now_ms()
    db.write(lambda: traffic.count_requests([AnsweredRequest("acme", "key", "key_1", now - 30 * HOUR, 200, 20.0, 11)] * 3))
    before = read_numbers(acme, "key", now - 48 * HOUR, now + 1)["key_1"]
    assert rollup.roll_up() > 0
    after = read_numbers(acme, "key", now - 48 * HOUR, now + 1)["key_1"]
    assert (after.sent, after.summary.count, dict(after.summary.slots)) == (33, 3, dict(before.summary.slots))
