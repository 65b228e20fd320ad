"""Signs people in to the console whom a trusted proxy has signed in, and binds their sessions to the login that it sends."""

import logging

from appliance.core.config import Config
from appliance.core.config.trusted_headers import TrustedHeader
from appliance.core.crypto import Sealer
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.tenants import people
from appliance.tenants.models import ProviderSignIn
from appliance.tenants.people import SignedIn
from appliance.tenants.sign_in import Client

from .accounts import ReservedLogins, SignInRefused, SourceIdentity
from .admission import Admission
from .proxy_logins import ProxyLogin

log = logging.getLogger(__name__)


class ProxyLoginInvalid(ApplianceError):
    """The proxy's headers do not say who it is."""

    code, status = "proxy_login_invalid", 400


class ProxySignIn:
    """The proxies of `sign_in.trusted_headers`."""

    def __init__(self, config: Config, sealer: Sealer) -> None:
        self._proxies = {each.id: each for each in config.sign_in.trusted_headers}
        reserved = ReservedLogins(config.console.administrators, config.sign_in.break_glass)
        self._admission = Admission(reserved, sealer, config.console.session_hours * 3_600_000)

    def find_proxy(self, sent: ProxyLogin) -> TrustedHeader:
        """The settings of the proxy that has sent this."""
        return self._proxies[sent.proxy]

    def sign_in(self, sent: ProxyLogin, client: Client) -> tuple[str, str, str]:
        """Open a session on the base host; returns id and login of the person, and the token.

        ProxyLoginInvalid, SignInRefused, AccountDisabled.
        """
        proxy = self._proxies[sent.proxy]
        if sent.is_ambiguous:
            log.warning("the proxy %s has sent one of its headers twice; it has to replace what clients send", proxy.id)
            raise ProxyLoginInvalid(Sentence(
                "%(name)s has sent several logins, so nobody is signed in; tell your administrator", name=proxy.label
            ))
        identified = SourceIdentity(sent.subject, lambda: _login_of(proxy, sent))
        person, token = self._admission.open_session(proxy, identified, sent.groups, client)
        return person.id, person.login, token

    def is_another(self, person: SignedIn, sent: ProxyLogin) -> bool:
        """Whether a proxy has signed in this session's person, and now sends another login."""
        row = ProviderSignIn.get_or_none((ProviderSignIn.root == person.root) & (ProviderSignIn.user_id == person.user_id))
        if row is None or row.issuer not in {each.issuer for each in self._proxies.values()}:
            return False
        return sent.is_ambiguous or (row.issuer, row.subject) != (self._proxies[sent.proxy].issuer, sent.subject)


def _login_of(proxy: TrustedHeader, sent: ProxyLogin) -> str:
    try:
        return people.check_login(sent.login)
    except ValidationFailed as error:
        raise SignInRefused(Sentence(
            "the header %(header)s of %(name)s is not a login; an administrator can correct sign_in.trusted_headers",
            header=proxy.login_header or proxy.header, name=proxy.label,
        )) from error
