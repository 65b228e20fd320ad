"""Codes of apps and recovery codes: what is accepted, how often, who needs them, and what the trails say."""

import math
from collections.abc import Callable

import pytest

from appliance.core.config import Config, load_config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Conflict, NotFound, RateLimited, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.tenants import SignedIn, people
from appliance.tenants.second_factors import SecondFactors, factors, pending, recovery_codes
from appliance.tenants.sign_in import Attempt
from tests.agents.world import wait_until
from tests.tenants.second_factors.proofs import (
    ANN,
    BOB,
    HOST,
    PASSWORD,
    STEP_MS,
    Move,
    add_app,
    add_passkey,
    attempt_of,
    code_of,
    is_accepted,
    make_device,
    prove,
    use_passkey,
)
from tests.tenants.test_sign_in_trail import has_entries, trail


def test_a_code_is_accepted_once_and_no_earlier_one_after_it(service: SecondFactors, ann: SignedIn, move: Move) -> None:
    new = service.begin_app(ann.user_id, ann.login)
    secret, first = new.secret, code_of(new.secret)
    service.finish_app(ann, new.token, "Phone", first)
    assert not is_accepted(service, ann, first)
    move(STEP_MS)
    used, earlier = code_of(secret), code_of(secret, -1)
    assert prove(service, ann, f" {used[:3]} {used[3:]} ") == "totp"
    assert not is_accepted(service, ann, used)
    assert not is_accepted(service, ann, earlier)
    assert is_accepted(service, ann, code_of(secret, 1)), "clocks differ"
    move(5 * STEP_MS)
    assert not is_accepted(service, ann, code_of(secret, 3))
    assert not is_accepted(service, ann, code_of(secret, -3))


def test_an_app_is_added_with_its_code_and_for_its_owner(service: SecondFactors, ann: SignedIn, bob: SignedIn) -> None:
    new = service.begin_app(ann.user_id, ann.login)
    wrong = f"{(int(code_of(new.secret)) + 1) % 10**6:06}"
    with pytest.raises(ValidationFailed):
        service.finish_app(ann, new.token, "Phone", wrong)
    with pytest.raises(ValidationFailed):
        service.finish_app(ann, new.token, " ", code_of(new.secret))
    with pytest.raises(ApplianceError) as refused:
        service.finish_app(bob, new.token, "Phone", code_of(new.secret))
    assert refused.value.code == "proof_expired"
    assert (factors.list_factors(ann.user_id), factors.list_factors(bob.user_id)) == ([], [])


def test_a_form_of_a_new_app_expires(service: SecondFactors, ann: SignedIn, move: Move) -> None:
    new = service.begin_app(ann.user_id, ann.login)
    move(31 * 60_000)
    with pytest.raises(ApplianceError) as expired:
        service.finish_app(ann, new.token, "Phone", code_of(new.secret))
    assert expired.value.code == "proof_expired"


def test_secrets_and_codes_are_not_stored_in_the_clear(service: SecondFactors, ann: SignedIn) -> None:
    secret, codes = add_app(service, ann)
    ((sealed,),) = db.rows("SELECT sealed FROM second_factor")
    assert secret.encode() not in bytes(sealed)
    stored = [bytes(row[0]) for row in db.rows("SELECT digest FROM recovery_code")]
    assert len(stored) == 10
    assert not any(code.replace("-", "").encode() in digest for code in codes for digest in stored)


def test_wrong_codes_have_to_wait_and_are_in_the_trails(
    service: SecondFactors, ann: SignedIn, one: TenantScope, two: TenantScope
) -> None:
    add_app(service, ann)
    assert wait_after(lambda _: is_accepted(service, ann, "000000")) >= 1
    for scope in (one, two):
        wait_until(has_entries(scope, 1))
        fields = {"login": ANN, "network": "192.0.2.1", "times_today": 1, "factor": "totp"}
        assert trail(scope, "sign_in") == [("system", "sign_in.refuse", fields)]


def wait_after(guess: Callable[[int], object]) -> int:
    """The seconds to wait after as many guesses as are free."""
    try:
        for number in range(200):
            guess(number)
    except RateLimited as limited:
        return int(limited.headers["Retry-After"])
    raise AssertionError("200 guesses had not to wait")


def guess_from(service: SecondFactors, person: SignedIn, address: str) -> None:
    try:
        service.prove_by_code(attempt_of(person, address), person.user_id, "000000")
    except ApplianceError as error:
        if error.code != "factor_refused":
            raise


