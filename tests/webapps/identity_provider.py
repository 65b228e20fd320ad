"""An OpenID Connect provider on loopback whose tokens tests can manipulate."""

import base64
import hashlib
import json
import secrets
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jws
from joserfc.jwk import ECKey, OctKey, RSAKey

from appliance.connectors.testing import Answer, LoopbackServer, Received
from appliance.core import clock

LOGOUT = "http://schemas.openid.net/event/backchannel-logout"
CLIENT, SECRET = "shop", "client-secret-4711"
EC = ECKey.generate_key("P-256", {"kid": "ec"})
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
OTHER = ECKey.generate_key("P-256", {"kid": "ec"})
HMAC = OctKey.import_key(b"k" * 32, {"kid": "ec"})


class IdentityProvider:
    """Signs in the user of `claims`; `sign` makes a token of them, `params` are those of the last sign-in."""

    def __init__(self) -> None:
        self.server = LoopbackServer()
        self.issuer = self.server.url
        self.claims: dict[str, Any] = {"sub": "u-1", "email": "Ann@Firma.example", "email_verified": True}
        self.keys: list[Any] = [EC, RSA]
        self.about: dict[str, Any] = {}
        self.sign: Callable[[dict[str, Any]], str] = signer(EC, "ES256")
        self.params: dict[str, str] = {}
        self.server.answers["/.well-known/openid-configuration"] = self._discovery
        self.server.answers["/jwks"] = lambda _: _json({"keys": [key.as_dict(private=False) for key in self.keys]})
        self.server.answers["/token"] = self._token

    def access(self, *allow: str) -> dict[str, Any]:
        """The access settings of an app that trusts this provider."""
        about = {"issuer": self.issuer, "client_id": CLIENT, "client_secret": {"secret": "CLIENT"}}
        return {"oidc": {**about, "allow": list(allow or ["*@firma.example"])}}

    def sign_in(self, address: str) -> str:
        """Signs in at the provider; returns the URL that the browser is redirected to."""
        parts = urlsplit(address)
        self.params = {name: values[0] for name, values in parse_qs(parts.query).items()}
        assert parts.path == "/authorize"
        assert (self.params["response_type"], self.params["code_challenge_method"]) == ("code", "S256")
        assert "openid" in self.params["scope"].split()
        return f"{self.params['redirect_uri']}?{urlencode({'code': 'code-1', 'state': self.params['state']})}"

    def logout_token(self, **changed: Any) -> str:
        """A logout token for this client about the user of `claims`; None as a value leaves a claim out."""
        now = clock.now_ms() // 1000
        claims = {
            "iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 120, "jti": secrets.token_hex(8),
            "events": {LOGOUT: {}}, "sub": self.claims["sub"], **changed,
        }  # fmt: skip
        return self.sign({name: value for name, value in claims.items() if value is not None})

    def close(self) -> None:
        self.server.close()

    def _discovery(self, _request: Received) -> Answer:
        addresses = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/jwks"}
        return _json({"issuer": self.issuer, **{name: f"{self.issuer}{path}" for name, path in addresses.items()}, **self.about})

    def _token(self, request: Received) -> Answer:
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        login = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        good = request.headers.get("authorization") == f"Basic {login}" and challenge == self.params["code_challenge"]
        if not good or form["redirect_uri"] != self.params["redirect_uri"] or form["code"] != "code-1":
            return Answer(400, body=b'{"error": "invalid_grant"}')
        now = clock.now_ms() // 1000
        times = {"iat": now, "exp": now + 300, "nonce": self.params["nonce"]}
        claims = {"iss": self.issuer, "aud": CLIENT, **times, **self.claims}
        return _json({"access_token": "at", "token_type": "Bearer", "id_token": self.sign(claims)})


def signer(key: Any, algorithm: str, **header: Any) -> Callable[[dict[str, Any]], str]:
    """Returns a function that signs tokens with this key."""

    def sign(claims: dict[str, Any]) -> str:
        headers = {"alg": algorithm, "kid": key.kid, **header}
        return jws.serialize_compact(headers, json.dumps(claims).encode(), key, algorithms=[algorithm])

    return sign


def unsigned(claims: dict[str, Any]) -> str:
    """A token that says it needs no signature."""
    parts = ({"alg": "none", "kid": "ec"}, claims)
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def _json(value: Any) -> Answer:
    return Answer(200, {"Content-Type": "application/json"}, json.dumps(value).encode())
