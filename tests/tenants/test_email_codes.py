"""E-mail codes: valid once, for one target and browser, without revealing which addresses are allowed."""

from collections.abc import Callable

import pytest

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import RateLimited, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.tenants.sign_in import email_codes, open_counts
from appliance.tenants.sign_in.email_addresses import MAX_LISTED, is_listed, parse_email, validate_allowlist
from appliance.tenants.sign_in.email_codes import CodeCheck, CodeTarget, EmailCodes
from tests.store.conftest import on_server

ANN, EVE = "ann@firma.example", "eve@evil.example"
NETWORK = "192.0.2.1"
HOST = "shop--one.content.localhost"


@pytest.fixture
def make(sealer: Sealer, database: None) -> Callable[[], EmailCodes]:
    """Makes the codes of a process."""
    return lambda: EmailCodes(sealer, open_counts)


@pytest.fixture
def codes(make: Callable[[], EmailCodes]) -> EmailCodes:
    return make()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Milliseconds by which the clock is ahead."""
    ahead, now, monotonic = [0], clock.now_ms, clock.monotonic
    monkeypatch.setattr(clock, "now_ms", lambda: now() + ahead[0])
    monkeypatch.setattr(clock, "monotonic", lambda: monotonic() + ahead[0] / 1000)
    return ahead


def test_a_code_is_valid_once_for_one_target(codes: EmailCodes, one: TenantScope, two: TenantScope) -> None:
    target = CodeTarget(one, "webapp:shop", HOST)
    code = codes.issue(target, ANN, NETWORK, allowed=True)
    assert len(code.code) == email_codes.DIGITS
    others = (
        CodeTarget(two, "webapp:shop", HOST),
        CodeTarget(one, "share:shop", HOST),
        CodeTarget(one, "webapp:shop", "shop.example"),
    )
    for other in others:
        assert codes.check(other, code.id, code.code, NETWORK).email == ""
    another = codes.issue(target, ANN, NETWORK, allowed=True)
    assert codes.check(target, another.id, code.code, NETWORK).email == ""
    assert codes.check(target, code.id, f" {code.code[:4]} {code.code[4:]} ", NETWORK) == CodeCheck(ANN)
    assert codes.check(target, code.id, code.code, NETWORK) == CodeCheck(is_over=True)
    assert code.code not in repr(db.rows("SELECT * FROM email_code"))


def test_a_code_expires_after_five_tries_or_ten_minutes(codes: EmailCodes, one: TenantScope, later: list[int]) -> None:
    target = CodeTarget(one, "share:shr_1", HOST)
    code = codes.issue(target, ANN, NETWORK, allowed=True)
    wrong_code = "0" * 8 if code.code != "0" * 8 else "1" * 8
    assert [codes.check(target, code.id, wrong_code, NETWORK).is_over for _ in range(5)] == [False] * 4 + [True]
    assert codes.check(target, code.id, code.code, NETWORK).email == ""
    second = codes.issue(target, ANN, NETWORK, allowed=True)
    later[0] = email_codes.LIFETIME_MS
    assert codes.check(target, second.id, second.code, NETWORK) == CodeCheck(is_over=True)


def test_a_refused_address_is_indistinguishable_from_an_allowed_one(codes: EmailCodes, one: TenantScope) -> None:
    target, results = CodeTarget(one, "share:shr_1", HOST), []
    for email, allowed in ((ANN, True), (EVE, False)):
        code = codes.issue(target, email, NETWORK, allowed=allowed)
        assert bool(code.code) == allowed
        tries = [codes.check(target, code.id, "nonsense", NETWORK) for _ in range(6)]
        with pytest.raises(RateLimited) as caught:
            [codes.issue(target, email, NETWORK, allowed=allowed) for _ in range(10)]
        results.append((tries, caught.value.message))
    assert results[0] == results[1]


def try_issue(codes: EmailCodes, target: CodeTarget, address: str, *, allowed: bool = True, email: str = ANN) -> str:
    """Why no code is on its way from this address; empty when one is."""
    try:
        codes.issue(target, email, address, allowed=allowed)
    except RateLimited as error:
        return error.message
    return ""


def test_the_limit_of_a_network_affects_no_other(codes: EmailCodes, one: TenantScope, later: list[int]) -> None:
    target = CodeTarget(one, "share:shr_1", HOST)
    errors = [try_issue(codes, target, "2001:db8::1") for _ in range(email_codes.MAX_PER_NETWORK + 1)]
    assert errors[:-1] == [""] * email_codes.MAX_PER_NETWORK
    assert "codes were requested for this address within an hour" in errors[-1]
    assert try_issue(codes, target, "2001:db8::ffff") == errors[-1], "one /64 is one network"
    assert try_issue(codes, target, "198.51.100.1") == "", "the owner sits elsewhere"
    later[0] = email_codes.WINDOW_MS
    assert try_issue(codes, target, "2001:db8::1") == ""


def test_codes_are_reserved_for_proven_networks(codes: EmailCodes, one: TenantScope) -> None:
    target, home = CodeTarget(one, "share:shr_1", HOST), "203.0.113.9"
    proven = codes.issue(target, ANN, home, allowed=True)
    assert codes.check(target, proven.id, proven.code, home).email == ANN
    from_strangers = [try_issue(codes, target, f"10.1.0.{number}") == "" for number in range(60)]
    assert sum(from_strangers) == email_codes.MAX_PER_ADDRESS - email_codes.RESERVED_FOR_PROVEN - 1
    from_owner = [try_issue(codes, target, home) == "" for _ in range(email_codes.MAX_PER_NETWORK + 1)]
    assert from_owner == [True] * email_codes.MAX_PER_NETWORK + [False]
    sent = db.rows("SELECT count(*) FROM email_code WHERE email = ?", (ANN,))[0][0]
    assert sent <= email_codes.MAX_PER_ADDRESS, "mail to an address is bounded whoever asks"


def test_refused_addresses_are_limited_like_allowed_ones(codes: EmailCodes, one: TenantScope) -> None:
    target = CodeTarget(one, "share:shr_1", HOST)
    results = [
        [try_issue(codes, target, f"10.1.0.{number // 3}", allowed=allowed, email=email) for number in range(60)]
        for email, allowed in ((ANN, True), (EVE, False))
    ]
    assert results[0] == results[1]


@on_server
def test_processes_count_the_codes_of_a_network_together(make: Callable[[], EmailCodes], one: TenantScope) -> None:
    here, there, target = make(), make(), CodeTarget(one, "share:shr_1", HOST)
    issued = [try_issue(each, target, NETWORK) == "" for each in (here, there) * 3]
    assert issued == [True] * email_codes.MAX_PER_NETWORK + [False]
    proven = here.issue(target, ANN, "198.51.100.1", allowed=True)
    assert there.check(target, proven.id, proven.code, "198.51.100.1").email == ANN
    for number in range(20):
        try_issue(here, target, f"10.1.0.{number}")
    assert try_issue(here, target, "10.1.1.1") != ""
    assert try_issue(here, target, "198.51.100.1") == "", "some are reserved for whoever has proven the address, there or here"


def test_codes_are_purged_after_an_hour(codes: EmailCodes, one: TenantScope) -> None:
    codes.issue(CodeTarget(one, "share:shr_1", HOST), ANN, NETWORK, allowed=True)
    assert email_codes.purge(clock.now_ms()) == 0
    assert email_codes.purge(clock.now_ms() + email_codes.RETENTION_MS) == 1


def test_an_allowlist_accepts_addresses_and_whole_domains() -> None:
    allowlist = validate_allowlist([" Ann@Else.example", "*@firma.example"], "/allow")
    assert allowlist == ("ann@else.example", "*@firma.example")
    cases = ((ANN, True), ("ANN@else.example", True), ("bob@else.example", False), ("", False), ("@firma.example", False))
    for email, is_allowed in cases:
        assert is_listed(email, allowlist) == is_allowed
    assert not is_listed("a@b.firma.example", allowlist)
    assert parse_email(" Ann@Firma.example ") == ANN
    for invalid in ("ann", "ann@firma", "a b@firma.example", "ann@firma.example\n@x", f"{'a' * 65}@firma.example"):
        assert parse_email(invalid) == ""


@pytest.mark.parametrize(
    ("entries", "pointer"),
    [([], "/allow"), (["a@b.example"] * (MAX_LISTED + 1), "/allow"), (["a@b.example", "nobody"], "/allow/1"), (["*"], "/allow/0")],
)
def test_an_invalid_allowlist_is_refused(entries: list[str], pointer: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        validate_allowlist(entries, "/allow")
    assert caught.value.details[0].pointer == pointer
    assert validate_allowlist(["*"], "/allow", "*") == ("*",)
