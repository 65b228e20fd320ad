"""Passkeys: whose, for which host and how often they are accepted."""

import json
from pathlib import Path

import pytest

from appliance.core.config import Config, load_config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Conflict
from appliance.core.scope import TenantScope
from appliance.tenants import SignedIn, accounts
from appliance.tenants.second_factors import SecondFactors
from tests.tenants.second_factors.authenticator import Authenticator, decode, encode
from tests.tenants.second_factors.proofs import (
    ANN,
    HOST,
    ORIGIN,
    Move,
    add_passkey,
    attempt_of,
    code_of_refusal,
    make_device,
    options_of,
    sign_in_by_passkey,
    use_passkey,
)
from tests.tenants.test_sign_in_trail import trail


def test_a_passkey_proves_and_signs_in(service: SecondFactors, ann: SignedIn, one: TenantScope, two: TenantScope) -> None:
    device = make_device()
    assert len(add_passkey(service, ann, device)) == 10
    assert use_passkey(service, ann, device) == "passkey"
    assert sign_in_by_passkey(service, device) == ANN
    for scope in (one, two):
        assert (f"user:{ann.user_id}", "factor.add", {"kind": "passkey", "name": "Laptop"}) in trail(scope, "factor")


def test_the_options_name_the_base_host_and_the_known_passkeys(service: SecondFactors, ann: SignedIn) -> None:
    device = make_device()
    add_passkey(service, ann, device)
    creation = options_of(service.passkeys.begin_registration(ann.user_id, ann.login).options)
    known = [{"type": "public-key", "id": encode(device.credential_id)}]
    assert (creation["rp"]["id"], creation["excludeCredentials"]) == (HOST, known)  # type: ignore[index]
    assert creation["attestation"] == "none"
    proof = options_of(service.passkeys.begin("a test", ann.user_id).options)
    assert (proof["rpId"], proof["allowCredentials"]) == (HOST, known)
    anybody = options_of(service.begin_sign_in().options)
    assert (anybody["userVerification"], anybody.get("allowCredentials")) == ("required", None)


def test_another_origin_and_another_host_are_refused(service: SecondFactors, ann: SignedIn) -> None:
    for origin in ("http://acme.gos.example:8080", "https://gos.example:8080", "http://gos.example", "http://evil.example:8080"):
        with pytest.raises(ApplianceError, match="answer was not accepted"):
            add_passkey(service, ann, Authenticator(origin, HOST))
    with pytest.raises(ApplianceError, match="answer was not accepted"):
        add_passkey(service, ann, Authenticator(ORIGIN, "example"))
    device = make_device()
    add_passkey(service, ann, device)
    lies = {"origin": "http://acme.gos.example:8080", "rp_id": "acme.gos.example", "client": {"crossOrigin": True}}
    for member, value in lies.items():
        right = getattr(device, member)
        setattr(device, member, value)
        assert code_of_refusal(service, ann, device) == "factor_refused"
        setattr(device, member, right)
    device.client = {"type": "webauthn.create"}
    assert code_of_refusal(service, ann, device) == "factor_refused"
    device.client = {}
    assert use_passkey(service, ann, device) == "passkey"


def test_a_signature_counts_once(service: SecondFactors, ann: SignedIn) -> None:
    device = make_device()
    ceremony = service.passkeys.begin_registration(ann.user_id, ann.login)
    creation = device.create(options_of(ceremony.options))
    service.finish_passkey(ann, ceremony.token, creation, "Laptop")
    with pytest.raises(ApplianceError) as replayed:
        service.finish_passkey(ann, ceremony.token, creation, "Laptop")
    assert replayed.value.code == "proof_expired"
    proof = service.passkeys.begin("a test", ann.user_id)
    response = device.use(options_of(proof.options))
    for expected in ("", "proof_expired"):
        try:
            service.prove_by_passkey(attempt_of(ann), ("a test", ann.user_id), proof.token, response)
            code = ""
        except ApplianceError as error:
            code = error.code
        assert code == expected


def test_a_challenge_is_bound_to_its_purpose_and_time(service: SecondFactors, ann: SignedIn, move: Move) -> None:
    device = make_device()
    add_passkey(service, ann, device)
    for purpose, minutes in (("another purpose", 0), ("a test", 11)):
        ceremony = service.passkeys.begin("a test", ann.user_id)
        response = device.use(options_of(ceremony.options))
        move(minutes * 60_000)
        with pytest.raises(ApplianceError) as refused:
            service.prove_by_passkey(attempt_of(ann), (purpose, ann.user_id), ceremony.token, response)
        assert refused.value.code == "proof_expired"
    first, second = (service.passkeys.begin("a test", ann.user_id) for _ in range(2))
    response = device.use(options_of(first.options))
    with pytest.raises(ApplianceError) as mixed:
        service.prove_by_passkey(attempt_of(ann), ("a test", ann.user_id), second.token, response)
    assert mixed.value.code == "factor_refused"


