"""Signs users in with OpenID Connect: authorization code with PKCE, state and nonce (OpenID Connect Core 1.0, RFC 7636).

Discovery, keys and tokens are fetched through the egress rules. An ID token is accepted if it is signed by the issuer with
RS256 or ES256, issued for this client, currently valid, and carries the nonce of this sign-in.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from appliance.connectors import OAuth
from appliance.connectors.contract import ConnectorError
from appliance.connectors.egress import Egress
from appliance.connectors.oauth import consent_address, request_by_code
from appliance.core.sentences import Sentence
from appliance.tenants.sign_in import parse_email

from .discovery import Provider, ProviderFailed, Providers
from .tokens import ClientSettings, LogoutToken, find_logout_problem, find_problem


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
    """A client of every provider; discovery documents and keys are cached for an hour."""

    def __init__(self, egress: Egress) -> None:
        self._providers = Providers(egress)

    def build_sign_in_url(
        self, settings: ClientSettings, redirect_uri: str, state: str, secrets: tuple[str, str],
        wishes: Mapping[str, str] = MappingProxyType({}),
    ) -> str:  # fmt: skip
        """The URL at which the user signs in; `secrets` are the nonce and the PKCE verifier. Raises ProviderFailed.

        `wishes` are further parameters of the request, such as `max_age`.
        """
        provider = self._providers.find(settings.issuer)
        oauth = _oauth(provider, settings, "", {**wishes, "nonce": secrets[0]})
        return consent_address(oauth, redirect_uri, state, secrets[1])

    def identify(self, settings: ClientSettings, client_secret: str, response: AuthorizationResponse) -> Identity:
        """Exchange the code for the identity of the user; ProviderFailed."""
        claims = self.fetch_claims(settings, client_secret, response)
        return Identity(claims["sub"], verified_email(claims))

    def fetch_claims(
        self, settings: ClientSettings, client_secret: str, response: AuthorizationResponse, needed: Collection[str] = ()
    ) -> Mapping[str, Any]:
        """Exchange the code for the claims about the user; ProviderFailed.

        `needed` are claims that the provider may give at its userinfo endpoint instead of in the token (OpenID Connect Core 1.0
        § 5.4); claims of the token take precedence.
        """
        provider = self._providers.find(settings.issuer)
        # RFC 9207: a response from a different issuer may be a mix-up attack.
        if response.issuer != settings.issuer and (response.issuer or provider.sends_issuer):
            raise ProviderFailed("the response came from another provider; start the sign-in again")
        oauth = _oauth(provider, settings, client_secret, {})
        try:
            token = self._providers.with_http(
                lambda http: request_by_code(http, oauth, response.code, response.verifier, response.redirect_uri)
            )
        except ConnectorError as error:
            raise ProviderFailed(Sentence("the provider did not issue a token: %(message)s", message=error.message)) from error
        claims = self._providers.verify(provider, token.id_token)
        problem = find_problem(claims, settings, response.nonce)
        if problem:
            raise ProviderFailed(Sentence("the provider's token was rejected: %(problem)s", problem=problem))
        if provider.userinfo_url and not set(needed) <= set(claims):
            return {**self._fetch_user(provider, token.access_token, claims["sub"]), **claims}
        return claims

    def _fetch_user(self, provider: Provider, access_token: str, subject: str) -> Mapping[str, Any]:
        """The claims of the userinfo endpoint, which must be about the user of the token (§ 5.3.2)."""
        claims = self._providers.fetch(provider.userinfo_url, access_token)
        if claims.get("sub") != subject:
            raise ProviderFailed("the provider's userinfo endpoint answered about another user")
        return claims

    def read_logout_token(self, settings: ClientSettings, token: str) -> LogoutToken:
        """What a logout token says; ProviderFailed unless the provider signed it for this client a short time ago."""
        claims = self._providers.verify(self._providers.find(settings.issuer), token)
        if problem := find_logout_problem(claims, settings):
            raise ProviderFailed(Sentence("the provider's logout token was rejected: %(problem)s", problem=problem))
        return LogoutToken(claims.get("sub", ""), claims.get("sid", ""), claims["jti"])

    def check(self, issuer: str) -> None:
        """Read the discovery document and the keys; ProviderFailed says what is wrong."""
        self._providers.find(issuer)


def verified_email(claims: Mapping[str, Any]) -> str:
    """The e-mail address of the user, empty unless the provider has verified it."""
    return parse_email(str(claims.get("email", ""))) if claims.get("email_verified") is True else ""


def _oauth(provider: Provider, settings: ClientSettings, secret: str, params: Mapping[str, str]) -> OAuth:
    return OAuth(
        grant="authorization_code", token_url=provider.token_url, authorize_url=provider.authorize_url,
        client_id=settings.client_id, client_secret=secret, scope=settings.scopes,
        client_auth="post" if provider.client_auth == "post" else "basic", authorize_params=params, token_params={},
    )  # fmt: skip
