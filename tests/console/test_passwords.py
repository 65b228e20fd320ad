"""Sign-in cannot be used to fill the memory or to hold up everybody else."""

from concurrent.futures import wait

import pytest

from appliance.console import passwords
from appliance.core.errors import ApplianceError, Overloaded
from appliance.testing.running import Running


def test_a_flood_of_sign_ins_is_refused_instead_of_queued_for_ever(staff: Running) -> None:
    under_way = [passwords.check("nobody@flood.test", "wrong") for _ in range(passwords.MOST_WAITING)]
    with pytest.raises(Overloaded, match="try again in a moment"):
        passwords.check("nobody@flood.test", "wrong")
    wait(under_way)
    assert {type(work.exception()).__mro__[1] for work in under_way} == {ApplianceError}
    assert passwords.check("nobody@flood.test", "wrong").exception() is not None, "places are given back"
