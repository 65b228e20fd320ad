"""Codes that come by e-mail: good once, for one door and one browser, and telling nothing about who is allowed."""

import pytest

from appliance.core import clock, db
from appliance.core.crypto import Sealer
from appliance.core.errors import RateLimited, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.tenants import email_codes
from appliance.tenants.email_addresses import MOST_LISTED, as_email, check_listed, is_listed
from appliance.tenants.email_codes import Checked, Door, EmailCodes

ANN, EVE = "ann@firma.example", "eve@evil.example"
HOST = "shop--one.content.localhost"


@pytest.fixture
def codes(sealer: Sealer) -> EmailCodes:
    return EmailCodes(sealer)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Milliseconds by which the clock is ahead."""
    ahead, now = [0], clock.now_ms
    monkeypatch.setattr(clock, "now_ms", lambda: now() + ahead[0])
    return ahead


def test_a_code_is_good_once_for_one_door(codes: EmailCodes, one: TenantScope, two: TenantScope) -> None:
    door = Door(one, "webapp:shop", HOST)
    asked = codes.ask(door, ANN, allowed=True)
    assert len(asked.code) == email_codes.DIGITS
    others = (Door(two, "webapp:shop", HOST), Door(one, "share:shop", HOST), Door(one, "webapp:shop", "shop.example"))
    for other in others:
        assert codes.take(other, asked.id, asked.code).email == ""
    another = codes.ask(door, ANN, allowed=True)
    assert codes.take(door, another.id, asked.code).email == ""
    assert codes.take(door, asked.id, f" {asked.code[:4]} {asked.code[4:]} ") == Checked(ANN)
    assert codes.take(door, asked.id, asked.code) == Checked(is_over=True)
    assert asked.code not in repr(db.rows("SELECT * FROM email_code"))


def test_a_code_is_over_after_five_tries_or_ten_minutes(codes: EmailCodes, one: TenantScope, later: list[int]) -> None:
    door = Door(one, "share:shr_1", HOST)
    asked = codes.ask(door, ANN, allowed=True)
    wrong = "0" * 8 if asked.code != "0" * 8 else "1" * 8
    assert [codes.take(door, asked.id, wrong).is_over for _ in range(5)] == [False] * 4 + [True]
    assert codes.take(door, asked.id, asked.code).email == ""
    late = codes.ask(door, ANN, allowed=True)
    later[0] = email_codes.GOOD_MS
    assert codes.take(door, late.id, late.code) == Checked(is_over=True)


def test_an_address_that_gets_no_code_behaves_like_one_that_does(codes: EmailCodes, one: TenantScope) -> None:
    door, told = Door(one, "share:shr_1", HOST), []
    for email, allowed in ((ANN, True), (EVE, False)):
        asked = codes.ask(door, email, allowed=allowed)
        assert bool(asked.code) == allowed
        tries = [codes.take(door, asked.id, "nonsense") for _ in range(6)]
        with pytest.raises(RateLimited) as limited:
            [codes.ask(door, email, allowed=allowed) for _ in range(10)]
        told.append((tries, limited.value.message))
    assert told[0] == told[1]


def test_codes_are_forgotten_after_an_hour(codes: EmailCodes, one: TenantScope) -> None:
    codes.ask(Door(one, "share:shr_1", HOST), ANN, allowed=True)
    assert email_codes.purge(clock.now_ms()) == 0
    assert email_codes.purge(clock.now_ms() + email_codes.KEPT_MS) == 1


def test_a_list_lets_in_addresses_and_whole_domains() -> None:
    listed = check_listed([" Ann@Else.example", "*@firma.example"], "/allow")
    assert listed == ("ann@else.example", "*@firma.example")
    known_or_not = ((ANN, True), ("ANN@else.example", True), ("bob@else.example", False), ("", False), ("@firma.example", False))
    for email, known in known_or_not:
        assert is_listed(email, listed) == known
    assert not is_listed("a@b.firma.example", listed)
    assert as_email(" Ann@Firma.example ") == ANN
    for wrong in ("ann", "ann@firma", "a b@firma.example", "ann@firma.example\n@x", f"{'a' * 65}@firma.example"):
        assert as_email(wrong) == ""


@pytest.mark.parametrize(
    ("entries", "pointer"),
    [([], "/allow"), (["a@b.example"] * (MOST_LISTED + 1), "/allow"), (["a@b.example", "nobody"], "/allow/1"), (["*"], "/allow/0")],
)
def test_a_list_that_names_nobody_is_refused(entries: list[str], pointer: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        check_listed(entries, "/allow")
    assert refused.value.details[0].pointer == pointer
    assert check_listed(["*"], "/allow", "*") == ("*",)
