"""Signs people in to the console with the identity providers of the configuration, and ends their sessions for them."""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal, TypeVar

from appliance.connectors.egress import Egress
from appliance.connectors.oauth import make_verifier
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.config.sign_in import IdentityProvider, read_client_secret
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ApplianceError, NotFound
from appliance.core.pools import IDENTITY, open_pool
from appliance.core.sentences import Sentence
from appliance.tenants.models import Person
from appliance.tenants.oidc import AuthorizationResponse, OidcClient, ProviderFailed
from appliance.tenants.sign_in import Attempts, Client, open_counts, sessions

from .accounts import ReservedLogins, SourceIdentity, checked_login
from .admission import Admission
from .claims import list_needed, read_groups
from .local_accounts import check_login_allowed, is_break_glass, record_break_glass
from .logouts import end_sign_ins
from .pending import LIFETIME_MS, PendingSignIn, open_pending
from .strength import build_request, check_age, is_strong

T = TypeVar("T")
log = logging.getLogger(__name__)
Purpose = Literal["start", "callback", "logout"]
PATH = "/oidc"


@dataclass(frozen=True)
class RegisteredClient:
    """This appliance as a client of a provider."""

    issuer: str
    client_id: str
    scopes: str


@dataclass(frozen=True)
class ProviderSession:
    """Somebody who has just signed in with a provider: the token of their session on the base host, and where they go on."""

    user_id: str
    login: str
    token: str
    onward: Mapping[str, str]


class SingleSignOn:
    """The identity providers of the console; `egress` must admit them.  ConfigInvalid if a client secret cannot be read."""

    def __init__(self, config: Config, egress: Egress, sealer: Sealer) -> None:
        self._settings, self._base_url, self._sealer = config.sign_in, config.base_url, sealer
        self._lifetime_ms = config.console.session_hours * 3_600_000
        reserved = ReservedLogins(config.console.administrators, config.sign_in.break_glass)
        self._admission = Admission(reserved, sealer, self._lifetime_ms)
        self._client = OidcClient(egress)
        self._secrets = {each.id: read_client_secret(each) for each in config.sign_in.providers}
        self._attempts = Attempts(free=20, first=2.0, longest=300.0, counts=open_counts("console provider"))
        self._threads = open_pool(IDENTITY)

    @property
    def providers(self) -> tuple[IdentityProvider, ...]:
        return self._settings.providers

    @property
    def has_local_accounts(self) -> bool:
        """Whether people sign in with passwords; otherwise one account does, in an emergency."""
        return self._settings.local_accounts

    def find_provider(self, provider_id: str) -> IdentityProvider:
        """The provider with this id; NotFound."""
        for provider in self.providers:
            if provider.id == provider_id:
                return provider
        raise NotFound(Sentence("there is no identity provider %(provider_id)s", provider_id=repr(provider_id[:40])))

    def submit(self, purpose: Purpose, address: str, work: Callable[[], T]) -> "Future[T]":
        """Run work that waits for a provider, on behalf of an address; RateLimited while its attempts must wait.

        Each purpose counts separately, so that pressing the button does not make up for invalid responses.  Whoever the provider
        knows has made no guess, even if they are refused: many people may share an address.
        """
        key = ("console", purpose)
        self._attempts.begin(key, address)

        def run() -> T:
            try:
                result = work()
            except ApplianceError as error:
                if not isinstance(error, ProviderFailed):
                    self._attempts.succeed(key, address)
                raise
            self._attempts.succeed(key, address)
            return result

        return self._threads.submit(run)

    def stop(self) -> None:
        """Start no more work."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -- sign-in

    def start(self, provider: IdentityProvider, onward: Mapping[str, str]) -> tuple[str, str]:
        """The URL at the provider, and the cookie that binds its response to this browser; ProviderFailed."""
        state, nonce, verifier = sessions.new_root(), sessions.new_root(), make_verifier()
        url = self._client.build_sign_in_url(
            _registered(provider), self._redirect_uri(provider), state, (nonce, verifier), build_request(provider)
        )
        pending = PendingSignIn(provider.id, state, nonce, verifier, onward, clock.now_ms() + LIFETIME_MS)
        return url, pending.seal(self._sealer)

    def open_pending(self, provider: IdentityProvider, cookie: str) -> PendingSignIn | None:
        """The sign-in that this browser started at the provider within the last ten minutes, or None."""
        return open_pending(self._sealer, cookie, provider.id)

    def finish(
        self, provider: IdentityProvider, pending: PendingSignIn, code: str, issuer: str, client: Client
    ) -> ProviderSession:
        """Exchange the code, apply the groups and open a session; ProviderFailed, SignInRefused."""
        response = AuthorizationResponse(code, issuer, pending.nonce, pending.verifier, self._redirect_uri(provider))
        claims = self._client.fetch_claims(_registered(provider), self._secrets[provider.id], response, list_needed(provider))
        check_age(provider, claims)
        sid = claims.get("sid")
        identified = SourceIdentity(
            claims["sub"], lambda: checked_login(provider, claims), sid=sid if isinstance(sid, str) else "",
            is_strong=is_strong(provider, claims),
        )  # fmt: skip
        person, token = self._admission.open_session(provider, identified, read_groups(provider, claims), client)
        return ProviderSession(person.id, person.login, token, pending.onward)

    def _redirect_uri(self, provider: IdentityProvider) -> str:
        return callback_url(self._base_url, provider)

    # -- local accounts

    def check_login_allowed(self, login: str) -> None:
        """LocalAccountsOff unless this login may sign in with a password."""
        check_login_allowed(self._settings, login)

    def sign_in_locally(self, checked: Person, client: Client) -> str:
        """Open a session on the base host for a person whose password was checked; returns its token.  SignInFailed."""

        def sign_in() -> str:
            token = sessions.sign_in(self._sealer, checked, lifetime_ms=self._lifetime_ms, client=client)
            if is_break_glass(self._settings, checked.login):
                record_break_glass(checked)
            return token

        return db.write(sign_in)

    # -- back-channel logout

    def end_sessions(self, provider: IdentityProvider, logout_token: str) -> int:
        """End the sessions that a logout token names; returns their number.  ProviderFailed for an invalid or used token."""
        logout = self._client.read_logout_token(_registered(provider), logout_token)
        return db.write(lambda: end_sign_ins(provider, logout))


def callback_url(base_url: str, provider: IdentityProvider) -> str:
    """The redirect URI to register at the provider."""
    return f"{base_url}{PATH}/{provider.id}/callback"


def logout_url(base_url: str, provider: IdentityProvider) -> str:
    """The back-channel logout URI to register at the provider."""
    return f"{base_url}{PATH}/{provider.id}/logout"


def _registered(provider: IdentityProvider) -> RegisteredClient:
    return RegisteredClient(provider.issuer, provider.client_id, " ".join(dict.fromkeys(("openid", *provider.scopes))))
