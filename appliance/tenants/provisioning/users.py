"""People whom a provider adds, changes and removes."""

import logging
from functools import partial
from typing import Any

from appliance.core import clock, ids
from appliance.core.config.sign_in import IdentityProvider
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, NotFound, PolicyDenied, VersionConflict
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.tenants import people
from appliance.tenants.models import Person, PersonIdentity, ScimGroup, ScimMember, ScimUser
from appliance.tenants.single_sign_on.accounts import ReservedLogins

from . import leaving
from .records import Criterion, Listing, Slice, UserFields, UserRecord
from .trail import record_for_person

log = logging.getLogger(__name__)


def create_user(provider: IdentityProvider, reserved: ReservedLogins, fields: UserFields) -> UserRecord:
    """Add a person: a new account without a password, or an existing one that the provider may use.

    AlreadyExists, ValidationFailed; PolicyDenied for reserved logins.
    """
    login = fields.check()

    def create() -> UserRecord:
        _check_reserved(reserved, login)
        person = Person.get_or_none(Person.login == login)
        if person is None:
            person = Person(id=ids.new("usr"), login=login, password_hash="", created_at=clock.now_ms(), language="")
            people.insert_user(person)
        else:
            _check_usable(provider, person)
            record_for_person(provider, "identity.link", person.id, {"login": login, "issuer": provider.issuer})
        now = clock.now_ms()
        row = ScimUser(
            user_id=person.id, provider=provider.id, user_name=fields.user_name.strip(), external_id=fields.external_id,
            active=fields.active, attributes=dict(fields.attributes), created_at=now, updated_at=now, version=1,
        )  # fmt: skip
        if not row.active:
            leaving.deactivate(provider, row)
        row.save(force_insert=True)
        db.after_commit(partial(log.info, "the provider %s has added the user %s", provider.id, login))
        return to_record(row)

    return _audit_refusal(provider, login, create)


def replace_user(
    provider: IdentityProvider, reserved: ReservedLogins, user_id: str, fields: UserFields, version: int | None
) -> UserRecord:
    """Change a person, and what they may use.

    NotFound, AlreadyExists, ValidationFailed; VersionConflict if `version` is given and not the current one; PolicyDenied.
    """
    login = fields.check()

    def replace() -> UserRecord:
        row = _get_row(provider, user_id)
        if version is not None and row.version != version:
            raise VersionConflict("the person has been changed meanwhile; send the request again")
        _rename(provider, reserved, row, login)
        before = row.attributes | {"externalId": row.external_id}
        after = dict(fields.attributes) | {"externalId": fields.external_id}
        if changed := sorted(audit.compare(before, after)):  # their names only: the values are about a person
            record_for_person(provider, "user.change", row.user_id, {"login": login, "changed": changed})
        if fields.active != bool(row.active):
            _check_not_break_glass(reserved, row)
            (leaving.activate if fields.active else leaving.deactivate)(provider, row)
        row.user_name, row.external_id, row.active = fields.user_name.strip(), fields.external_id, fields.active
        row.attributes, row.updated_at, row.version = dict(fields.attributes), clock.now_ms(), row.version + 1
        row.save()
        return to_record(row)

    return _audit_refusal(provider, login, replace)


def delete_user(provider: IdentityProvider, reserved: ReservedLogins, user_id: str) -> None:
    """Remove a person; NotFound, PolicyDenied for the account for emergencies."""

    def delete() -> None:
        row = _get_row(provider, user_id)
        _check_not_break_glass(reserved, row)
        leaving.remove(provider, row)
        db.after_commit(partial(log.info, "the provider %s has removed the user %s", provider.id, user_id))

    db.write(delete)


def get_user(provider: IdentityProvider, user_id: str) -> UserRecord:
    """One person of this provider; NotFound."""
    return to_record(_get_row(provider, user_id))


def list_users(provider: IdentityProvider, criteria: tuple[Criterion, ...], part: Slice) -> Listing[UserRecord]:
    """People of this provider who meet all criteria, in the order in which they were added to the appliance."""
    query = ScimUser.select().where(ScimUser.provider == provider.id)
    for criterion in criteria:
        query = query.where(_condition(criterion))
    rows = list(query.order_by(ScimUser.user_id).offset(part.offset).limit(part.count)) if part.count else []
    return Listing(query.count(), _to_records(rows))


