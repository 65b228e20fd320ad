"""The account of somebody who signs in with a provider: that of their identity, one linked by e-mail address, or a new one."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core import clock, ids
from appliance.core.config.sign_in import IdentityProvider
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.tenants import people, service
from appliance.tenants.models import Person, PersonIdentity

from .claims import read_login
from .provisioned import find_provisioned, is_provisioned
from .sources import Source

NOT_PROVISIONED = "your provider has not added you here, or says that you have left; ask an administrator there"


class SignInRefused(ApplianceError):
    """The provider knows who signed in, but they may not sign in here."""

    code, status = "sign_in_refused", 403


@dataclass(frozen=True)
class ReservedLogins:
    """Logins that need more than a provider's word: appliance administrators, and the account for emergencies, which none gets."""

    administrators: Collection[str]
    break_glass: str


@dataclass(frozen=True)
class Account:
    """The account of an identity, and what is new about it."""

    person: Person
    is_new: bool = False
    is_linked: bool = False


@dataclass(frozen=True)
class SourceIdentity:
    """Somebody as a source identifies them; `read_login` says what the login of a new account would be, or raises SignInRefused.

    `sid` is the id of the sign-in at the source, which can end it; `is_strong` if it stands for a second factor.
    """

    subject: str
    read_login: Callable[[], str]
    sid: str = ""
    is_strong: bool = True


def find_account(provider: Source, identified: SourceIdentity, reserved: ReservedLogins) -> Account:
    """Inside a write: the account of this identity, which need not be stored yet; SignInRefused, AccountDisabled."""
    known = (PersonIdentity.issuer == provider.issuer) & (PersonIdentity.subject == identified.subject)
    identity: PersonIdentity | None = PersonIdentity.get_or_none(known)
    if identity is not None:
        PersonIdentity.update(used_at=clock.now_ms(), provider=provider.id).where(known).execute()
        account = Account(Person.get_by_id(identity.user_id))
        if provider.scim and not (is_provisioned(provider, account.person.id) or is_administrator(reserved, account.person.login)):
            raise SignInRefused(NOT_PROVISIONED)
    else:
        account = _find_by_login(provider, identified.read_login(), reserved)
    if not account.is_new:
        people.check_enabled(account.person.id)
    if account.person.login == people.normalize_login(reserved.break_glass):
        raise SignInRefused("this account signs in with its password only")
    return account


def checked_login(provider: IdentityProvider, claims: Mapping[str, Any]) -> str:
    """The login of a new account by the claims; SignInRefused if there is none."""
    login = read_login(provider, claims)
    if not login and provider.login_claim == "email":
        raise SignInRefused("the provider has no verified e-mail address of yours")
    try:
        return people.check_login(login)
    except ValidationFailed as error:
        raise SignInRefused(Sentence(
            "the claim %(claim)s of the provider is not a login; an administrator can correct sign_in.providers",
            claim=provider.login_claim,
        )) from error


def is_administrator(reserved: ReservedLogins, login: str) -> bool:
    """Whether this is the login of an administrator of the appliance, whom no provider provisions."""
    return login in {people.normalize_login(each) for each in reserved.administrators}


def _find_provisioned(provider: Source, login: str) -> Account:
    """The account that the provider has added under this login, unless it identifies somebody else already."""
    person = find_provisioned(provider, login)
    if person is None:
        raise SignInRefused(NOT_PROVISIONED)
    if PersonIdentity.select().where(PersonIdentity.user_id == person.id, PersonIdentity.issuer == provider.issuer).exists():
        raise SignInRefused(Sentence(
            "%(login)s belongs to another account at the provider; an administrator can remove the person there and add them again",
            login=login,
        ))
    return Account(person, is_linked=True)


def _find_by_login(provider: Source, login: str, reserved: ReservedLogins) -> Account:
    if provider.scim and not is_administrator(reserved, login):
        return _find_provisioned(provider, login)
    person: Person | None = Person.get_or_none(Person.login == login)
    is_trusted = provider.link_by != "none"
    if person is not None and not is_trusted:
        raise SignInRefused(Sentence(
            "there is already an account %(login)s, which this provider may not use; sign in as before, or ask an administrator "
            "to set link_by for the provider",
            login=login,
        ))
    if person is not None:
        return Account(person, is_linked=True)
    if is_administrator(reserved, login) and not is_trusted:
        raise SignInRefused(Sentence(
            "%(login)s is an administrator of this appliance without an account; its operator can create the account with "
            "`gos user add LOGIN`, or set link_by for the provider",
            login=login,
        ))
    new = Person(id=ids.new("usr"), login=login, password_hash="", created_at=clock.now_ms(), language="")
    return Account(new, is_new=True)


def store_account(provider: Source, account: Account, subject: str) -> None:
    """Inside a write: store a new account, and the identity of a new or linked one."""
    if account.is_new:
        people.insert_user(account.person)
    if account.is_new or account.is_linked:
        now = clock.now_ms()
        PersonIdentity.create(
            issuer=provider.issuer, subject=subject, user_id=account.person.id, provider=provider.id, created_at=now, used_at=now
        )
    if account.is_linked:
        details = {"login": account.person.login, "provider": provider.id, "issuer": provider.issuer}
        for tenant, _ in people.tenants_of(account.person.id):
            audit.record(service.system_scope(tenant.id), "identity.link", account.person.id, details)