def test_guesses_from_many_networks_have_to_wait(service: SecondFactors, ann: SignedIn) -> None:
    secret, _ = add_app(service, ann)
    assert wait_after(lambda number: guess_from(service, ann, f"198.51.{number}.1")) > 200
    known = Attempt(ANN, "198.51.100.1", "a browser of hers")
    assert service.prove_by_code(known, ann.user_id, code_of(secret, 1)) == "totp", "nobody keeps her out of her browser"
    device = make_device()
    add_passkey(service, ann, device)
    assert use_passkey(service, ann, device) == "passkey", "nor from her passkey anywhere"


# -- recovery codes


def test_recovery_codes_have_112_bits_and_more(service: SecondFactors, ann: SignedIn) -> None:
    add_app(service, ann)
    codes = [service.replace_recovery_codes(ann.user_id) for _ in range(30)]
    plain = ["".join(code.split("-")) for each in codes for code in each]
    characters = set("".join(plain))
    assert min(map(len, plain)) * math.log2(len(characters)) >= 112
    assert len(set(plain)) == len(plain) == 300


def test_a_shorter_code_of_an_early_build_still_works(service: SecondFactors, ann: SignedIn, sealer: Sealer) -> None:
    add_app(service, ann)
    db.write(lambda: recovery_codes.store_codes(sealer, ann.user_id, ["abcd-efgh-jkmn-pqrs"]))
    assert prove(service, ann, "abcd-efgh-jkmn-pqrs") == "recovery_code"


def test_recovery_codes_work_once_each(service: SecondFactors, ann: SignedIn, bob: SignedIn, one: TenantScope) -> None:
    _, codes = add_app(service, ann)
    assert len(set(codes)) == 10
    assert prove(service, ann, codes[0].upper().replace("-", " ")) == "recovery_code"
    assert not is_accepted(service, ann, codes[0])
    assert not is_accepted(service, bob, codes[1])
    assert service.methods_of(ann.user_id).recovery_codes == 9
    assert (f"user:{ann.user_id}", "factor.use_recovery_code", {"left": 9}) in trail(one, "factor")


def test_new_recovery_codes_replace_the_earlier_ones(service: SecondFactors, ann: SignedIn, bob: SignedIn) -> None:
    _, old = add_app(service, ann)
    new = service.replace_recovery_codes(ann.user_id)
    assert not is_accepted(service, ann, old[0])
    assert is_accepted(service, ann, new[0])
    with pytest.raises(Conflict):
        service.replace_recovery_codes(bob.user_id)


# -- the factors of an account


def test_renaming_and_removing(service: SecondFactors, ann: SignedIn, bob: SignedIn, one: TenantScope) -> None:
    add_app(service, ann)
    add_passkey(service, ann, make_device())
    app, passkey = factors.list_factors(ann.user_id)
    factors.rename_factor(ann.user_id, app.id, "Old phone")
    with pytest.raises(NotFound):
        factors.rename_factor(bob.user_id, app.id, "Mine")
    with pytest.raises(NotFound):
        factors.remove_factor(bob.user_id, app.id)
    factors.remove_factor(ann.user_id, passkey.id)
    assert [each.name for each in factors.list_factors(ann.user_id)] == ["Old phone"]
    assert service.methods_of(ann.user_id).recovery_codes == 10
    factors.remove_factor(ann.user_id, app.id)
    assert not service.methods_of(ann.user_id).is_needed
    assert db.rows("SELECT COUNT(*) FROM recovery_code") == [(0,)]
    assert [(action, fields) for _, action, fields in trail(one, "factor")] == [
        ("factor.add", {"kind": "totp", "name": "Phone"}),
        ("factor.new_recovery_codes", {"codes": 10}),
        ("factor.add", {"kind": "passkey", "name": "Laptop"}),
        ("factor.rename", {"kind": "totp", "name": ["Phone", "Old phone"]}),
        ("factor.remove", {"kind": "passkey", "name": "Laptop"}),
        ("factor.remove", {"kind": "totp", "name": "Old phone"}),
    ]


def test_an_account_has_a_limited_number_of_factors(service: SecondFactors, ann: SignedIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factors, "MOST", 1)
    add_app(service, ann)
    with pytest.raises(Conflict):
        add_app(service, ann)


