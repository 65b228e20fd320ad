"""What a failed step says to do next."""

import pytest

from appliance.processes.engine.failures import NEXT_ACTIONS, make_error


@pytest.mark.parametrize("failure_class", sorted(NEXT_ACTIONS))
def test_the_class_says_what_to_do(failure_class: str) -> None:
    assert make_error("some_code", failure_class, "It failed.")["next"] == NEXT_ACTIONS[failure_class]


def test_a_refused_address_is_no_missing_grant() -> None:
    error = make_error("address_not_allowed", "policy", "The address localhost:18080 is not reachable from here.")
    assert "egress.allow" in error["next"]
    assert "grant" not in error["next"]
