"""Signs visitors in with OpenID Connect: authorization code with PKCE, state and nonce (OpenID Connect Core 1.0, RFC 7636).

Discovery, keys and tokens are fetched through the egress rules. An ID token is accepted if it is signed by the issuer with
RS256 or ES256, issued for this client, currently valid, and carries the nonce of this sign-in.
"""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, TypeVar
from urllib.parse import urlsplit

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from appliance.connectors import OAuth
from appliance.connectors.context import BoundHttp
from appliance.connectors.contract import ConnectorError, Http, HttpRequest
from appliance.connectors.egress import Egress, EgressClient
from appliance.connectors.oauth import consent_address, request_by_code
from appliance.core import clock
from appliance.core.errors import ApplianceError
from appliance.core.sentences import Sentence
from appliance.tenants.sign_in import parse_email

from .access import Access, is_loopback

T = TypeVar("T")
Keys = tuple[RSAKey | ECKey, ...]
ALGORITHMS: Mapping[str, type[RSAKey] | type[ECKey]] = {"RS256": RSAKey, "ES256": ECKey}
TIMEOUT_SECONDS = 15.0
CACHE_SECONDS = 3600.0
KEYS_REFRESH_SECONDS = 60.0  # an unknown key makes us refetch the key set at most this often
SKEW_SECONDS = 60
LONGEST_TOKEN = 32 << 10
_MAX_BYTES = 256 << 10
_MAX_PROVIDERS = 200


class ProviderFailed(ApplianceError):
    """The provider could not be reached, or its response was invalid."""

    code, status = "provider_failed", 502


@dataclass(frozen=True)
class Provider:
    """The discovery document of an issuer, with its signing keys."""

    issuer: str
    authorize_url: str
    token_url: str
    jwks_url: str
    client_auth: str
    sends_issuer: bool
    keys: Keys
    fetched_at: float


@dataclass(frozen=True)
class AuthorizationResponse:
    """The authorization response from the browser, with the values saved when the sign-in started."""

    code: str
    issuer: str
    nonce: str
    verifier: str
    redirect_uri: str


@dataclass(frozen=True)
class Identity:
    """The user who signed in; `email` is empty unless the provider has verified it."""

    subject: str
    email: str


