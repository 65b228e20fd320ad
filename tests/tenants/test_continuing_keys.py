"""What goes on working after a key is revoked: keys that it issued, which do not depend on it."""

from dataclasses import replace

import pytest

from appliance.core.errors import RevokedApiKey
from appliance.core.scope import TenantScope
from appliance.tenants import AccountChanges, service_accounts
from appliance.tenants.keys import adoption, continuing_keys, keys
from tests.redteam.test_key_lineage import SEALER, by, issue, make_person, one, use
from tests.tenants.test_service_accounts import NARROW, create, issue_of

__all__ = ["one"]


@pytest.fixture
def ann(one: TenantScope) -> TenantScope:
    return make_person(one, "ann@acme.test")


def continuing(scope: TenantScope, key_id: str) -> list[str]:
    row = keys.get_key(scope, key_id)
    return [each.id for each in continuing_keys.list_continuing(scope, [row]).get(key_id, [])]


def test_keys_of_accounts_go_on_and_keys_below_end(ann: TenantScope, one: TenantScope) -> None:
    create(ann, "robot", NARROW)
    top, top_text = issue(ann, NARROW)
    below, below_text = issue(by(top_text), NARROW)
    first, first_text = issue_of(by(top_text), "robot", NARROW)
    second, second_text = issue_of(by(below_text), "robot", NARROW)
    third, third_text = issue(by(first_text), NARROW)
    other, _ = issue_of(ann, "robot", NARROW)
    assert continuing(one, top) == [first, second, third], "also by the key below, and below a key of the account"
    assert (continuing(one, below), continuing(one, first), continuing(one, other)) == ([second], [], [])
    keys.revoke_key(ann, top)
    for text in (first_text, second_text, third_text):
        by(text)
    with pytest.raises(RevokedApiKey):
        by(below_text)
    assert continuing(one, top) == [first, second, third], "as the page of the revoked key says"


def test_keys_that_have_ended_are_left_out(ann: TenantScope, one: TenantScope) -> None:
    create(ann, "robot", NARROW)
    top, top_text = issue(ann, NARROW)
    first, first_text = issue_of(by(top_text), "robot", NARROW)
    third, _ = issue(by(first_text), NARROW)
    service_accounts.change_account(ann, "robot", AccountChanges(is_disabled=True))
    assert continuing(one, top) == [first, third], "they work again when it is enabled"
    keys.revoke_key(ann, first)
    assert continuing(one, top) == []
    service_accounts.delete_account(ann, "robot")
    assert continuing(one, top) == []


def test_rotated_moved_and_adopted_keys_count(ann: TenantScope, one: TenantScope) -> None:
    create(ann, "robot", NARROW)
    top, top_text = issue(ann, NARROW)
    child, child_text = issue(by(top_text), NARROW)
    moved, moved_text = issue(by(top_text), NARROW)
    assert continuing(one, top) == []
    adoption.adopt_key(ann, child)
    service_accounts.adopt_key(ann, "robot", moved)
    assert continuing(one, top) == [child, moved]
    successor, successor_text = keys.rotate_key(ann, SEALER, top, 0)
    assert continuing(one, successor.id) == [child, moved], "what the key issued before it was rotated"
    own, _ = keys.rotate_key(by(successor_text), SEALER, successor.id, 3600)
    assert continuing(one, successor.id) == [child, moved, own.id], "a key that replaces itself"
    keys.revoke_key(ann, successor.id)
    assert [use(text).scope.actor for text in (child_text, moved_text)] == [f"key:{child}", f"key:{moved}"]


def test_other_tenants_are_not_looked_at(ann: TenantScope, one: TenantScope) -> None:
    create(ann, "robot", NARROW)
    top, top_text = issue(ann, NARROW)
    issue_of(by(top_text), "robot", NARROW)
    row = keys.get_key(one, top)
    assert continuing_keys.list_continuing(replace(one, tenant_id="globex"), [row]) == {}
