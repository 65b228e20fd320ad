"""OpenID Connect as a relying party: authorization code with PKCE, state and nonce (OpenID Connect Core 1.0, RFC 7636).

Discovery, keys and tokens are fetched by the rules of egress; identity tokens are believed when they are signed by RS256
or ES256 with a key of the issuer, for this client, now, and for the sign-in that was begun.
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
from appliance.connectors.oauth import by_code, consent_address
from appliance.core import clock
from appliance.core.errors import ApplianceError
from appliance.core.sentences import Sentence
from appliance.tenants.sign_in import as_email

from .access import Access, is_loopback

T = TypeVar("T")
Keys = tuple[RSAKey | ECKey, ...]
ALGORITHMS: Mapping[str, type[RSAKey] | type[ECKey]] = {"RS256": RSAKey, "ES256": ECKey}
ASK_SECONDS = 15.0
BELIEVED_SECONDS = 3600.0
KEYS_AGAIN_SECONDS = 60.0  # an unknown key is looked for this often at most
SKEW_SECONDS = 60
LONGEST_TOKEN = 32 << 10
_MOST_BYTES = 256 << 10
_MOST_KNOWN = 200


class ProviderFailed(ApplianceError):
    """The provider could not be asked, or what it answered cannot be believed."""

    code, status = "provider_failed", 502


@dataclass(frozen=True)
class Provider:
    """What an issuer says about itself, and its keys."""

    issuer: str
    authorize_url: str
    token_url: str
    jwks_url: str
    client_auth: str
    names_itself: bool
    keys: Keys
    seen: float


@dataclass(frozen=True)
class Returned:
    """What the browser brought back, with what it was sent away with."""

    code: str
    issuer: str
    nonce: str
    verifier: str
    redirect_uri: str


@dataclass(frozen=True)
class Identity:
    """Who signed in; `email` only when the provider has verified it."""

    subject: str
    email: str


class OidcClient:
    """Every provider that apps name; what they say is kept for an hour."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress
        self._known: dict[str, Provider] = {}
        self._lock = threading.Lock()

    def address(self, access: Access, redirect_uri: str, state: str, secrets: tuple[str, str]) -> str:
        """Where the visitor signs in; `secrets` are nonce and verifier.  ProviderFailed."""
        provider = self._provider(access.issuer)
        oauth = _oauth(provider, access, "", {"nonce": secrets[0]})
        return consent_address(oauth, redirect_uri, state, secrets[1])

    def identify(self, access: Access, client_secret: str, back: Returned) -> Identity:
        """Who the code stands for; ProviderFailed."""
        provider = self._provider(access.issuer)
        # RFC 9207: an answer that names another issuer was meant for another sign-in.
        if back.issuer != access.issuer and (back.issuer or provider.names_itself):
            raise ProviderFailed("the answer came from another provider; begin again")
        oauth = _oauth(provider, access, client_secret, {})
        try:
            answer = self._asking(lambda http: by_code(http, oauth, back.code, back.verifier, back.redirect_uri))
        except ConnectorError as error:
            raise ProviderFailed(Sentence("the provider gave no token: %(message)s", message=error.message)) from error
        claims = self._verify(provider, answer.id_token)
        problem = _problem_of(claims, access, back.nonce)
        if problem:
            raise ProviderFailed(Sentence("the provider's token is not good: %(problem)s", problem=problem))
        email = as_email(str(claims.get("email", ""))) if claims.get("email_verified") is True else ""
        return Identity(claims["sub"], email)

    # -- what the provider says

    def _provider(self, issuer: str) -> Provider:
        known = self._known.get(issuer)
        if known is not None and clock.monotonic() - known.seen < BELIEVED_SECONDS:
            return known
        said = self._fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if said.get("issuer") != issuer:
            raise ProviderFailed(
                Sentence("the discovery document of %(issuer)s names another issuer; correct access.oidc.issuer", issuer=issuer)
            )
        addresses = [said.get(name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")]
        for url in addresses:
            if not isinstance(url, str) or not (urlsplit(url).scheme == "https" or (is_loopback(url) and is_loopback(issuer))):
                raise ProviderFailed(
                    Sentence("the discovery document of %(issuer)s lacks an https address that is needed", issuer=issuer)
                )
        authorize, token, jwks = (str(url) for url in addresses)
        offered = said.get("token_endpoint_auth_methods_supported")
        by_post = isinstance(offered, list) and "client_secret_basic" not in offered
        names_itself = said.get("authorization_response_iss_parameter_supported") is True
        keys, auth = self._keys(jwks), "post" if by_post else "basic"
        return self._keep(Provider(issuer, authorize, token, jwks, auth, names_itself, keys, clock.monotonic()))

    def _keep(self, provider: Provider) -> Provider:
        with self._lock:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[provider.issuer] = provider
        return provider

    def _keys(self, url: str) -> Keys:
        """The keys that can verify our algorithms; others are passed over."""
        given = self._fetch(url).get("keys")
        found: list[RSAKey | ECKey] = []
        for each in given if isinstance(given, list) else []:
            if isinstance(each, dict) and each.get("use", "sig") == "sig" and each.get("kty") in ("RSA", "EC"):
                try:
                    found.append((RSAKey if each["kty"] == "RSA" else ECKey).import_key(each))
                except (JoseError, ValueError, TypeError, KeyError):
                    continue
        if not found:
            raise ProviderFailed(Sentence("%(url)s holds no key for RS256 or ES256", url=url))
        return tuple(found)

    def _fetch(self, url: str) -> Mapping[str, Any]:
        request = HttpRequest("GET", url, [("Accept", "application/json")], (), b"", ASK_SECONDS, False, _MOST_BYTES)
        try:
            answer = self._asking(lambda http: http.send(request))
            said = json.loads(answer.content) if answer.status == 200 else None
        except ConnectorError as error:
            raise ProviderFailed(Sentence("the provider cannot be asked: %(message)s", message=error.message)) from error
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise ProviderFailed(Sentence("%(url)s does not answer with a JSON object", url=url))
        return said

    def _asking(self, ask: Callable[[Http], T]) -> T:
        client = EgressClient(self._egress)
        try:
            return ask(BoundHttp(client, clock.monotonic() + ASK_SECONDS))
        finally:
            client.close()

    # -- the token

    def _verify(self, provider: Provider, token: str) -> Mapping[str, Any]:
        try:
            return _claims(provider.keys, token)
        except _UnknownKey as error:
            if clock.monotonic() - provider.seen < KEYS_AGAIN_SECONDS:
                raise ProviderFailed("the provider's token is signed with a key that it does not publish") from error
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            raise ProviderFailed("the provider's token is not signed as it must be") from error
        with self._lock:
            self._known.pop(provider.issuer, None)
        return self._verify(self._provider(provider.issuer), token)


class _UnknownKey(Exception):
    """No key of the set is the one that the token names."""


def _oauth(provider: Provider, access: Access, secret: str, params: Mapping[str, str]) -> OAuth:
    return OAuth(
        "authorization_code", provider.token_url, provider.authorize_url, access.client_id, secret, access.scopes,
        "post" if provider.client_auth == "post" else "basic", params, {},
    )  # fmt: skip


def _claims(keys: Keys, token: str) -> Mapping[str, Any]:
    """The claims of a token whose signature is good; the key is chosen by its name and by the algorithm we allow."""
    if not token or len(token) > LONGEST_TOKEN:
        raise ValueError("no token")
    header = jws.extract_compact(token.encode("ascii")).protected
    algorithm = header.get("alg")
    kind = ALGORITHMS.get(algorithm) if isinstance(algorithm, str) else None
    if kind is None:
        raise ValueError("another algorithm")
    named = header.get("kid")
    fitting = [key for key in keys if isinstance(key, kind) and key.get("alg", algorithm) == algorithm]
    fitting = [key for key in fitting if named is None or key.get("kid") == named]
    if algorithm == "ES256":
        fitting = [key for key in fitting if key.get("crv") == "P-256"]
    if not fitting or (named is None and len(fitting) > 1):
        raise _UnknownKey
    claims = json.loads(jws.deserialize_compact(token, fitting[0], algorithms=[str(algorithm)]).payload)
    if not isinstance(claims, dict):
        raise TypeError("no object")
    return claims


def _problem_of(claims: Mapping[str, Any], access: Access, nonce: str) -> str:
    """What is wrong with the claims (OpenID Connect Core 1.0 § 3.1.3.7); empty when nothing is."""
    now, audience = clock.now_ms() / 1000, claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    expires, issued, before = claims.get("exp"), claims.get("iat"), claims.get("nbf", 0)
    if claims.get("iss") != access.issuer:
        return "it is another issuer's"
    if access.client_id not in audiences or claims.get("azp", access.client_id) != access.client_id:
        return "it is for another client"
    if len(audiences) > 1 and "azp" not in claims:
        return "it does not say which client it was made for"
    if not (_is_time(expires) and _is_time(issued) and _is_time(before)):
        return "it lacks its times"
    if not (before - SKEW_SECONDS <= now < expires + SKEW_SECONDS and issued <= now + SKEW_SECONDS):
        return "it has expired, or is not valid yet; check the clock of this machine"
    if claims.get("nonce") != nonce:
        return "it was made for another sign-in"
    subject = claims.get("sub")
    return "" if isinstance(subject, str) and 0 < len(subject) <= 255 and subject.isprintable() else "it names nobody"


def _is_time(given: object) -> TypeGuard[int | float]:
    return isinstance(given, int | float) and not isinstance(given, bool)
