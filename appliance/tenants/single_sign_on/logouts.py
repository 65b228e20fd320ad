"""Ends sessions because their sign-in has ended at the provider (OpenID Connect Back-Channel Logout 1.0)."""

from appliance.core import clock
from appliance.core.config.sign_in import IdentityProvider
from appliance.monitor import audit
from appliance.tenants import people, service
from appliance.tenants.models import LogoutTokenRow, PersonIdentity, ProviderSignIn, Session
from appliance.tenants.oidc.discovery import ProviderFailed
from appliance.tenants.oidc.tokens import LOGOUT_SECONDS, LogoutToken


def end_sign_ins(provider: IdentityProvider, logout: LogoutToken) -> int:
    """Inside a write: end the sessions of one sign-in, or of a person if the token names none; returns their number.

    ProviderFailed if the token was used before.  That nobody is signed in is not an error.
    """
    _use_token(provider.issuer, logout.token_id)
    ended = _end_sign_in(provider, logout) if logout.session else _end_all(provider, logout.subject)
    for user_id, tenant_id in ended:
        if tenant_id is not None:
            audit.record(service.system_scope(tenant_id), "session.provider_logout", user_id, {"provider": provider.id})
    for user_id in {user_id for user_id, _ in ended}:
        people.end_other_sign_ins(user_id)  # WebApps require a new sign-in, too
    return len(ended)


def _use_token(issuer: str, token_id: str) -> None:
    now = clock.now_ms()
    LogoutTokenRow.delete().where(LogoutTokenRow.expires_at < now).execute()
    if LogoutTokenRow.select().where(LogoutTokenRow.issuer == issuer, LogoutTokenRow.token_id == token_id).exists():
        raise ProviderFailed("the provider's logout token was used before")
    LogoutTokenRow.create(issuer=issuer, token_id=token_id, expires_at=now + 2 * LOGOUT_SECONDS * 1000)


def _end_sign_in(provider: IdentityProvider, logout: LogoutToken) -> list[tuple[str, str | None]]:
    """End the sign-in with this `sid`, and those of the same person of which the provider did not tell the `sid`."""
    is_match = ProviderSignIn.sid == logout.session
    if logout.subject:
        is_match = (is_match | (ProviderSignIn.sid == "")) & (ProviderSignIn.subject == logout.subject)
    ended = []
    for row in list(ProviderSignIn.select().where((ProviderSignIn.issuer == provider.issuer) & is_match)):
        ended += _end_sessions((Session.user_id == row.user_id) & (Session.root == row.root))
        row.delete_instance()
    return ended


def _end_all(provider: IdentityProvider, subject: str) -> list[tuple[str, str | None]]:
    known = (PersonIdentity.issuer == provider.issuer) & (PersonIdentity.subject == subject)
    identity = PersonIdentity.get_or_none(known)
    return [] if identity is None else _end_sessions(Session.user_id == identity.user_id)


def _end_sessions(condition: object) -> list[tuple[str, str | None]]:
    """Delete sessions and one-time codes; returns person and tenant of each session."""
    ended = [(row.user_id, row.tenant_id) for row in Session.select().where(condition) if row.kind == "session"]
    Session.delete().where(condition).execute()
    return ended
