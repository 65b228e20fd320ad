"""Follows the directories between sign-ins: whoever is gone or disabled there is disabled here, until the directory has them again.

Each person who has signed in with a directory is looked up every five minutes, by one process for all.
"""

import logging
from collections.abc import Sequence
from functools import partial

from appliance.core import clock
from appliance.core.config.directories import Directory
from appliance.core.database import db
from appliance.tenants import accounts, people
from appliance.tenants.directories import DirectoryClient, DirectoryFailed
from appliance.tenants.models import DirectoryCheckRow, Person, PersonIdentity

from .memberships import report_last_owner

log = logging.getLogger(__name__)
CHECK_SECONDS = 300
LOOK_SECONDS = 30.0  # how often each process looks whether a check is due
FEW = 4  # so many people may leave at once, however few there are


def check_people(clients: Sequence[DirectoryClient]) -> None:
    """Check the people of each directory that is due."""
    for client in clients:
        if not _take_turn(client.directory):
            continue
        try:
            problem = check_directory(client)
        except DirectoryFailed as error:
            problem = error.message
            log.warning("the people of the directory %s could not be checked: %s", client.directory.id, problem)
        _record_problem(client.directory, problem)


def check_directory(client: DirectoryClient) -> str:
    """Disable whoever has left, enable whoever is back; returns why not, or an empty text.  DirectoryFailed changes nothing."""
    directory = client.directory
    rows = list(PersonIdentity.select().where(PersonIdentity.issuer == directory.issuer))
    if not rows:
        return ""
    known = client.find_people([row.subject for row in rows])
    present = {subject for subject, person in known.items() if not person.is_disabled}
    enabled = {row.id for row in Person.select(Person.id).where(Person.disabled_at.is_null())}
    active = [row for row in rows if row.user_id in enabled]
    leaving = [row.subject for row in active if row.subject not in present]
    if len(leaving) > FEW and len(leaving) * 2 > len(active):
        problem = f"{len(leaving)} of {len(active)} people are gone at once; nobody was disabled, because this is rather an error"
        log.error("the directory %s: %s", directory.id, problem)
        return problem
    returning = [row.subject for row in rows if row.disabled_at is not None and row.subject in present]
    for subject in leaving:
        db.write(partial(disable, directory, subject))
    for subject in returning:
        db.write(partial(enable, directory, subject))
    return ""


def disable(directory: Directory, subject: str) -> None:
    """Inside a write: disable the account, even that of a last owner, whose membership stays and is reported."""
    person = _person_of(directory, subject)
    if person is None or person.disabled_at is not None:
        return  # what the operator has disabled stays so, whatever the directory says later
    for tenant, role in people.tenants_of(person.id):
        if role == "owner" and people.is_last_owner(tenant.id, person.id):
            report_last_owner(directory, person, tenant.id)
    accounts.disable_account(person.login, may_leave_ownerless=True, provider=directory.id)
    _mark(directory, subject, Person.get_by_id(person.id).disabled_at)
    login = person.login
    db.after_commit(lambda: log.info("%s is no longer in the directory %s and was disabled", login, directory.id))


def enable(directory: Directory, subject: str) -> None:
    """Inside a write: enable the account if the directory disabled it, and nobody else has since."""
    person, identity = _person_of(directory, subject), _identity_of(directory, subject)
    if person is None or identity is None or identity.disabled_at is None:
        return
    if person.disabled_at == identity.disabled_at:
        accounts.enable_account(person.login, provider=directory.id)
    _mark(directory, subject, None)


def _identity_of(directory: Directory, subject: str) -> PersonIdentity | None:
    mine = (PersonIdentity.issuer == directory.issuer) & (PersonIdentity.subject == subject)
    identity: PersonIdentity | None = PersonIdentity.get_or_none(mine)
    return identity


def _person_of(directory: Directory, subject: str) -> Person | None:
    identity = _identity_of(directory, subject)
    person: Person | None = Person.get_or_none(Person.id == identity.user_id) if identity else None
    return person


def _mark(directory: Directory, subject: str, disabled_at: int | None) -> None:
    mine = (PersonIdentity.issuer == directory.issuer) & (PersonIdentity.subject == subject)
    PersonIdentity.update(disabled_at=disabled_at).where(mine).execute()


# -- whose turn it is


def _take_turn(directory: Directory) -> bool:
    """Whether the check is due, and no other process makes it."""
    mine = DirectoryCheckRow.directory == directory.id
    row = DirectoryCheckRow.get_or_none(mine)
    if row is not None and row.due_at > clock.now_ms():
        return False

    def take() -> bool:
        now = clock.now_ms()
        due = now + CHECK_SECONDS * 1000
        if DirectoryCheckRow.update(due_at=due).where(mine & (DirectoryCheckRow.due_at <= now)).execute():
            return True
        added = DirectoryCheckRow.insert(directory=directory.id, due_at=due, problem="").on_conflict_ignore().execute()
        return bool(added) and DirectoryCheckRow.get(mine).due_at == due

    return db.write(take)


def _record_problem(directory: Directory, problem: str) -> None:
    mine = DirectoryCheckRow.directory == directory.id
    if DirectoryCheckRow.get(mine).problem != problem:
        db.write(lambda: DirectoryCheckRow.update(problem=problem).where(mine).execute())


def last_problem(directory: Directory) -> str:
    """What the last check of the directory's people found wrong; empty if nothing, or before the first one."""
    row = DirectoryCheckRow.get_or_none(DirectoryCheckRow.directory == directory.id)
    return row.problem if row is not None else ""
