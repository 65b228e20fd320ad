"""OpenID Connect: tokens, answers and providers that lie about who signed in."""

import base64
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, RSAKey

from appliance.connectors.egress import Egress
from appliance.connectors.oauth import make_verifier
from appliance.tenants.oidc import AuthorizationResponse, Identity, OidcClient, ProviderFailed
from appliance.webapps.access import parse_access
from tests.redteam.attempts import attempts
from tests.webapps.identity_provider import EC, HMAC, OTHER, RSA, SECRET, IdentityProvider, signer, unsigned

BACK = "http://shop--acme.content.localhost/_gos/oidc"
NOW = int(time.time())
Sign = Callable[[dict[str, Any]], str]


def by_public_key(claims: dict[str, Any]) -> str:
    """HS256 with the text of the public key as the secret: what confuses libraries that take the algorithm's word.

    By hand, because our library refuses such a secret.
    """
    parts = ({"alg": "HS256", "kid": "rsa"}, claims)
    text = ".".join(_encode(json.dumps(part).encode()) for part in parts)
    return f"{text}.{_encode(hmac.digest(RSA.as_pem(private=False), text.encode(), 'sha256'))}"


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def with_own_key(claims: dict[str, Any]) -> str:
    """The key that signed comes in the header."""
    return signer(OTHER, "ES256", jwk=OTHER.as_dict(private=False))(claims)


def without_signature(claims: dict[str, Any]) -> str:
    return signer(EC, "ES256")(claims).rpartition(".")[0] + "."


def other_claims(claims: dict[str, Any]) -> str:
    head, _, signature = signer(EC, "ES256")(claims).split(".")
    body = base64.urlsafe_b64encode(json.dumps({**claims, "sub": "admin"}).encode()).decode().rstrip("=")
    return f"{head}.{body}.{signature}"


def none_in_capitals(claims: dict[str, Any]) -> str:
    parts = ({"alg": "nOnE", "kid": "ec"}, claims)
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


TOKENS: dict[str, Sign] = {
    "no signature needed": unsigned, "none in odd letters": none_in_capitals, "signature cut off": without_signature,
    "claims changed": other_claims, "HMAC by the public key": by_public_key, "HMAC": signer(HMAC, "HS256"),
    "key in the header": with_own_key, "a foreign key of the same name": signer(OTHER, "ES256"),
    "key by address": signer(OTHER, "ES256", jku="http://127.0.0.1:1/jwks"),
    "certificate by address": signer(OTHER, "ES256", x5u="http://127.0.0.1:1/x"),
    "key name is a path": signer(OTHER, "ES256", kid="../../../../dev/null"),
    "key name is SQL": signer(OTHER, "ES256", kid="ec' OR '1'='1"),
    "another hash": signer(RSA, "RS512"), "PSS": signer(RSA, "PS256"), "name of the other key": signer(RSA, "RS256", kid="ec"),
    "no token": lambda _: "", "five parts": lambda _: "a.b.c.d.e", "very long": lambda _: "x" * 40_000,
    "list for claims": lambda _: jws.serialize_compact({"alg": "ES256", "kid": "ec"}, b"[1]", EC, algorithms=["ES256"]),
    "nested deeply": lambda _: jws.serialize_compact(
        {"alg": "ES256", "kid": "ec"}, b"[" * 20_000 + b"]" * 20_000, EC, algorithms=["ES256"]
    ),
}  # fmt: skip
CLAIMS: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://evil.example"}, "issuer with a slash more": {"iss": "SLASH"},
    "another audience": {"aud": "x"},
    "audience in capitals": {"aud": "SHOP"}, "several audiences": {"aud": ["shop", "x"]}, "no audience": {"aud": None},
    "authorised for another": {"azp": "x"}, "expired": {"exp": NOW - 600}, "expires never": {"exp": "never"},
    "expires at true": {"exp": True}, "of the future": {"iat": NOW + 86_400}, "not yet": {"nbf": NOW + 86_400},
    "expires at infinity": {"exp": None}, "nonce of another": {"nonce": "nonce-2"}, "nonce is a list": {"nonce": ["nonce-1"]},
    "no nonce": {"nonce": None}, "nobody": {"sub": ""}, "a number": {"sub": 1}, "name with a line": {"sub": "u\n1"},
}  # fmt: skip
DISCOVERY: dict[str, dict[str, Any]] = {
    "issuer of another": {"issuer": "https://evil.example"}, "token in the clear": {"token_endpoint": "http://evil.example/token"},
    "keys in the clear": {"jwks_uri": "http://evil.example/jwks"}, "keys of a file": {"jwks_uri": "file:///etc/passwd"},
    "script for a page": {"authorization_endpoint": "javascript:alert(1)"}, "no keys": {"jwks_uri": None},
    "inside by another name": {"token_endpoint": "http://169.254.169.254/token"},
}  # fmt: skip
ANSWERS: dict[str, dict[str, str]] = {
    "answer of another issuer": {"issuer": "https://evil.example"}, "code of another": {"code": "code-2"}, "no code": {"code": ""},
    "another verifier": {"verifier": make_verifier()}, "another address back": {"redirect_uri": "https://evil.example/"},
    "nonce of another sign-in": {"nonce": "nonce-9"},
}  # fmt: skip


