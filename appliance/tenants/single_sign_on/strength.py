"""How strong, and how long ago, a sign-in with a provider was: `amr`, `acr` and `auth_time` (OpenID Connect Core 1.0 § 2)."""

from collections.abc import Mapping
from typing import Any

from appliance.core import clock
from appliance.core.config.sign_in import IdentityProvider
from appliance.tenants.oidc.discovery import ProviderFailed
from appliance.tenants.oidc.tokens import SKEW_SECONDS, is_time

from .accounts import SignInRefused


def build_request(provider: IdentityProvider) -> dict[str, str]:
    """The parameters of the authorization request that say how the provider should check the person (Core § 3.1.2.1)."""
    contexts = {"acr_values": " ".join(provider.acr_values)} if provider.acr_values else {}
    return contexts | ({"max_age": str(provider.max_age_minutes * 60)} if provider.max_age_minutes else {})


def is_strong(provider: IdentityProvider, claims: Mapping[str, Any]) -> bool:
    """Whether a sign-in stands for a second factor: `amr` and `acr` say what the settings want of them."""
    methods = claims.get("amr")
    has_method = isinstance(methods, list) and any(each in provider.amr_values for each in methods if isinstance(each, str))
    return (not provider.amr_values or has_method) and (not provider.acr_values or claims.get("acr") in provider.acr_values)


def check_age(provider: IdentityProvider, claims: Mapping[str, Any]) -> None:
    """SignInRefused when the provider checked who it is longer ago than it was asked to; ProviderFailed when it does not say."""
    if not provider.max_age_minutes:
        return
    checked_at = claims.get("auth_time")
    if not is_time(checked_at):
        raise ProviderFailed(
            "its token has no auth_time, which max_age_minutes needs; let the provider send it, or remove max_age_minutes"
        )
    if checked_at < clock.now_ms() / 1000 - provider.max_age_minutes * 60 - SKEW_SECONDS:
        raise SignInRefused("the provider checked who you are too long ago; sign out there, then sign in again")
