"""What `gos doctor` says about the sign-in to the console: its identity providers, directories and the account for emergencies."""

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_network

from appliance.app.parts import breach_egress, identity_egress
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.config.sign_in import IdentityProvider, read_client_secret
from appliance.core.errors import ApplianceError, NotFound
from appliance.tenants import people, service
from appliance.tenants.directories import DirectoryClient
from appliance.tenants.oidc import OidcClient
from appliance.tenants.provisioning import WARNING_MS, find_last_token
from appliance.tenants.sign_in import temporary_passwords
from appliance.tenants.sign_in.breached_passwords import PROBE, BreachListUnavailable, open_breach_list
from appliance.tenants.single_sign_on import callback_url, last_problem, logout_url

Finding = tuple[str, str]
DAY_MS = 86_400_000
MOST_PROXIES = 256  # in a network of proxies that is not remarkable


def provider_findings(config: Config) -> Iterator[Finding]:
    """Check that each provider answers, and say what to register there."""
    for provider in config.sign_in.providers:
        yield from _check_provider(config, provider)


def _check_provider(config: Config, provider: IdentityProvider) -> Iterator[Finding]:
    about = f"the identity provider {provider.id} ({provider.issuer})"
    try:
        secret = read_client_secret(provider)
        OidcClient(identity_egress(config)).check(provider.issuer)
    except ApplianceError as error:
        yield "FAIL", f"{about} cannot be used: {error.message}"
        return
    yield "ok", f"{about} answers; register there the redirect URI {callback_url(config.base_url, provider)}"
    yield "note", f"{about} can end sessions here if its back-channel logout URI is {logout_url(config.base_url, provider)}"
    if not secret:
        yield "note", f"{about} has no client secret; set client_secret_file unless the client is public there"


def directory_findings(config: Config) -> Iterator[Finding]:
    """Check that each server of each directory answers, and that people can be searched there."""
    for directory in config.sign_in.directories:
        for url in directory.urls:
            about = f"the directory {directory.id} ({url})"
            try:
                answer = DirectoryClient(replace(directory, urls=(url,)), identity_egress(config)).check()
            except ApplianceError as error:
                yield "FAIL", f"{about} cannot be used: {error.message}"
            else:
                yield "ok", f"{about} answers: {answer}"


def proxy_findings(config: Config) -> Iterator[Finding]:
    """Check that only proxies may send logins, as far as their networks say it."""
    for trusted in config.sign_in.trusted_headers:
        about = f"the proxy {trusted.id}"
        wide = [text for text in trusted.proxies if ip_network(text).num_addresses > MOST_PROXIES]
        for text in wide:
            yield "note", f"{about} may be anybody in {text}, who then can sign in as anybody; name its addresses alone"
        if not wide:
            yield "ok", f"{about} may send {trusted.header} from {', '.join(trusted.proxies)}"


def password_findings(config: Config) -> Iterator[Finding]:
    """Check that the list of breached passwords can be read, and knows the commonest one."""
    if not (place := config.passwords.breaches):
        return
    try:
        is_known = open_breach_list(place, breach_egress(config)).is_known(PROBE)
    except BreachListUnavailable as error:
        yield "FAIL", f"passwords.breaches: {place} cannot be read, so no new password is accepted: {error.__cause__}"
        return
    if is_known:
        yield "ok", f"new passwords are compared with those known from breaches ({place})"
    else:
        yield "FAIL", f"passwords.breaches: {place} does not know {PROBE!r}, so it is no list of SHA-1 hashes of such passwords"


def _check_tokens(config: Config) -> Iterator[Finding]:
    """Check that each provider with SCIM has a token that works, and for two weeks more."""
    for provider in (each for each in config.sign_in.providers if each.scim):
        token, about = find_last_token(provider.id), f"the identity provider {provider.id}"
        if token is None:
            yield "FAIL", (
                f"{about} has no SCIM token that works, so leavers are not removed; create one with `gos scim token {provider.id}`"
            )
        elif token.expires_at is not None and (left := token.expires_at - clock.now_ms()) < WARNING_MS:
            yield "note", (
                f"the SCIM token {token.id} of {provider.id} expires in {left // DAY_MS} days; run `gos scim rotate {token.id} "
                "--overlap 86400`, and enter the new one at the provider"
            )
        else:
            yield "ok", f"{about} has a SCIM token that works"


def account_findings(config: Config) -> Iterator[Finding]:
    """Check what the sign-in needs in the database, which must be open."""
    sources = [("identity provider", each.id, each.roles) for each in config.sign_in.providers]
    sources += [("directory", each.id, each.roles) for each in config.sign_in.directories]
    sources += [("proxy", each.id, each.roles) for each in config.sign_in.trusted_headers]
    for kind, name, roles in sources:
        for tenant in sorted({each.tenant for each in roles}):
            if not service.is_stored(tenant):
                yield "note", f"the {kind} {name} gives roles in the tenant {tenant}, which does not exist"
    for directory in config.sign_in.directories:
        if problem := last_problem(directory):
            yield "FAIL", f"the people of the directory {directory.id} are not followed: {problem}"
    yield from _check_tokens(config)
    if config.sign_in.local_accounts:
        return
    login = config.sign_in.break_glass
    try:
        account = people.find_user(login)
        has_password, is_temporary = bool(account.password_hash), temporary_passwords.must_replace(account)
    except NotFound:
        has_password = is_temporary = False
    if is_temporary:
        yield "FAIL", (
            f"the password of {login} (sign_in.break_glass) is temporary and ends soon; sign in with it, or set one that lasts "
            f"with `gos user password {login} --lasting`"
        )
    elif has_password:
        yield "ok", f"{login} can sign in with a password if no identity provider works (sign_in.break_glass)"
    else:
        yield "FAIL", (
            f"sign_in.break_glass: there is no account {login} with a password; create it with "
            f"`gos user add {login} --password-stdin --lasting`"
        )
