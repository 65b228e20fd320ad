"""Whose data it is: a person with an account, one whose account was deleted, or an address without one."""

import hashlib
import secrets
from dataclasses import dataclass, field

from appliance.core.errors import Conflict, NotFound
from appliance.core.sentences import Sentence
from appliance.tenants import accounts, people

DOMAIN = "person.invalid"
"""Of pseudonyms; RFC 2606 reserves `.invalid`, so that nobody ever gets mail for one."""


@dataclass(frozen=True)
class Subject:
    """A person by id and login.  `user_id` is empty for an address without an account; `keys` are the API keys they issued.

    `address` finds rows by login: it is empty for a deleted account whose login another account has now.
    """

    login: str
    user_id: str = ""
    has_account: bool = False
    address: str = ""
    keys: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(6), compare=False)

    @property
    def actor(self) -> str:
        """The actor of what this person did; empty for an address."""
        return f"user:{self.user_id}" if self.user_id else ""

    @property
    def reference(self) -> str:
        """What audit trails call the person: the id, or a digest of the address, with which a request can be matched to it."""
        return self.user_id or f"address:{_digest(self.login)}"

    @property
    def pseudonym(self) -> str:
        """What stands for the login after an erasure: it has the form of an address, because stored lists expect one.

        That of an account is the same each time; that of an address is random, so that nobody can guess the address from it.
        """
        return f"erased-{_digest(self.user_id) if self.user_id else self.token}@{DOMAIN}"


def find_subject(text: str) -> Subject:
    """The person with this login or id, or the address if no account ever had it.

    NotFound for what is neither; Conflict if several deleted accounts had the login, and none has it now.
    """
    known = accounts.find_known(text)
    if len(known) > 1:
        raise Conflict(Sentence(
            "%(count)s deleted accounts had the login %(login)s; use one of their ids: %(ids)s", count=len(known),
            login=repr(text[:80]), ids=", ".join(each.user_id for each in known),
        ))
    if known:
        [person] = known
        return Subject(
            person.login, person.user_id, has_account=not person.is_deleted,
            address="" if person.is_deleted and accounts.has_account(person.login) else person.login,
            keys=tuple(accounts.list_issued_keys(person.user_id)),
        )
    return find_visitor(text)


def find_visitor(text: str) -> Subject:
    """An e-mail address of somebody who visits WebApps and shares; NotFound for anything else."""
    address = people.normalize_login(text)
    name, at, host = address.rpartition("@")
    if not (name and at and host) or any(character.isspace() for character in address) or len(address) > 254:
        raise NotFound(Sentence(
            "there is no user %(login)s; enter a login, the id of a deleted account or an e-mail address", login=repr(text[:80])
        ))
    return Subject(address, address=address)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
