"""Signs people in to the console with their login and password in a directory."""

import logging
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from appliance.connectors.egress import Egress
from appliance.core.config import Config
from appliance.core.config.directories import Directory
from appliance.core.database import db
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.tenants import people
from appliance.tenants.directories import DirectoryClient, DirectoryFailed, parse_dn
from appliance.tenants.directories.entries import DirectoryPerson
from appliance.tenants.models import Person, PersonIdentity
from appliance.tenants.sign_in.password_checks import SignInFailed
from appliance.tenants.sign_in.password_rules import MAX_LENGTH

from . import departures
from .accounts import ReservedLogins, SignInRefused, SourceIdentity
from .admission import NO_ROLE, admit

log = logging.getLogger(__name__)
WRONG = "the login or the password is wrong"


class DirectoryUnavailable(ApplianceError):
    """The directory that has to check a password does not answer."""

    code, status = "directory_unavailable", 503


@dataclass(frozen=True)
class PasswordRoute:
    """Which directories check the password of a login.  If none of them knows it, the local account does, unless `is_bound`."""

    clients: Sequence[DirectoryClient]
    is_bound: bool = False


class Directories:
    """The directories of the console; `egress` must admit them.  ConfigInvalid if a file of their settings cannot be read."""

    def __init__(self, config: Config, egress: Egress) -> None:
        self.clients = [DirectoryClient(each, egress) for each in config.sign_in.directories]
        self._has_local_accounts = config.sign_in.local_accounts
        self._reserved = ReservedLogins(config.console.administrators, config.sign_in.break_glass)

    def find_route(self, login: str) -> PasswordRoute:
        """Which directories to ask for this login.

        An account of a directory belongs to it alone.  Any other account with a password keeps it, unless a directory is trusted
        with all logins (`link_by`).  The account for emergencies never leaves the appliance.
        """
        if not self.clients or login == people.normalize_login(self._reserved.break_glass):
            return PasswordRoute(())
        person: Person | None = Person.get_or_none(Person.login == login)
        if person is None:
            return PasswordRoute(self.clients)
        rows = PersonIdentity.select(PersonIdentity.issuer).where(PersonIdentity.user_id == person.id)
        issuers = {row.issuer for row in rows}
        bound = [each for each in self.clients if each.directory.issuer in issuers]
        if bound:
            return PasswordRoute(bound, is_bound=True)
        if person.password_hash and self._has_local_accounts:
            return PasswordRoute([each for each in self.clients if each.directory.link_by != "none"])
        return PasswordRoute(self.clients)

    def sign_in(self, route: PasswordRoute, login: str, password: str, check_locally: Callable[[], Person]) -> Person:
        """The person whose password this is, with the roles of their groups.

        SignInFailed, SignInRefused, AccountDisabled, DirectoryUnavailable.
        """
        if not password or len(password) > MAX_LENGTH or not _is_plain(login):
            raise SignInFailed(WRONG)
        unavailable: Directory | None = None
        for client in route.clients:
            try:
                person = client.find_person(login)
                if person is not None:
                    return self._enter(client, person, password)
            except DirectoryFailed as error:
                log.warning("nobody can sign in with the directory %s: %s", client.directory.id, error.message)
                unavailable = unavailable or client.directory
        try:
            if route.is_bound or not self._has_local_accounts:
                raise SignInFailed(WRONG)
            return check_locally()
        except SignInFailed:
            if unavailable is None:
                raise
            raise DirectoryUnavailable(Sentence(
                "%(name)s cannot check passwords at the moment; try again later, and if it fails again, tell your administrator",
                name=unavailable.label,
            )) from None

    def _enter(self, client: DirectoryClient, person: DirectoryPerson, password: str) -> Person:
        if not client.is_password_right(person, password):
            raise SignInFailed(WRONG)
        directory = client.directory
        if person.is_disabled:
            log.info("%s is disabled in the directory %s", person.dn, directory.id)
            raise SignInRefused("your account is disabled or has expired in the directory; ask an administrator there")
        groups = _match_groups(directory, client.list_groups(person))
        identified = SourceIdentity(person.subject, lambda: _login_of(directory, person))

        def enter() -> Person | None:
            departures.enable(directory, person.subject)
            return admit(directory, identified, groups, self._reserved)

        admitted = db.write(enter)
        if admitted is None:
            raise SignInRefused(NO_ROLE)
        return admitted

    def check_people(self) -> None:
        """Disable whoever has left a directory since the last check, and enable whoever is back."""
        departures.check_people(self.clients)


def _is_plain(login: str) -> bool:
    """Whether no directory reads this as another login, as it ignores some characters: tries of that would not be counted."""
    return login.isprintable() and unicodedata.normalize("NFKC", login) == login


def _match_groups(directory: Directory, names: frozenset[str]) -> frozenset[str]:
    """Those groups of `roles` whose DN is among these, however it is written."""
    parsed = {parse_dn(each) for each in names}
    return frozenset(rule.group for rule in directory.roles if parse_dn(rule.group) in parsed)


def _login_of(directory: Directory, person: DirectoryPerson) -> str:
    try:
        return people.check_login(person.login)
    except ValidationFailed as error:
        raise SignInRefused(Sentence(
            "your entry in the directory has no %(attribute)s that can be a login; an administrator can correct it, or "
            "login_attribute in sign_in.directories", attribute=directory.login_attribute,
        )) from error