def test_the_passkey_of_another_account_is_refused(service: SecondFactors, ann: SignedIn, bob: SignedIn) -> None:
    hers, his = make_device(), make_device()
    add_passkey(service, ann, hers)
    add_passkey(service, bob, his)
    assert code_of_refusal(service, ann, his) == "factor_refused"
    his.user_handle = hers.user_handle
    assert code_of_refusal(service, bob, his) == "factor_refused"
    with pytest.raises(ApplianceError):
        sign_in_by_passkey(service, his)
    stolen = make_device(credential_id=hers.credential_id, user_handle=hers.user_handle)
    assert code_of_refusal(service, ann, stolen) == "factor_refused", "the key is another one"
    with pytest.raises(Conflict):
        add_passkey(service, bob, hers)


def test_a_counter_that_goes_back_is_a_copy(service: SecondFactors, ann: SignedIn) -> None:
    device = make_device()
    add_passkey(service, ann, device)
    assert use_passkey(service, ann, device) == "passkey", "synchronised passkeys count nothing"
    device.counter = 7
    assert use_passkey(service, ann, device) == "passkey"
    for counter in (7, 6, 0):
        device.counter = counter
        assert code_of_refusal(service, ann, device) == "factor_refused"
    device.counter = 8
    assert use_passkey(service, ann, device) == "passkey"


def test_signing_in_needs_a_verified_person_with_a_password(service: SecondFactors, ann: SignedIn) -> None:
    device = make_device(is_verified=False)
    add_passkey(service, ann, device)
    assert use_passkey(service, ann, device) == "passkey"
    with pytest.raises(ApplianceError) as unverified:
        sign_in_by_passkey(service, device)
    assert unverified.value.code == "factor_refused"
    device.is_verified = True
    db.write(lambda: db.execute("UPDATE person SET password_hash = ''"))
    with pytest.raises(ApplianceError, match="identity provider"):
        sign_in_by_passkey(service, device)


def test_a_disabled_account_does_not_sign_in(service: SecondFactors, ann: SignedIn) -> None:
    device = make_device()
    add_passkey(service, ann, device)
    accounts.disable_account(ANN, may_leave_ownerless=True)
    with pytest.raises(ApplianceError) as disabled:
        sign_in_by_passkey(service, device)
    assert disabled.value.code == "account_disabled"


@pytest.mark.parametrize("response", ["", "[]", "{}", "null", '{"rawId": 1}', '{"rawId": "x", "response": []}', "x" * 70_000])
def test_a_malformed_response_is_refused(service: SecondFactors, ann: SignedIn, response: str) -> None:
    device = make_device()
    add_passkey(service, ann, device)
    proof = service.passkeys.begin("a test", ann.user_id)
    creation = service.passkeys.begin_registration(ann.user_id, ann.login)
    for call in (
        lambda: service.prove_by_passkey(attempt_of(ann), ("a test", ann.user_id), proof.token, response),
        lambda: service.find_by_passkey("192.0.2.1", service.begin_sign_in().token, response),
        lambda: service.finish_passkey(ann, creation.token, response, "Phone"),
    ):
        with pytest.raises(ApplianceError) as refused:
            call()
        assert refused.value.code == "factor_refused"


def test_a_damaged_response_is_refused(service: SecondFactors, ann: SignedIn) -> None:
    device = make_device()
    add_passkey(service, ann, device)
    proof = service.passkeys.begin("a test", ann.user_id)
    for member in ("clientDataJSON", "authenticatorData", "signature"):
        response = json.loads(device.use(options_of(proof.options)))
        response["response"][member] = encode(decode(response["response"][member])[:-3])
        with pytest.raises(ApplianceError) as refused:
            service.prove_by_passkey(attempt_of(ann), ("a test", ann.user_id), proof.token, json.dumps(response))
        assert refused.value.code == "factor_refused"


def test_addresses_have_no_passkeys(config: Config, sealer: Sealer, tmp_path: Path) -> None:
    flags = {"domains.base": "192.0.2.1", "storage.data": str(tmp_path)}
    assert not SecondFactors(load_config(environment={}, flags=flags), sealer).passkeys.are_available
    assert SecondFactors(config, sealer).passkeys.are_available
