"""New passwords are long and not easy to guess; existing ones continue to work."""

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ValidationFailed
from appliance.core.scope import TenantScope
from appliance.tenants import people
from appliance.tenants.sign_in.password_checks import SignInFailed

LOGIN = "ann.berger@firma.example"
GOOD = "seven green bottles hum"
EASY = [
    "passwordpassword", "password123456789", "P@ssw0rdP@ssw0rd", "administrator2026", "changeme-changeme",  # common ones
    "aaaaaaaaaaaaaaaa", "abcabcabcabcabcabc", "x" * 1000, "1234567890123456", "qwertyuiopasdfgh", "abcdefghijklmnopq",
    "ann.berger@firma.example", "ANN.Berger@firma.example1", "ann.berger2026!", "Ann.BergerAnn.Berger",  # the login
    "governed operations service", "Governed-Operations-Service1", "gosgosgosgosgosgos",  # the product
]


@pytest.mark.parametrize("password", EASY)
def test_a_password_that_is_easy_to_guess_is_refused(database: None, password: str) -> None:
    with pytest.raises(ValidationFailed, match=r"too easy to guess.*choose several words") as refused:
        people.create_user(LOGIN, password)
    assert refused.value.details[0].pointer == "/password"
    assert password not in str(refused.value)


FINE = [GOOD, "tQ2bL8-xkZpA_91mm", "ein Wal fährt morgens Rad", "猫は午前三時にピアノを弾くのが好きです", "y%4" + GOOD * 40]


@pytest.mark.parametrize("password", FINE)
def test_anything_else_is_a_password_whatever_it_consists_of(database: None, password: str) -> None:
    people.create_user(LOGIN, password)
    assert people.check_password(LOGIN, password).login == LOGIN


@pytest.mark.parametrize("length", [0, 1, 14, 1001])
def test_a_password_has_15_to_1000_characters(database: None, length: int) -> None:
    with pytest.raises(ValidationFailed, match="a password must have 15 to 1000 characters"):
        people.create_user(LOGIN, (GOOD * 50)[:length])
    people.create_user(LOGIN, GOOD[:15])


def test_the_rules_hold_for_each_way_to_choose_a_password_and_not_for_an_existing_one(one: TenantScope) -> None:
    people.create_user(LOGIN, GOOD)
    weak = people._hasher.hash("swordfish")
    db.write(lambda: db.execute("UPDATE person SET password_hash = ?", (weak,)))
    assert people.check_password(LOGIN, "swordfish").login == LOGIN
    with pytest.raises(ValidationFailed, match="too easy to guess"):
        people.set_password("ANN.BERGER@firma.example", "ann.berger2026!")
    with pytest.raises(ValidationFailed, match="too easy to guess"):
        people.change_password(one, LOGIN, "swordfish", "ann.berger2026!")
    people.change_password(one, LOGIN, "swordfish", GOOD)
    assert people.check_password(LOGIN, GOOD).login == LOGIN


def test_a_password_counts_as_it_was_typed_and_as_long_as_nobody_changes_it(database: None) -> None:
    typed = f"  {GOOD}, " + "Über 72 Bytes hinaus " * 4 + " "
    people.create_user(LOGIN, typed)
    others = [typed.strip(), typed.lower(), typed[:72], typed[:-1], typed.replace("Ü", "U\u0308"), f"{typed} "]
    for other in others:
        with pytest.raises(SignInFailed):
            people.check_password(LOGIN, other)
    clock.move(10 * 365 * 86_400_000)
    try:
        assert people.check_password(LOGIN, typed).login == LOGIN
    finally:
        clock.move(-10 * 365 * 86_400_000)


def test_nothing_can_follow_the_longest_password(database: None) -> None:
    longest = (GOOD * 50)[:1000]
    people.create_user(LOGIN, longest)
    assert people.check_password(LOGIN, longest).login == LOGIN
    with pytest.raises(SignInFailed):
        people.check_password(LOGIN, f"{longest}x")
