"""OpenID Connect: which providers and tokens are accepted."""

import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from appliance.connectors.egress import Egress
from appliance.connectors.oauth import make_verifier
from appliance.tenants.oidc import AuthorizationResponse, Identity, OidcClient, ProviderFailed
from appliance.webapps.access.access import parse_access
from tests.webapps.identity_provider import EC, HMAC, OTHER, RSA, SECRET, IdentityProvider, signer, unsigned

BACK = "http://shop--acme.content.localhost/_gos/oidc"
EGRESS = Egress.of(["127.0.0.0/8"])


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    instance = IdentityProvider()
    yield instance
    instance.close()


def identify(provider: IdentityProvider, client: OidcClient | None = None, **changed: str) -> Identity:
    """A whole sign-in."""
    client, access, verifier = client or OidcClient(EGRESS), parse_access(provider.access()), make_verifier()
    address = client.build_sign_in_url(access, BACK, "state", ("nonce-1", verifier))
    provider.sign_in(address)
    back = {"code": "code-1", "issuer": "", "nonce": "nonce-1", "verifier": verifier, "redirect_uri": BACK, **changed}
    return client.identify(access, SECRET, AuthorizationResponse(**back))


@pytest.mark.parametrize("sign", [signer(EC, "ES256"), signer(RSA, "RS256")], ids=["ES256", "RS256"])
def test_a_valid_token_identifies_the_user(provider: IdentityProvider, sign: Callable[[dict[str, Any]], str]) -> None:
    provider.sign = sign
    assert identify(provider) == Identity("u-1", "ann@firma.example")


@pytest.mark.parametrize("verified", [False, None, "true", 1])
def test_an_unverified_address_is_ignored(provider: IdentityProvider, verified: Any) -> None:
    provider.claims["email_verified"] = verified
    assert identify(provider) == Identity("u-1", "")


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"}, {"aud": "another"}, {"aud": ["another"]}, {"aud": ["shop", "another"]},
        {"aud": ["shop", "another"], "azp": "another"}, {"azp": "another"}, {"exp": int(time.time()) - 3600}, {"exp": None},
        {"exp": "never"}, {"exp": True}, {"iat": int(time.time()) + 3600}, {"iat": None}, {"nbf": int(time.time()) + 3600},
        {"nonce": "another"}, {"nonce": None}, {"sub": ""}, {"sub": 7}, {"sub": "a" * 256},
    ],
)  # fmt: skip
def test_a_token_with_a_wrong_claim_is_refused(provider: IdentityProvider, claims: dict[str, Any]) -> None:
    provider.claims |= claims
    with pytest.raises(ProviderFailed, match="was rejected"):
        identify(provider)


@pytest.mark.parametrize(
    "sign",
    [
        unsigned, signer(OTHER, "ES256"), signer(HMAC, "HS256"), signer(RSA, "RS512"), signer(RSA, "PS256"), lambda _: "",
        lambda _: "a.b", lambda _: "x" * 40_000, lambda claims: signer(EC, "ES256")(claims)[:-8] + "AAAAAAAA",
        signer(EC, "ES256", kid="unknown"), signer(RSA, "RS256", kid="ec"),
    ],
    ids=["none", "foreign key", "HS256", "RS512", "PS256", "nothing", "no token", "long", "forged", "unknown key", "other kind"],
)  # fmt: skip
def test_a_token_with_an_invalid_signature_is_refused(provider: IdentityProvider, sign: Callable[[dict[str, Any]], str]) -> None:
    provider.sign = sign
    with pytest.raises(ProviderFailed, match=r"signature|not publish"):
        identify(provider)


def test_a_code_needs_its_verifier_and_issuer(provider: IdentityProvider) -> None:
    with pytest.raises(ProviderFailed, match="did not issue a token"):
        identify(provider, verifier=make_verifier())
    with pytest.raises(ProviderFailed, match="another provider"):
        identify(provider, issuer="https://evil.example")
    provider.about["authorization_response_iss_parameter_supported"] = True
    with pytest.raises(ProviderFailed, match="another provider"):
        identify(provider)
    assert identify(provider, issuer=provider.issuer).subject == "u-1"


@pytest.mark.parametrize(
    "about",
    [
        {"issuer": "https://evil.example"}, {"token_endpoint": "http://evil.example/token"}, {"jwks_uri": None},
        {"authorization_endpoint": "javascript:alert(1)"}, {"jwks_uri": 7},
    ],
)  # fmt: skip
def test_an_inconsistent_discovery_document_is_refused(provider: IdentityProvider, about: dict[str, Any]) -> None:
    provider.about = about
    with pytest.raises(ProviderFailed):
        identify(provider)


def test_a_provider_is_reached_through_the_egress_rules(provider: IdentityProvider) -> None:
    with pytest.raises(ProviderFailed, match="not reachable from here"):
        identify(provider, OidcClient(Egress.of([])))
    assert provider.server.received == []


def test_keys_are_fetched_again_when_they_rotate(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = OidcClient(EGRESS)
    assert identify(provider, client).subject == "u-1"
    fresh = type(EC).generate_key("P-256", {"kid": "fresh"})
    provider.keys, provider.sign = [fresh], signer(fresh, "ES256")
    with pytest.raises(ProviderFailed, match="does not publish"):
        identify(provider, client)
    monkeypatch.setattr("appliance.tenants.oidc.discovery.KEYS_REFRESH_SECONDS", 0.0)
    assert identify(provider, client).subject == "u-1"
    fetched = [request.path for request in provider.server.received].count("/jwks")
    assert fetched == 2


def test_the_sign_in_url_has_the_required_parameters(provider: IdentityProvider) -> None:
    address = OidcClient(EGRESS).build_sign_in_url(parse_access(provider.access()), BACK, "state-1", ("nonce-1", make_verifier()))
    params = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    assert (params["scope"], params["nonce"]) == ("openid email", "nonce-1")
    assert (params["state"], params["redirect_uri"]) == ("state-1", BACK)
