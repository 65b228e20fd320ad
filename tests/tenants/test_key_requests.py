"""The request log of keys, on both databases: what is stored, filtered and deleted."""

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import NotFound
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.tenants.keys import KeyRequests, RequestFilter, key_requests
from tests.redteam.test_key_lineage import issue, one, use

__all__ = ["one"]
DAY = 86_400_000


def listed(scope: TenantScope, key_id: str, **criteria: object) -> list[tuple[str, str, int, str]]:
    page = key_requests.list_requests(scope, key_id, RequestFilter(**criteria), PageRequest(50))  # type: ignore[arg-type]
    return [(row.method, row.path, row.status, row.address) for row in page.items]


def test_requests_are_stored_filtered_and_deleted(one: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    key_id, text = issue(one, records_requests=True)
    other_id, other = issue(one, records_requests=True)
    log, begin = KeyRequests(), clock.now_ms()
    answered = (
        (text, "/a", 200, "192.0.2.1"), (text, "/b/{id}", 404, "192.0.2.2"), (other, "/a", 200, "192.0.2.1"),
        (text, "/a", 503, "::1"),
    )  # fmt: skip
    for number, (who, path, status, address) in enumerate(answered):
        monkeypatch.setattr(clock, "now_ms", lambda number=number: begin + number)
        log.add(use(who), ("GET", path, status, 1.5), address)
    assert log.has_requests()
    log.flush()
    assert not log.has_requests()
    first, second, third = ("GET", "/a", 503, "::1"), ("GET", "/b/{id}", 404, "192.0.2.2"), ("GET", "/a", 200, "192.0.2.1")
    assert listed(one, key_id) == [first, second, third]
    assert listed(one, other_id) == [third]
    assert listed(one, key_id, path="/a", is_error=True) == [first]
    assert listed(one, key_id, is_error=False) == [third]
    assert listed(one, key_id, address="192.0.2.2", method="GET", status=404) == [second]
    assert listed(one, key_id, since=begin + 1, until=begin + 3) == [second]
    with pytest.raises(NotFound):
        listed(one, "key_none")
    assert key_requests.purge(begin + 1) == 1
    assert listed(one, key_id) == [first, second]


def test_the_log_of_a_key_is_bounded(one: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_requests, "MAX_ROWS", 3)
    monkeypatch.setattr("appliance.monitor.collecting.MAX_QUEUED", 6)
    key_id, text = issue(one, records_requests=True)
    log, caller, begin = KeyRequests(), use(text), clock.now_ms()
    for number in range(8):
        monkeypatch.setattr(clock, "now_ms", lambda number=number: begin + number)
        log.add(caller, ("GET", f"/{number}", 200, 1.0), "192.0.2.1")
    log.flush()
    assert [path for _, path, *_ in listed(one, key_id)] == ["/5", "/4", "/3", "/2", "/1", "/0"]
    assert key_requests.purge(begin - DAY) == 3
    assert [path for _, path, *_ in listed(one, key_id)] == ["/5", "/4", "/3"]


def test_a_failed_flush_keeps_the_requests(one: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    key_id, text = issue(one, records_requests=True)
    log = KeyRequests()
    log.add(use(text), ("GET", "/a", 200, 1.0), "192.0.2.1")

    def fail(*_: object, **__: object) -> None:
        raise OSError("no")

    with monkeypatch.context() as broken:
        broken.setattr(db, "write", fail)
        with pytest.raises(OSError, match="no"):
            log.flush()
    log.flush()
    assert len(listed(one, key_id)) == 1
