"""Sign-in cannot be used to fill the memory or to hold up everybody else."""

from concurrent.futures import wait
from threading import Event

import pytest

from appliance.console import passwords
from appliance.core.errors import ApplianceError, Overloaded
from appliance.tenants import people
from appliance.tenants.models import Person
from appliance.testing.running import Running


def test_a_flood_of_sign_ins_is_refused_instead_of_queued_for_ever(
    staff: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_asked, check_at_once = Event(), people.check_password

    def check_once_all_asked(login: str, password: str) -> Person:
        all_asked.wait(60)
        return check_at_once(login, password)

    monkeypatch.setattr(people, "check_password", check_once_all_asked)
    under_way = [passwords.check("nobody@flood.test", "wrong") for _ in range(passwords.MOST_WAITING)]
    try:
        with pytest.raises(Overloaded, match="try again in a moment"):
            passwords.check("nobody@flood.test", "wrong")
    finally:
        all_asked.set()
    wait(under_way)
    assert {type(work.exception()).__mro__[1] for work in under_way} == {ApplianceError}
    assert passwords.check("nobody@flood.test", "wrong").exception() is not None, "places are given back"
