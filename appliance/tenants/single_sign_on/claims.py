"""Reads login and groups from the claims of a provider."""

from collections.abc import Mapping
from typing import Any

from appliance.core.config.sign_in import IdentityProvider
from appliance.core.sentences import Sentence
from appliance.tenants.oidc.client import verified_email
from appliance.tenants.oidc.discovery import ProviderFailed

MOST_GROUPS = 5000


def find_claim(claims: Mapping[str, Any], name: str) -> Any:
    """The claim of this name, or what its dots lead to, such as `realm_access.roles`; None when there is none."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def list_needed(provider: IdentityProvider) -> set[str]:
    """The claims that are used, by their first part."""
    logins = {"email", "email_verified"} if provider.login_claim == "email" else {_first_part(provider.login_claim)}
    return logins | ({_first_part(provider.groups_claim)} if provider.groups_claim else set())


def _first_part(name: str) -> str:
    """A claim can be a URL, which has dots but is a name of its own."""
    return name if "/" in name else name.partition(".")[0]


def read_groups(provider: IdentityProvider, claims: Mapping[str, Any]) -> frozenset[str]:
    """The person's groups; ProviderFailed when the provider sends them in a way that cannot be read.

    A missing claim means no groups, as providers leave out what is empty.
    """
    if not provider.groups_claim:
        return frozenset()
    elsewhere = claims.get("_claim_names")
    if isinstance(elsewhere, Mapping) and _first_part(provider.groups_claim) in elsewhere:
        raise ProviderFailed(
            "the provider has left out the groups because they are too many; let it send only the groups assigned to this client"
        )
    value = find_claim(claims, provider.groups_claim)
    values = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(values, list) or len(values) > MOST_GROUPS or not all(isinstance(each, str) for each in values):
        message = Sentence("the claim %(claim)s of the provider is not a list of texts", claim=provider.groups_claim)
        raise ProviderFailed(message)
    return frozenset(values)


def read_login(provider: IdentityProvider, claims: Mapping[str, Any]) -> str:
    """What the login of a new account would be; empty when the provider does not say it."""
    if provider.login_claim == "email":
        return verified_email(claims)
    value = find_claim(claims, provider.login_claim)
    return value.strip().lower() if isinstance(value, str) else ""
