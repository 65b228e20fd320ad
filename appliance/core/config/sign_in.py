"""The section `sign_in`: identity providers of the console, the roles that their groups give, and local accounts."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence
from appliance.core.targets import is_issuer

from .directories import Directory, check_directories
from .roles import ID, GroupRole
from .sections import required, setting
from .trusted_headers import TrustedHeader, check_trusted_headers

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


@dataclass(frozen=True)
class IdentityProvider:
    """An OpenID Connect provider with which people sign in to the console."""

    id: str = required("Short name in addresses, such as corp. Changing it makes its memberships those of another provider.")
    issuer: str = required("URL of the provider, exactly as its discovery document says it.")
    client_id: str = required("The appliance's client at the provider.")
    name: str = setting("", "Name on the sign-in button; empty: the id.")
    client_secret: str = setting("", "The client's secret; prefer client_secret_file.", secret=True)
    client_secret_file: str = setting("", "Absolute path of a file that contains the secret; an alternative to client_secret.")
    scopes: tuple[str, ...] = setting(["email", "profile"], "Scopes to request in addition to openid.")
    login_claim: str = setting(
        "email", "The claim that is the login of a new account. With email, the provider must have verified the address."
    )
    link_by: Literal["none", "email_verified"] = setting(
        "none",
        "email_verified: whoever signs in first with the verified e-mail address of an existing account, or of a future "
        "administrator, gets that account. Set it only if you trust the provider with all of them. none: that is refused.",
    )
    groups_claim: str = setting("", "The claim with a person's groups or roles; a path such as realm_access.roles leads inside.")
    roles: tuple[GroupRole, ...] = setting([], "The roles that groups give in tenants, applied at each sign-in.")
    scim: bool = setting(
        False, "Whether the provider adds, changes and removes people and groups itself (SCIM 2.0, docs/scim.md). Then only people "
        "whom it has added sign in with it, and roles follow its SCIM groups, by their displayName, instead of groups_claim."
    )
    amr_values: tuple[str, ...] = setting(
        [], "Values of the claim amr with which a sign-in counts for second_factor.required_for, such as mfa; one of them is "
        "enough. Empty: amr is not asked for.",
    )
    acr_values: tuple[str, ...] = setting(
        [], "Authentication contexts to request; a sign-in counts for second_factor.required_for if its claim acr is one of them. "
        "Empty: acr is not asked for.",
    )
    max_age_minutes: int = setting(
        0, "How long ago the provider may have checked who it is, from 1 to 1440; an older sign-in there is repeated. 0: any time."
    )
    allow_unknown: bool = setting(
        False, "Whether people may sign in who have no role in any tenant; false: they are refused, and get no account."
    )

    @property
    def label(self) -> str:
        """The name to show."""
        return self.name or self.id

    def __str__(self) -> str:
        return f"{self.id}: {self.issuer}"


@dataclass(frozen=True)
class SignIn:
    """How people sign in to the console."""

    providers: tuple[IdentityProvider, ...] = setting([], "Identity providers (OpenID Connect). docs/sign-in.md has examples.")
    directories: tuple[Directory, ...] = setting([], "Directories (LDAP, Active Directory). docs/directories.md has examples.")
    trusted_headers: tuple[TrustedHeader, ...] = setting(
        [], "Proxies that sign people in and send their login in a header. docs/trusted-header.md says how to set one up."
    )
    local_accounts: bool = setting(True, "false: nobody signs in with a password except break_glass.")
    break_glass: str = setting(
        "", "Login of the one account that signs in with a password while local_accounts is false, for when no provider works."
    )


MOST_AGE_MINUTES = 24 * 60
FACTOR_ROLES = ("owner", "builder", "operator", "viewer", "approver")
MOST_STEP_UP_MINUTES = 24 * 60


@dataclass(frozen=True)
class SecondFactor:
    """Second factors of people: passkeys and codes of an app."""

    required_for: tuple[str, ...] = setting(
        [],
        "Roles in any tenant (owner, builder, operator, viewer, approver) whose people need a second factor. Without one they are "
        "led to add it before anything else.",
    )
    step_up_minutes: int = setting(
        10, "How long a proof with a factor lasts; after that, decisions, keys, people and kill switches ask for it again."
    )
    step_up_password: bool = setting(
        False, "Whether accounts without a second factor enter their password there instead; false: they are not asked."
    )


def check_second_factor(section: SecondFactor) -> None:
    """ConfigInvalid names the setting and the problem."""
    if unknown := next((role for role in section.required_for if role not in FACTOR_ROLES), None):
        raise ConfigInvalid(Sentence(
            "second_factor.required_for: %(role)s is not a role; the roles are %(roles)s",
            role=repr(unknown), roles=", ".join(FACTOR_ROLES),
        ))
    if not 1 <= section.step_up_minutes <= MOST_STEP_UP_MINUTES:
        raise ConfigInvalid(Sentence(
            "second_factor.step_up_minutes is %(minutes)s; it must be from 1 to %(most)s",
            minutes=section.step_up_minutes, most=MOST_STEP_UP_MINUTES,
        ))


def check_sign_in(section: SignIn) -> None:
    """ConfigInvalid names the provider, the field and the problem."""
    for number, provider in enumerate(section.providers):
        if problem := _problem_of(provider):
            raise ConfigInvalid(
                Sentence("sign_in.providers[%(number)s].%(problem)s", number=number, problem=problem)
            )
    check_directories(section.directories)
    check_trusted_headers(section.trusted_headers)
    _check_distinct(section)
    has_source = bool(section.providers or section.directories or section.trusted_headers)
    if not section.local_accounts and not (has_source and section.break_glass):
        raise ConfigInvalid(
            "sign_in.local_accounts is false, so sign_in.providers needs a provider, or sign_in.directories or "
            "sign_in.trusted_headers an entry, and sign_in.break_glass the login of an account with a password for when the "
            "provider does not work"
        )


def _check_distinct(section: SignIn) -> None:
    """Memberships name the source that gave them by its id, so that no two may have the same."""
    for field in ("id", "issuer"):
        values = [getattr(each, field) for each in section.providers]
        if double := next((value for value in values if values.count(value) > 1), None):
            raise ConfigInvalid(
                Sentence("sign_in.providers: two providers have the %(field)s %(double)s", field=field, double=double)
            )
    ids = [*(each.id for each in section.providers), *(each.id for each in section.directories)]
    ids += [each.id for each in section.trusted_headers]
    if double := next((value for value in ids if ids.count(value) > 1), None):
        raise ConfigInvalid(Sentence("sign_in: two of providers, directories and trusted_headers have the id %(id)s", id=double))


def _problem_of(provider: IdentityProvider) -> str:
    """The first problem of a provider, beginning with its field; or an empty string."""
    if not ID.fullmatch(provider.id):
        return "id must be at most 40 lower-case letters, digits and hyphens, and begin with a letter"
    if not is_issuer(provider.issuer):
        return "issuer must be an https address without query and fragment"
    for field in ("client_id", "login_claim"):
        if not getattr(provider, field).strip():
            return f"{field} must not be empty"
    if provider.client_secret and provider.client_secret_file:
        return "client_secret cannot be combined with client_secret_file"
    if provider.client_secret_file and not Path(provider.client_secret_file).is_absolute():
        return "client_secret_file must be an absolute path"
    if problem := _problem_of_request(provider):
        return problem
    if provider.link_by == "email_verified" and provider.login_claim != "email":
        return "link_by is email_verified, so login_claim must be email"
    if provider.scim and provider.groups_claim:
        return "scim is true, so groups_claim must be empty: roles follow the groups that the provider sends by SCIM"
    if not provider.scim and bool(provider.roles) != bool(provider.groups_claim):
        return "groups_claim and roles must be set together"
    if any(not (each.group and each.tenant) for each in provider.roles):
        return "roles: group and tenant must not be empty"
    return ""


def _problem_of_request(provider: IdentityProvider) -> str:
    """The first problem of what is asked of a provider at a sign-in."""
    if wrong := next((scope for scope in provider.scopes if not _SCOPE.fullmatch(scope)), None):
        return f"scopes contains {wrong!r}, which is not a scope"
    if wrong := next((value for value in provider.acr_values if not _SCOPE.fullmatch(value)), None):
        return f"acr_values contains {wrong!r}, which is empty or has a space"
    if not 0 <= provider.max_age_minutes <= MOST_AGE_MINUTES:
        return f"max_age_minutes is {provider.max_age_minutes}; it must be from 0 to {MOST_AGE_MINUTES}"
    return ""


def read_client_secret(provider: IdentityProvider) -> str:
    """The client's secret, from the settings or its file; ConfigInvalid when the file cannot be read or is empty."""
    if not provider.client_secret_file:
        return provider.client_secret
    name = f"sign_in.providers: client_secret_file of {provider.id}"
    try:
        text = Path(provider.client_secret_file).read_text("utf8").strip()
    except OSError as error:
        raise ConfigInvalid(Sentence(
            "%(name)s: %(file)s cannot be read (%(strerror)s)", name=name, file=provider.client_secret_file, strerror=error.strerror
        )) from error
    except UnicodeDecodeError as error:
        message = Sentence("%(name)s: %(file)s is not UTF-8 text", name=name, file=provider.client_secret_file)
        raise ConfigInvalid(message) from error
    if not text:
        raise ConfigInvalid(Sentence("%(name)s: %(file)s is empty", name=name, file=provider.client_secret_file))
    return text
