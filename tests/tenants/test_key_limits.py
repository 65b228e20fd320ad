"""Limits of keys to some resources, on both databases: what chains of keys, adoption and rotation make of them."""

import pytest

from appliance.core.errors import NotFound, PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.tenants.grants import continued_access
from appliance.tenants.keys import KeyChanges, adoption, changes, keys, lineage
from tests.redteam.test_key_lineage import SEALER, by, issue, make_person, one

__all__ = ["one"]
ORDERS = {"processes": ["orders", "returns"], "collections": ["orders"]}


@pytest.fixture
def ann(one: TenantScope) -> TenantScope:
    return make_person(one, "ann@acme.test")


def test_a_chain_reaches_what_each_of_its_keys_may_reach(ann: TenantScope) -> None:
    first_id, first = issue(ann, limits=ORDERS)
    second_id, second = issue(by(first), limits={"processes": ["orders"]})
    assert by(first).limits == {"process": {"orders", "returns"}, "collection": {"orders"}, "integration": frozenset()}
    assert by(second).limits == {"process": {"orders"}, "collection": frozenset(), "integration": frozenset()}
    changes.change_key(ann, first_id, KeyChanges(limits={"processes": ["returns"]}))
    assert by(second).limits == {"process": frozenset(), "collection": frozenset(), "integration": frozenset()}
    assert keys.get_key(ann, second_id).limits == {"processes": ["orders"]}
    changes.change_key(ann, first_id, KeyChanges(is_unlimited=True))
    assert by(first).limits is None
    assert by(second).can_reach("process", "orders")
    with pytest.raises(NotFound, match="there is no process 'returns' here"):
        by(second).check_reach("process", "returns")


def test_a_key_inherits_the_limits_of_its_issuer_and_keeps_them_when_adopted(ann: TenantScope) -> None:
    _, first = issue(ann, limits=ORDERS)
    child_id, child = issue(by(first))
    assert by(child).limits == by(first).limits
    adoption.adopt_key(ann, child_id)
    assert by(child).limits == by(first).limits
    for wider in (None, {"processes": ["orders", "other"]}, {"integrations": ["erp"]}):
        with pytest.raises(ValidationFailed, match="the issuing key is limited"):
            changes.change_key(by(first), issue(by(first))[0], KeyChanges(limits=wider, is_unlimited=wider is None))


def test_a_limited_key_limits_what_it_adopts_and_rotates(ann: TenantScope) -> None:
    _, first = issue(ann, limits=ORDERS)
    other_id, other = issue(ann)
    adoption.adopt_key(by(first), other_id)
    assert by(other).limits == by(first).limits
    theirs_id, _ = issue(ann, limits={"processes": ["returns", "other"]})
    _, rotated = keys.rotate_key(by(first), SEALER, theirs_id, 0)
    assert by(rotated).limits == {"process": {"returns"}, "collection": frozenset(), "integration": frozenset()}


def test_no_key_changes_limits_that_apply_to_it(ann: TenantScope) -> None:
    first_id, first = issue(ann, limits=ORDERS)
    second_id, second = issue(by(first))
    for actor, key_id in ((by(first), first_id), (by(second), first_id), (by(second), second_id)):
        with pytest.raises(PolicyDenied):
            changes.change_key(actor, key_id, KeyChanges(is_unlimited=True))


def test_what_a_key_started_continues_under_the_limits_that_it_has_now(ann: TenantScope) -> None:
    key_id, text = issue(ann)
    actor = by(text).actor
    assert continued_access.limits_of(ann, actor) is None
    changes.change_key(ann, key_id, KeyChanges(limits={"integrations": ["erp"]}))
    limits = continued_access.limits_of(ann, actor)
    assert limits == {"process": frozenset(), "collection": frozenset(), "integration": {"erp"}}
    assert continued_access.limits_of(ann, ann.actor) is None


def test_an_event_stream_ends_when_the_limits_change(ann: TenantScope) -> None:
    key_id, text = issue(ann, limits=ORDERS)
    scope = by(text)
    assert continued_access.is_still_allowed(scope, "entities.read")
    changes.change_key(ann, key_id, KeyChanges(limits={"collections": ["other"]}))
    lineage.clear_cache()
    assert not continued_access.is_still_allowed(scope, "entities.read")


@pytest.mark.parametrize(
    "limits",
    [{"documents": ["a"]}, {"processes": [""]}, {"processes": ["a\n"]}, {"processes": ["a"] * 201}, {"collections": ["a" * 64]}],
)
def test_limits_that_no_resource_can_have_are_refused(ann: TenantScope, limits: dict[str, list[str]]) -> None:
    with pytest.raises(ValidationFailed):
        issue(ann, limits=limits)