def _condition(criterion: Criterion) -> Any:
    value = criterion.value
    if criterion.field == "login":
        return ScimUser.user_id.in_(Person.select(Person.id).where(Person.login == people.normalize_login(str(value))))
    if criterion.field == "active":
        return ScimUser.active == value
    return (ScimUser.external_id if criterion.field == "external_id" else ScimUser.user_id) == value


def to_record(row: ScimUser) -> UserRecord:
    """The row with its groups."""
    return _to_records([row])[0]


def _to_records(rows: list[ScimUser]) -> list[UserRecord]:
    groups: dict[str, list[tuple[str, str]]] = {}
    of_group = ScimMember.select(ScimMember.user_id, ScimGroup.id, ScimGroup.display_name).join(
        ScimGroup, on=(ScimGroup.id == ScimMember.group_id)
    )
    memberships = of_group.where(ScimMember.user_id.in_([row.user_id for row in rows])).order_by(ScimGroup.id)
    for user_id, group_id, name in memberships.tuples():
        groups.setdefault(user_id, []).append((group_id, name))
    return [
        UserRecord(
            id=row.user_id, user_name=row.user_name, external_id=row.external_id, active=bool(row.active),
            attributes=row.attributes, groups=tuple(groups.get(row.user_id, ())), created_at=row.created_at,
            updated_at=row.updated_at, version=row.version,
        )
        for row in rows
    ]  # fmt: skip


def _get_row(provider: IdentityProvider, user_id: str) -> ScimUser:
    row: ScimUser | None = ScimUser.get_or_none((ScimUser.user_id == user_id) & (ScimUser.provider == provider.id))
    if row is None:
        raise NotFound(Sentence("there is no user %(user_id)s of this provider", user_id=repr(user_id[:80])))
    return row


def _check_not_break_glass(reserved: ReservedLogins, row: ScimUser) -> None:
    """PolicyDenied for an account that became the one for emergencies after it was provisioned."""
    if Person.get_by_id(row.user_id).login == people.normalize_login(reserved.break_glass):
        raise PolicyDenied("no provider disables or deletes the account of sign_in.break_glass")


def _check_reserved(reserved: ReservedLogins, login: str) -> None:
    if login == people.normalize_login(reserved.break_glass) or login in map(people.normalize_login, reserved.administrators):
        raise PolicyDenied(Sentence(
            "%(login)s is a login that no provider provisions: the operator of the appliance has reserved it in "
            "console.administrators or sign_in.break_glass",
            login=login,
        ))


def _check_usable(provider: IdentityProvider, person: Person) -> None:
    """AlreadyExists unless the account is free, and the provider already signs it in or is trusted with all accounts."""
    is_provisioned = ScimUser.select().where(ScimUser.user_id == person.id).exists()
    known = PersonIdentity.select().where(PersonIdentity.user_id == person.id, PersonIdentity.issuer == provider.issuer)
    if is_provisioned:
        raise AlreadyExists(Sentence("%(login)s is provisioned already", login=person.login), pointer="/userName")
    if provider.link_by != "email_verified" and not known.exists():
        raise AlreadyExists(Sentence(
            "there is already an account %(login)s, which this provider may not use; an administrator can set link_by for the "
            "provider",
            login=person.login,
        ), pointer="/userName")


def _rename(provider: IdentityProvider, reserved: ReservedLogins, row: ScimUser, login: str) -> None:
    """Inside a write: give the account another login, if the provider has changed it."""
    person = Person.get_by_id(row.user_id)
    if person.login == login:
        return
    for each in (person.login, login):
        _check_reserved(reserved, each)
    if Person.select().where(Person.login == login).exists():
        raise AlreadyExists(Sentence("there is already a user %(login)s", login=repr(login)), pointer="/userName")
    Person.update(login=login).where(Person.id == person.id).execute()
    record_for_person(provider, "user.rename", person.id, {"from": person.login, "to": login})


def _audit_refusal(provider: IdentityProvider, login: str, change: Any) -> UserRecord:
    """Run a write, and record in the trails of the account with this login that it was refused to the provider."""
    try:
        record: UserRecord = db.write(change)
    except (PolicyDenied, AlreadyExists) as error:
        reason = error.code
        db.write(lambda: _record_refusal(provider, login, reason))
        raise
    return record


def _record_refusal(provider: IdentityProvider, login: str, reason: str) -> None:
    person = Person.get_or_none(Person.login == login)
    if person is not None:
        record_for_person(provider, "user.provision_refuse", person.id, {"login": login, "code": reason})
