"""Temporary passwords: somebody else knows one, and the first sign-in replaces it by one of the person's own.

The appliance has made it up, or an operator has typed it.
"""

import secrets
from dataclasses import dataclass

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.errors import ValidationFailed
from appliance.tenants import people
from appliance.tenants.models import Person
from appliance.tenants.trails import record_everywhere

DAY_MS = 86_400_000


@dataclass(frozen=True)
class TemporaryPassword:
    """A random password, and until when it can be replaced, in epoch milliseconds."""

    text: str
    expires_at: int


def make_temporary_password(config: Config) -> TemporaryPassword:
    """A password of 160 random bits that lasts for `passwords.temporary_days`."""
    return TemporaryPassword(secrets.token_urlsafe(20), temporary_until(config))


def temporary_until(config: Config) -> int:
    """Until when a password that is set now can be replaced if it is temporary, in epoch milliseconds."""
    return clock.now_ms() + config.passwords.temporary_days * DAY_MS


def must_replace(person: Person) -> bool:
    """Whether the password of this account is temporary, so that it opens nothing but the page where it is replaced."""
    return person.password_expires_at is not None


def find_expiry(login: str) -> int | None:
    """Until when the temporary password of the account with this login can be replaced; None if it has or is none."""
    person: Person | None = Person.get_or_none(Person.login == login)
    return None if person is None else person.password_expires_at


def replace_temporary_password(checked: Person, password: str) -> Person:
    """Store the own password of somebody whose temporary one was right.  SignInFailed if replaced since, ValidationFailed."""
    if _is_same(checked, password):
        raise ValidationFailed("choose another than the temporary one: whoever gave it to you knows it", pointer="/password")
    hashed = people.hash_new_password(checked.login, password)

    def replace() -> Person:
        people.check_unchanged(checked)
        person = people.replace_password(checked.login, hashed)
        record_everywhere(person.id, "password.replace_temporary", {"login": person.login})
        return person

    return db.write(replace)


def _is_same(person: Person, password: str) -> bool:
    try:
        return PasswordHasher().verify(person.password_hash, password)
    except VerificationError:
        return False