def test_the_operator_removes_every_factor(service: SecondFactors, ann: SignedIn, one: TenantScope, two: TenantScope) -> None:
    _, codes = add_app(service, ann)
    assert factors.reset_factors(ANN.upper()) == 1
    assert not is_accepted(service, ann, codes[0])
    assert db.rows("SELECT COUNT(*) FROM session") == [(0,)]
    for scope in (one, two):
        assert trail(scope, "factor")[-1] == ("system", "factor.reset", {"login": ANN, "factors": 1})


# -- who needs a factor, and a fresh proof


def require(config: Config, sealer: Sealer, roles: tuple[str, ...], **more: object) -> SecondFactors:
    flags = {"domains.base": HOST, "storage.data": str(config.data), "second_factor.required_for": list(roles)}
    return SecondFactors(load_config(environment={}, flags=flags | {f"second_factor.{k}": v for k, v in more.items()}), sealer)


def test_roles_that_need_a_factor(config: Config, sealer: Sealer, ann: SignedIn, bob: SignedIn, one: TenantScope) -> None:
    for roles, needy in (((), ()), (("owner",), (ANN,)), (("viewer", "approver"), (ANN, BOB)), (("approver",), ())):
        service = require(config, sealer, roles)
        assert tuple(each.login for each in (ann, bob) if service.must_add_factor(each)) == needy
    people.add_member(one, BOB, "viewer", approver=True)
    service = require(config, sealer, ("approver",))
    assert service.must_add_factor(bob)
    add_app(service, bob)
    assert not service.must_add_factor(bob)


def test_a_provider_answers_for_its_sign_ins(config: Config, sealer: Sealer, ann: SignedIn, move: Move) -> None:
    service = require(config, sealer, ("owner",))
    values = (ann.root, ann.user_id, "https://id.example", "ann", "", 0)
    sql = "INSERT INTO provider_sign_in (root, user_id, issuer, subject, sid, created_at) VALUES (?, ?, ?, ?, ?, ?)"
    db.write(lambda: db.execute(sql, values))
    assert not service.must_add_factor(ann)
    move(11 * 60_000)
    assert service.find_due(ann) == "add", "not for what is sensitive"


def test_a_proof_lasts_some_minutes(service: SecondFactors, ann: SignedIn, move: Move) -> None:
    add_app(service, ann)
    assert service.find_due(ann) == ""
    move(11 * 60_000)
    assert service.find_due(ann) == "prove"


def test_accounts_without_a_factor_are_asked_for_the_password_if_configured(
    config: Config, sealer: Sealer, ann: SignedIn, move: Move
) -> None:
    move(11 * 60_000)
    assert require(config, sealer, ()).find_due(ann) == ""
    service = require(config, sealer, (), step_up_password=True)
    assert service.find_due(ann) == "prove"
    add_app(service, ann)
    assert not service.takes_password(ann.user_id)


def test_some_actions_ask_for_a_password_that_signs_in(
    config: Config, sealer: Sealer, ann: SignedIn, bob: SignedIn, move: Move
) -> None:
    move(11 * 60_000)
    assert require(config, sealer, ()).find_due(ann, asks_password=True) == "prove"
    flags = {"storage.data": str(config.data), "sign_in.local_accounts": False, "sign_in.break_glass": ANN}
    provider = {"id": "corp", "issuer": "https://id.example", "client_id": "gos", "client_secret": "s"}
    without = SecondFactors(load_config(environment={}, flags=flags | {"sign_in.providers": [provider]}), sealer)
    assert without.find_due(bob, asks_password=True) == "", "it signs in elsewhere, and may not know the password"
    assert without.find_due(ann, asks_password=True) == "prove"


# -- the second half of a sign-in


def test_a_pending_sign_in_ends_with_the_password(ann: SignedIn, sealer: Sealer, move: Move) -> None:
    cookie = pending.seal_pending(sealer, people.find_user(ANN), {"tenant": "one"})
    waiting = pending.open_pending(sealer, cookie)
    assert waiting is not None
    assert waiting.onward == {"tenant": "one"}
    person = pending.find_checked(sealer, waiting)
    assert person is not None
    assert person.login == ANN
    people.set_password(ANN, f"{PASSWORD}, another")
    assert pending.find_checked(sealer, waiting) is None
    assert pending.open_pending(Sealer(b"x" * 32), cookie) is None
    assert pending.open_pending(sealer, "forged") is None
    move(11 * 60_000)
    assert pending.open_pending(sealer, cookie) is None
