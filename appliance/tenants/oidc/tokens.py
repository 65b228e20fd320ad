"""Validates the claims of a provider's tokens, after their signatures (`signatures`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

from appliance.core import clock

SKEW_SECONDS = 60
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
LOGOUT_SECONDS = 600  # the age at which a logout token is no longer accepted


class ClientSettings(Protocol):
    """How this appliance is registered at a provider; `scopes` are separated by spaces."""

    @property
    def issuer(self) -> str: ...

    @property
    def client_id(self) -> str: ...

    @property
    def scopes(self) -> str: ...


@dataclass(frozen=True)
class LogoutToken:
    """Who was signed out at the provider: all sessions of `subject`, or only `session` (its `sid`); one of them may be empty."""

    subject: str
    session: str
    token_id: str


def find_problem(claims: Mapping[str, Any], settings: ClientSettings, nonce: str) -> str:
    """The first problem with the claims of an ID token (OpenID Connect Core 1.0 § 3.1.3.7), or an empty string."""
    now, audience = clock.now_ms() / 1000, claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    expires, issued, not_before = claims.get("exp"), claims.get("iat"), claims.get("nbf", 0)
    if claims.get("iss") != settings.issuer:
        return "it comes from another issuer"
    if settings.client_id not in audiences or claims.get("azp", settings.client_id) != settings.client_id:
        return "it was issued for another client"
    if len(audiences) > 1 and "azp" not in claims:
        return "it has several audiences but no azp claim"
    if not (is_time(expires) and is_time(issued) and is_time(not_before)):
        return "its exp, iat or nbf claim is missing or invalid"
    if not (not_before - SKEW_SECONDS <= now < expires + SKEW_SECONDS and issued <= now + SKEW_SECONDS):
        return "it has expired, or is not valid yet; check the clock of this machine"
    if claims.get("nonce") != nonce:
        return "its nonce belongs to another sign-in"
    return "" if is_subject(claims.get("sub")) else "its sub claim is invalid"


def find_logout_problem(claims: Mapping[str, Any], settings: ClientSettings) -> str:
    """The first problem with the claims of a logout token (OpenID Connect Back-Channel Logout 1.0 § 2.6), or an empty string.

    A token is accepted for ten minutes at most, so that used ones need not be remembered for longer; without `exp`, which older
    providers leave out, for one.
    """
    now, audience = clock.now_ms() / 1000, claims.get("aud")
    expires, issued, events = claims.get("exp", claims.get("iat")), claims.get("iat"), claims.get("events")
    if claims.get("iss") != settings.issuer:
        return "it comes from another issuer"
    if settings.client_id not in (audience if isinstance(audience, list) else [audience]):
        return "it was issued for another client"
    if not (is_time(expires) and is_time(issued)):
        return "its exp or iat claim is missing or invalid"
    if not (now - LOGOUT_SECONDS < issued <= now + SKEW_SECONDS and now < max(expires, issued) + SKEW_SECONDS):
        return "it has expired, or is not valid yet; check the clock of this machine"
    if not (isinstance(events, dict) and isinstance(events.get(LOGOUT_EVENT), dict)):
        return "its events claim does not name a back-channel logout"
    if "nonce" in claims:
        return "it has a nonce, as ID tokens have"
    if not is_subject(claims.get("jti")):
        return "its jti claim is missing or invalid"
    names = [claims[name] for name in ("sub", "sid") if name in claims]
    return "" if names and all(map(is_subject, names)) else "it has neither a valid sub nor a valid sid claim"


def is_subject(value: object) -> TypeGuard[str]:
    """Whether this can be a `sub`, `sid` or `jti`."""
    return isinstance(value, str) and 0 < len(value) <= 255 and value.isprintable()


def is_time(value: object) -> TypeGuard[int | float]:
    """Whether this can be a moment, in seconds since 1970."""
    return isinstance(value, int | float) and not isinstance(value, bool)
