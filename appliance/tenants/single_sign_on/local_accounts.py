"""Sign-in with a password while local accounts are turned off: for one account only, and never unnoticed."""

import logging

from appliance.core.config.sign_in import SignIn
from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.monitor import audit
from appliance.tenants import people, service
from appliance.tenants.models import Person

log = logging.getLogger(__name__)


class LocalAccountsOff(ApplianceError):
    """Nobody but the account for emergencies signs in with a password here."""

    code, status = "local_accounts_off", 403


def is_break_glass(settings: SignIn, login: str) -> bool:
    """Whether this is the login of the account for emergencies, while local accounts are off."""
    return not settings.local_accounts and people.normalize_login(login) == people.normalize_login(settings.break_glass)


def check_login_allowed(settings: SignIn, login: str) -> None:
    """LocalAccountsOff unless this login may sign in with a password; it does not depend on whether the account exists."""
    if not is_break_glass(settings, login):
        require_local_accounts(settings)


def require_local_accounts(settings: SignIn) -> None:
    """LocalAccountsOff while people have no passwords here, so that none can be chosen."""
    if not settings.local_accounts:
        raise LocalAccountsOff("accounts with a password are turned off here; sign in with your provider")


def record_break_glass(person: Person) -> None:
    """Inside a write: tell every tenant of the account for emergencies, and the log, that it has signed in."""
    for tenant, _ in people.tenants_of(person.id):
        audit.record(service.system_scope(tenant.id), "session.break_glass", person.id, {"login": person.login})
    login = person.login
    db.after_commit(lambda: log.warning("the break-glass account %s has signed in with its password", login))
