"""The addresses that keys are used from, on both databases: which are warned of, which continue, and which are forgotten."""

import json
from collections.abc import Iterator

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants.keys import key_addresses, keys
from tests.redteam.test_key_lineage import SEALER, issue, one, use

__all__ = ["one"]
DAY = 86_400_000


@pytest.fixture(autouse=True)
def nothing_noted(one: TenantScope) -> Iterator[None]:
    key_addresses.store()
    yield
    key_addresses.store()


def listed(scope: TenantScope, key_id: str) -> list[str]:
    row = keys.get_key(scope, key_id)
    return [each.address for each in key_addresses.list_addresses(scope, row, PageRequest(100)).items]


def list_warnings(scope: TenantScope) -> list[tuple[str, str, bool]]:
    """The key, the address and whether it is the last warning of each, the oldest first."""
    entries = audit.list_entries(scope, audit.AuditFilter(action=key_addresses.EVENT), PageRequest(100)).items
    warnings = [(row.subject, json.loads(row.fields)) for row in reversed(entries)]
    return [(subject, fields["address"], fields["is_last_warning"]) for subject, fields in warnings]


def test_a_key_that_is_in_use_comes_from_a_new_address(one: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    (key_id, text), (other_id, other) = issue(one), issue(one)
    begin = clock.now_ms()
    for number, address in enumerate(("192.0.2.1", "192.0.2.1", "2001:db8::1", "2001:db8::2", "192.0.2.2", "192.0.2.1")):
        monkeypatch.setattr(clock, "now_ms", lambda number=number: begin + number)
        use(text, address)
        key_addresses.store()
    use(other, "192.0.2.2")
    key_addresses.store()
    assert not key_addresses.has_noted()
    assert listed(one, key_id) == ["192.0.2.2", "2001:db8::/64", "192.0.2.1"]
    assert listed(one, other_id) == ["192.0.2.2"]
    assert list_warnings(one) == [(key_id, "2001:db8::/64", False), (key_id, "192.0.2.2", False)]
    assert key_addresses.list_new(one, begin + 4) == {key_id}
    assert key_addresses.list_new(one, begin + 5) == frozenset()


def test_a_rotated_key_continues_the_addresses_of_the_old_one(one: TenantScope) -> None:
    old_id, old = issue(one)
    use(old, "192.0.2.1")
    key_addresses.store()
    new, text = keys.rotate_key(one, SEALER, old_id, 0)
    use(text, "192.0.2.1")
    use(text, "192.0.2.9")
    key_addresses.store()
    assert listed(one, str(new.id)) == listed(one, old_id) == ["192.0.2.9", "192.0.2.1"]
    assert list_warnings(one) == [(new.id, "192.0.2.9", False)]


def test_a_key_whose_address_changes_all_the_time_is_warned_of_so_often(
    one: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_addresses, "MAX_ADDRESSES", 3)
    key_id, text = issue(one)
    for number in range(5):
        use(text, f"192.0.2.{number}")
        key_addresses.store()
    assert sorted(listed(one, key_id)) == ["192.0.2.0", "192.0.2.1", "192.0.2.2"]
    assert list_warnings(one) == [(key_id, "192.0.2.1", False), (key_id, "192.0.2.2", True)]


def test_an_address_is_forgotten_after_its_last_use(one: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    key_id, text = issue(one)
    begin = clock.now_ms()
    for number, address in ((0, "192.0.2.1"), (1, "192.0.2.2"), (DAY, "192.0.2.1")):
        monkeypatch.setattr(clock, "now_ms", lambda number=number: begin + number)
        use(text, address)
        key_addresses.store()
    assert key_addresses.purge(begin + DAY) >= 1
    assert listed(one, key_id) == ["192.0.2.1"]


def test_what_could_not_be_stored_is_noted_again(one: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    key_id, text = issue(one)
    use(text, "192.0.2.1")

    def fail(*_: object, **__: object) -> None:
        raise OSError("no")

    with monkeypatch.context() as broken:
        broken.setattr(db, "write", fail)
        with pytest.raises(OSError, match="no"):
            key_addresses.store()
    key_addresses.store()
    assert listed(one, key_id) == ["192.0.2.1"]


def test_a_tenant_that_was_deleted_meanwhile_is_left_out(one: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    key_id, text = issue(one)
    use(text, "192.0.2.1")
    with monkeypatch.context() as deleted:
        deleted.setattr(key_addresses, "tenant_ids", lambda: ["another"])
        key_addresses.store()
    assert not key_addresses.has_noted()
    assert listed(one, key_id) == []
