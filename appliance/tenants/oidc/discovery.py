"""Reads what providers publish: the discovery document and the signing keys, cached, and fetched through the egress rules."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from appliance.connectors.context import BoundHttp
from appliance.connectors.contract import ConnectorError, Http, HttpRequest
from appliance.connectors.egress import Egress, EgressClient
from appliance.core import clock
from appliance.core.errors import ApplianceError
from appliance.core.sentences import Sentence
from appliance.core.targets import is_loopback

if TYPE_CHECKING:
    from .signatures import Keys

T = TypeVar("T")
TIMEOUT_SECONDS = 15.0
CACHE_SECONDS = 3600.0
KEYS_REFRESH_SECONDS = 60.0  # an unknown key makes us refetch the key set at most this often
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
    userinfo_url: str
    client_auth: str
    sends_issuer: bool
    keys: "Keys"
    fetched_at: float


class Providers:
    """The providers that have been read; documents and keys are cached for an hour."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress
        self._providers: dict[str, Provider] = {}
        self._lock = threading.Lock()

    def find(self, issuer: str) -> Provider:
        """The provider with this issuer; ProviderFailed."""
        provider = self._providers.get(issuer)
        if provider is not None and clock.monotonic() - provider.fetched_at < CACHE_SECONDS:
            return provider
        document = self.fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if document.get("issuer") != issuer:
            raise ProviderFailed(
                Sentence("the discovery document of %(issuer)s names another issuer; correct the setting issuer", issuer=issuer)
            )
        endpoints = [document.get(name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")]
        for url in endpoints:
            if not _is_endpoint(url, issuer):
                raise ProviderFailed(
                    Sentence("the discovery document of %(issuer)s lacks a required https endpoint", issuer=issuer)
                )
        authorize, token, jwks = (str(url) for url in endpoints)
        userinfo = document.get("userinfo_endpoint")
        auth_methods = document.get("token_endpoint_auth_methods_supported")
        by_post = isinstance(auth_methods, list) and "client_secret_basic" not in auth_methods
        sends_issuer = document.get("authorization_response_iss_parameter_supported") is True
        keys, auth = self._keys(jwks), "post" if by_post else "basic"
        return self._cache(Provider(
            issuer=issuer, authorize_url=authorize, token_url=token, jwks_url=jwks,
            userinfo_url=str(userinfo) if _is_endpoint(userinfo, issuer) else "", client_auth=auth, sends_issuer=sends_issuer,
            keys=keys, fetched_at=clock.monotonic(),
        ))

    def _cache(self, provider: Provider) -> Provider:
        with self._lock:
            if len(self._providers) >= _MAX_PROVIDERS:
                self._providers.clear()
            self._providers[provider.issuer] = provider
        return provider

    def _keys(self, url: str) -> "Keys":
        """The keys usable with the supported algorithms; others are ignored."""
        from .signatures import import_keys

        entries = self.fetch(url).get("keys")
        keys = import_keys(entries if isinstance(entries, list) else [])
        if not keys:
            raise ProviderFailed(Sentence("%(url)s has no key for RS256 or ES256", url=url))
        return keys

    def fetch(self, url: str, token: str = "") -> Mapping[str, Any]:
        """The JSON object at this address, requested with a bearer token if one is given; ProviderFailed."""
        authorization = [("Authorization", f"Bearer {token}")] if token else []
        request = HttpRequest(
            method="GET", url=url, headers=[("Accept", "application/json"), *authorization], params=(), content=b"",
            timeout=TIMEOUT_SECONDS, follow_redirects=False, max_bytes=_MAX_BYTES,
        )
        try:
            response = self.with_http(lambda http: http.send(request))
            document = json.loads(response.content) if response.status == 200 else None
        except ConnectorError as error:
            raise ProviderFailed(Sentence("the provider could not be reached: %(message)s", message=error.message)) from error
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise ProviderFailed(Sentence("%(url)s did not return a JSON object", url=url))
        return document

    def with_http(self, call: Callable[[Http], T]) -> T:
        """Call with an HTTP client that follows the egress rules."""
        client = EgressClient(self._egress)
        try:
            return call(BoundHttp(client, clock.monotonic() + TIMEOUT_SECONDS))
        finally:
            client.close()

    def verify(self, provider: Provider, token: str) -> Mapping[str, Any]:
        """The claims of a token that this provider signed; ProviderFailed.  Keys are fetched again when one is unknown."""
        from .signatures import UnknownKey, verify_signature

        try:
            return verify_signature(provider.keys, token)
        except UnknownKey as error:
            if clock.monotonic() - provider.fetched_at < KEYS_REFRESH_SECONDS:
                raise ProviderFailed("the provider's token is signed with a key that it does not publish") from error
        except (ValueError, TypeError, RecursionError) as error:
            raise ProviderFailed("the provider's token has no valid signature") from error
        with self._lock:
            self._providers.pop(provider.issuer, None)
        return self.verify(self.find(provider.issuer), token)


def _is_endpoint(url: object, issuer: str) -> bool:
    """Whether this is an https address, or like the issuer one of the local machine."""
    return isinstance(url, str) and (urlsplit(url).scheme == "https" or (is_loopback(url) and is_loopback(issuer)))
