"""Somebody whose account is disabled decides nothing and is asked nothing."""

import pytest

from appliance.core.errors import PolicyDenied
from appliance.governance.approvals.deciders import Audience, check_may_decide, find_decidable, find_deciders
from appliance.tenants import accounts, people
from tests.integrations.world import World

LOGIN = "ann@one.test"
APPROVAL = Audience("approval", (), (), is_of_execution=False)


def test_a_disabled_approver_decides_nothing(world: World) -> None:
    ann = people.create_user(LOGIN, "a long enough password").id
    people.add_member(world.one, LOGIN, "owner")
    assert find_decidable(world.one, ann, {"apr_1": APPROVAL}) == {"apr_1"}
    assert [each.login for each in find_deciders(world.one, APPROVAL)] == [LOGIN]
    accounts.disable_account(LOGIN, may_leave_ownerless=True)
    assert find_decidable(world.one, ann, {"apr_1": APPROVAL}) == set()
    assert find_deciders(world.one, APPROVAL) == []
    with pytest.raises(PolicyDenied, match="only members"):
        check_may_decide(world.one, ann, APPROVAL)
