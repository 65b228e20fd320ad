"""Codes that come by e-mail: good once, for one door and one browser, and telling nothing about who is allowed."""

import pytest

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import RateLimited, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.tenants.sign_in import email_codes
from appliance.tenants.sign_in.email_addresses import MAX_LISTED, is_listed, parse_email, validate_allowlist
from appliance.tenants.sign_in.email_codes import CodeCheck, CodeTarget, EmailCodes

ANN, EVE = "ann@firma.example", "eve@evil.example"
HERE = "192.0.2.1"
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
    door = CodeTarget(one, "webapp:shop", HOST)
    asked = codes.issue(door, ANN, HERE, allowed=True)
    assert len(asked.code) == email_codes.DIGITS
    others = (
        CodeTarget(two, "webapp:shop", HOST),
        CodeTarget(one, "share:shop", HOST),
        CodeTarget(one, "webapp:shop", "shop.example"),
    )
    for other in others:
        assert codes.check(other, asked.id, asked.code, HERE).email == ""
    another = codes.issue(door, ANN, HERE, allowed=True)
    assert codes.check(door, another.id, asked.code, HERE).email == ""
    assert codes.check(door, asked.id, f" {asked.code[:4]} {asked.code[4:]} ", HERE) == CodeCheck(ANN)
    assert codes.check(door, asked.id, asked.code, HERE) == CodeCheck(is_over=True)
    assert asked.code not in repr(db.rows("SELECT * FROM email_code"))


def test_a_code_is_over_after_five_tries_or_ten_minutes(codes: EmailCodes, one: TenantScope, later: list[int]) -> None:
    door = CodeTarget(one, "share:shr_1", HOST)
    asked = codes.issue(door, ANN, HERE, allowed=True)
    wrong = "0" * 8 if asked.code != "0" * 8 else "1" * 8
    assert [codes.check(door, asked.id, wrong, HERE).is_over for _ in range(5)] == [False] * 4 + [True]
    assert codes.check(door, asked.id, asked.code, HERE).email == ""
    late = codes.issue(door, ANN, HERE, allowed=True)
    later[0] = email_codes.LIFETIME_MS
    assert codes.check(door, late.id, late.code, HERE) == CodeCheck(is_over=True)


def test_an_address_that_gets_no_code_behaves_like_one_that_does(codes: EmailCodes, one: TenantScope) -> None:
    door, told = CodeTarget(one, "share:shr_1", HOST), []
    for email, allowed in ((ANN, True), (EVE, False)):
        asked = codes.issue(door, email, HERE, allowed=allowed)
        assert bool(asked.code) == allowed
        tries = [codes.check(door, asked.id, "nonsense", HERE) for _ in range(6)]
        with pytest.raises(RateLimited) as limited:
            [codes.issue(door, email, HERE, allowed=allowed) for _ in range(10)]
        told.append((tries, limited.value.message))
    assert told[0] == told[1]


def limited(codes: EmailCodes, door: CodeTarget, address: str, *, allowed: bool = True, email: str = ANN) -> str:
    """Why no code is on its way from this address; empty when one is."""
    try:
        codes.issue(door, email, address, allowed=allowed)
    except RateLimited as error:
        return error.message
    return ""


def test_a_network_uses_up_its_own_codes_alone(codes: EmailCodes, one: TenantScope, later: list[int]) -> None:
    door = CodeTarget(one, "share:shr_1", HOST)
    asked = [limited(codes, door, "2001:db8::1") for _ in range(email_codes.MAX_PER_NETWORK + 1)]
    assert asked[:-1] == [""] * email_codes.MAX_PER_NETWORK
    assert "codes were requested for this address within an hour" in asked[-1]
    assert limited(codes, door, "2001:db8::ffff") == asked[-1], "one /64 is one network"
    assert limited(codes, door, "198.51.100.1") == "", "the owner sits elsewhere"
    later[0] = email_codes.WINDOW_MS
    assert limited(codes, door, "2001:db8::1") == ""


def test_strangers_from_everywhere_leave_codes_to_who_has_come_in_before(codes: EmailCodes, one: TenantScope) -> None:
    door, home = CodeTarget(one, "share:shr_1", HOST), "203.0.113.9"
    mine = codes.issue(door, ANN, home, allowed=True)
    assert codes.check(door, mine.id, mine.code, home).email == ANN
    strangers = [limited(codes, door, f"10.1.0.{number}") == "" for number in range(60)]
    assert sum(strangers) == email_codes.MAX_PER_ADDRESS - email_codes.RESERVED_FOR_PROVEN - 1
    owner = [limited(codes, door, home) == "" for _ in range(email_codes.MAX_PER_NETWORK + 1)]
    assert owner == [True] * email_codes.MAX_PER_NETWORK + [False]
    sent = db.rows("SELECT count(*) FROM email_code WHERE email = ?", (ANN,))[0][0]
    assert sent <= email_codes.MAX_PER_ADDRESS, "mail to an address is bounded whoever asks"


def test_addresses_that_get_none_are_counted_alike(codes: EmailCodes, one: TenantScope) -> None:
    door = CodeTarget(one, "share:shr_1", HOST)
    told = [
        [limited(codes, door, f"10.1.0.{number // 3}", allowed=allowed, email=email) for number in range(60)]
        for email, allowed in ((ANN, True), (EVE, False))
    ]
    assert told[0] == told[1]


def test_what_is_kept_of_networks_is_bounded(
    codes: EmailCodes, one: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(email_codes, "MAX_TRACKED", 10)
    for number in range(40):
        made = codes.issue(CodeTarget(one, f"share:shr_{number}", HOST), ANN, HERE, allowed=True)
        codes.check(CodeTarget(one, f"share:shr_{number}", HOST), made.id, made.code, HERE)
        codes.issue(CodeTarget(one, f"share:shr_{number}", HOST), EVE, HERE, allowed=False)
    assert len(codes._networks._requests) <= 10
    assert len(codes._networks._proven) <= 10


def test_codes_are_forgotten_after_an_hour(codes: EmailCodes, one: TenantScope) -> None:
    codes.issue(CodeTarget(one, "share:shr_1", HOST), ANN, HERE, allowed=True)
    assert email_codes.purge(clock.now_ms()) == 0
    assert email_codes.purge(clock.now_ms() + email_codes.RETENTION_MS) == 1


def test_a_list_lets_in_addresses_and_whole_domains() -> None:
    listed = validate_allowlist([" Ann@Else.example", "*@firma.example"], "/allow")
    assert listed == ("ann@else.example", "*@firma.example")
    known_or_not = ((ANN, True), ("ANN@else.example", True), ("bob@else.example", False), ("", False), ("@firma.example", False))
    for email, known in known_or_not:
        assert is_listed(email, listed) == known
    assert not is_listed("a@b.firma.example", listed)
    assert parse_email(" Ann@Firma.example ") == ANN
    for wrong in ("ann", "ann@firma", "a b@firma.example", "ann@firma.example\n@x", f"{'a' * 65}@firma.example"):
        assert parse_email(wrong) == ""


@pytest.mark.parametrize(
    ("entries", "pointer"),
    [([], "/allow"), (["a@b.example"] * (MAX_LISTED + 1), "/allow"), (["a@b.example", "nobody"], "/allow/1"), (["*"], "/allow/0")],
)
def test_a_list_that_names_nobody_is_refused(entries: list[str], pointer: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        validate_allowlist(entries, "/allow")
    assert refused.value.details[0].pointer == pointer
    assert validate_allowlist(["*"], "/allow", "*") == ("*",)