class OidcClient:
    """A client for every OIDC provider that apps use; discovery documents and keys are cached for an hour."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress
        self._providers: dict[str, Provider] = {}
        self._lock = threading.Lock()

    def build_sign_in_url(self, access: Access, redirect_uri: str, state: str, secrets: tuple[str, str]) -> str:
        """The URL at which the visitor signs in; `secrets` are the nonce and the PKCE verifier. Raises ProviderFailed."""
        provider = self._provider(access.issuer)
        oauth = _oauth(provider, access, "", {"nonce": secrets[0]})
        return consent_address(oauth, redirect_uri, state, secrets[1])

    def identify(self, access: Access, client_secret: str, response: AuthorizationResponse) -> Identity:
        """Exchange the code for the identity of the user; ProviderFailed."""
        provider = self._provider(access.issuer)
        # RFC 9207: a response from a different issuer may be a mix-up attack.
        if response.issuer != access.issuer and (response.issuer or provider.sends_issuer):
            raise ProviderFailed("the response came from another provider; start the sign-in again")
        oauth = _oauth(provider, access, client_secret, {})
        try:
            token = self._with_http(
                lambda http: request_by_code(http, oauth, response.code, response.verifier, response.redirect_uri)
            )
        except ConnectorError as error:
            raise ProviderFailed(Sentence("the provider did not issue a token: %(message)s", message=error.message)) from error
        claims = self._verify(provider, token.id_token)
        problem = _problem_of(claims, access, response.nonce)
        if problem:
            raise ProviderFailed(Sentence("the provider's token was rejected: %(problem)s", problem=problem))
        email = parse_email(str(claims.get("email", ""))) if claims.get("email_verified") is True else ""
        return Identity(claims["sub"], email)

    # -- what the provider says

    def _provider(self, issuer: str) -> Provider:
        provider = self._providers.get(issuer)
        if provider is not None and clock.monotonic() - provider.fetched_at < CACHE_SECONDS:
            return provider
        document = self._fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if document.get("issuer") != issuer:
            raise ProviderFailed(
                Sentence("the discovery document of %(issuer)s names another issuer; correct access.oidc.issuer", issuer=issuer)
            )
        endpoints = [document.get(name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")]
        for url in endpoints:
            if not isinstance(url, str) or not (urlsplit(url).scheme == "https" or (is_loopback(url) and is_loopback(issuer))):
                raise ProviderFailed(
                    Sentence("the discovery document of %(issuer)s lacks a required https endpoint", issuer=issuer)
                )
        authorize, token, jwks = (str(url) for url in endpoints)
        auth_methods = document.get("token_endpoint_auth_methods_supported")
        by_post = isinstance(auth_methods, list) and "client_secret_basic" not in auth_methods
        sends_issuer = document.get("authorization_response_iss_parameter_supported") is True
        keys, auth = self._keys(jwks), "post" if by_post else "basic"
        return self._cache_provider(Provider(
            issuer=issuer, authorize_url=authorize, token_url=token, jwks_url=jwks, client_auth=auth, sends_issuer=sends_issuer,
            keys=keys, fetched_at=clock.monotonic(),
        ))

    def _cache_provider(self, provider: Provider) -> Provider:
        with self._lock:
            if len(self._providers) >= _MAX_PROVIDERS:
                self._providers.clear()
            self._providers[provider.issuer] = provider
        return provider

    def _keys(self, url: str) -> Keys:
        """The keys usable with the supported algorithms; others are ignored."""
        entries = self._fetch(url).get("keys")
        keys: list[RSAKey | ECKey] = []
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, dict) and entry.get("use", "sig") == "sig" and entry.get("kty") in ("RSA", "EC"):
                try:
                    keys.append((RSAKey if entry["kty"] == "RSA" else ECKey).import_key(entry))
                except (JoseError, ValueError, TypeError, KeyError):
                    continue
        if not keys:
            raise ProviderFailed(Sentence("%(url)s has no key for RS256 or ES256", url=url))
        return tuple(keys)

    def _fetch(self, url: str) -> Mapping[str, Any]:
        request = HttpRequest(
            method="GET", url=url, headers=[("Accept", "application/json")], params=(), content=b"", timeout=TIMEOUT_SECONDS,
            follow_redirects=False, max_bytes=_MAX_BYTES,
        )
        try:
            response = self._with_http(lambda http: http.send(request))
            document = json.loads(response.content) if response.status == 200 else None
        except ConnectorError as error:
            raise ProviderFailed(Sentence("the provider could not be reached: %(message)s", message=error.message)) from error
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise ProviderFailed(Sentence("%(url)s did not return a JSON object", url=url))
        return document

    def _with_http(self, call: Callable[[Http], T]) -> T:
        client = EgressClient(self._egress)
        try:
            return call(BoundHttp(client, clock.monotonic() + TIMEOUT_SECONDS))
        finally:
            client.close()

    # -- the token

    def _verify(self, provider: Provider, token: str) -> Mapping[str, Any]:
        try:
            return _verify_signature(provider.keys, token)
        except _UnknownKey as error:
            if clock.monotonic() - provider.fetched_at < KEYS_REFRESH_SECONDS:
                raise ProviderFailed("the provider's token is signed with a key that it does not publish") from error
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            raise ProviderFailed("the provider's token has no valid signature") from error
        with self._lock:
            self._providers.pop(provider.issuer, None)
        return self._verify(self._provider(provider.issuer), token)


class _UnknownKey(Exception):
    """The key named in the token is not in the key set."""


def _oauth(provider: Provider, access: Access, secret: str, params: Mapping[str, str]) -> OAuth:
    return OAuth(
        grant="authorization_code", token_url=provider.token_url, authorize_url=provider.authorize_url, client_id=access.client_id,
        client_secret=secret, scope=access.scopes, client_auth="post" if provider.client_auth == "post" else "basic",
        authorize_params=params, token_params={},
    )  # fmt: skip


def _verify_signature(keys: Keys, token: str) -> Mapping[str, Any]:
    """The claims of a token after checking its signature; the key must match the token's `kid` and an allowed algorithm."""
    if not token or len(token) > LONGEST_TOKEN:
        raise ValueError("no token")
    header = jws.extract_compact(token.encode("ascii")).protected
    algorithm = header.get("alg")
    kind = ALGORITHMS.get(algorithm) if isinstance(algorithm, str) else None
    if kind is None:
        raise ValueError("another algorithm")
    key_id = header.get("kid")
    candidates = [key for key in keys if isinstance(key, kind) and key.get("alg", algorithm) == algorithm]
    candidates = [key for key in candidates if key_id is None or key.get("kid") == key_id]
    if algorithm == "ES256":
        candidates = [key for key in candidates if key.get("crv") == "P-256"]
    if not candidates or (key_id is None and len(candidates) > 1):
        raise _UnknownKey
    claims = json.loads(jws.deserialize_compact(token, candidates[0], algorithms=[str(algorithm)]).payload)
    if not isinstance(claims, dict):
        raise TypeError("no object")
    return claims


def _problem_of(claims: Mapping[str, Any], access: Access, nonce: str) -> str:
    """The first problem with the claims (OpenID Connect Core 1.0 § 3.1.3.7), or an empty string."""
    now, audience = clock.now_ms() / 1000, claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    expires, issued, not_before = claims.get("exp"), claims.get("iat"), claims.get("nbf", 0)
    if claims.get("iss") != access.issuer:
        return "it comes from another issuer"
    if access.client_id not in audiences or claims.get("azp", access.client_id) != access.client_id:
        return "it was issued for another client"
    if len(audiences) > 1 and "azp" not in claims:
        return "it has several audiences but no azp claim"
    if not (_is_time(expires) and _is_time(issued) and _is_time(not_before)):
        return "its exp, iat or nbf claim is missing or invalid"
    if not (not_before - SKEW_SECONDS <= now < expires + SKEW_SECONDS and issued <= now + SKEW_SECONDS):
        return "it has expired, or is not valid yet; check the clock of this machine"
    if claims.get("nonce") != nonce:
        return "its nonce belongs to another sign-in"
    subject = claims.get("sub")
    return "" if isinstance(subject, str) and 0 < len(subject) <= 255 and subject.isprintable() else "its sub claim is invalid"


def _is_time(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