def identify(provider: IdentityProvider, changed: dict[str, str] | None = None) -> Identity:
    """A whole sign-in, of somebody who was never here."""
    client, access, verifier = OidcClient(Egress.of(["127.0.0.0/8"])), parse_access(provider.access()), make_verifier()
    provider.sign_in(client.build_sign_in_url(access, BACK, "state", ("nonce-1", verifier)))
    back = {"code": "code-1", "issuer": "", "nonce": "nonce-1", "verifier": verifier, "redirect_uri": BACK, **(changed or {})}
    return client.identify(access, SECRET, AuthorizationResponse(**back))


def test_nobody_signs_in_as_somebody_else() -> None:
    provider = IdentityProvider()
    good_sign, good_claims = provider.sign, provider.claims
    try:
        with attempts(least=50) as table:
            table.check("control: the right token signs in", identify(provider) == Identity("u-1", "ann@firma.example"))
            for name, sign in TOKENS.items():
                provider.sign = sign
                table.refused(f"token: {name}", lambda: identify(provider), ProviderFailed)
            provider.sign = good_sign
            for name, claims in CLAIMS.items():
                overrides = {claim: f"{provider.issuer}/" if value == "SLASH" else value for claim, value in claims.items()}
                provider.claims = good_claims | overrides
                table.refused(f"claims: {name}", lambda: identify(provider), ProviderFailed)
            for name, verified in {"text": "true", "one": 1, "nothing": None, "list": [True], "false": False}.items():
                provider.claims = good_claims | {"email_verified": verified}
                table.check(f"address not verified: {name}", identify(provider).email == "")
            provider.claims = good_claims
            for name, about in DISCOVERY.items():
                provider.about = about
                table.refused(f"discovery: {name}", lambda: identify(provider), ProviderFailed)
            provider.about = {}
            for name, changed in ANSWERS.items():
                table.refused(f"answer: {name}", lambda changed=changed: identify(provider, changed), ProviderFailed)  # type: ignore[misc]
            weak = {"symmetric key": HMAC, "key that is not P-256": ECKey.generate_key("P-384", {"kid": "ec"})}
            for name, key in weak.items():
                provider.keys, provider.sign = [key], signer(key, "HS256" if key is HMAC else "ES384")
                table.refused(f"keys: {name}", lambda: identify(provider), ProviderFailed)
            provider.keys, provider.sign = [RSAKey.generate_key(2048, {"kid": "rsa"})], signer(RSA, "RS256")
            table.refused("keys: one of the same name but another", lambda: identify(provider), ProviderFailed)
    finally:
        provider.close()
