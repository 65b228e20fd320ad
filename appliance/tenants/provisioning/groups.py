"""Groups that a provider adds, changes and removes, and the memberships that follow them at once."""

from collections.abc import Iterable
from typing import Any

from appliance.core import clock, ids
from appliance.core.config.sign_in import IdentityProvider
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, NotFound, ValidationFailed, VersionConflict
from appliance.core.sentences import Sentence
from appliance.tenants.models import DeletedPerson, Person, ScimGroup, ScimMember, ScimUser
from appliance.tenants.single_sign_on.memberships import apply_roles, end_sessions_without_tenant, find_roles
from appliance.tenants.single_sign_on.provisioned import list_group_names

from .records import Criterion, GroupFields, GroupRecord, Listing, Slice, check_external_id
from .trail import record_for_groups, tenants_of_groups

CHUNK = 400  # values in one statement
MOST_MEMBERS = 20_000
LONGEST_NAME = 500


def create_group(provider: IdentityProvider, fields: GroupFields) -> GroupRecord:
    """Add a group with its members.  AlreadyExists, ValidationFailed."""
    _check_fields(fields)

    def create() -> GroupRecord:
        _check_free(provider, fields.display_name, "")
        now = clock.now_ms()
        row = ScimGroup.create(
            id=ids.new("scg"), provider=provider.id, display_name=fields.display_name, name_key=fields.display_name.casefold(),
            external_id=fields.external_id, created_at=now, updated_at=now, version=1,
        )  # fmt: skip
        members = _known_members(provider, fields.members)
        _add_members(row.id, members)
        _settle(provider, row, {row.display_name}, members)
        _record(provider, row, {row.display_name}, "group.add", added=len(members))
        return _to_records([row])[0]

    return db.write(create)


def replace_group(provider: IdentityProvider, group_id: str, fields: GroupFields, version: int | None) -> GroupRecord:
    """Change a group.  Everybody whom it concerns gets or loses their role at once.

    NotFound, AlreadyExists, ValidationFailed; VersionConflict if `version` is given and not the current one.
    """
    _check_fields(fields)

    def replace() -> GroupRecord:
        row = _get_row(provider, group_id)
        if version is not None and row.version != version:
            raise VersionConflict("the group has been changed meanwhile; send the request again")
        _check_free(provider, fields.display_name, row.id)
        names, before = {row.display_name, fields.display_name}, _member_ids(row.id)
        after = _known_members(provider, fields.members)
        _add_members(row.id, after - before)
        _drop_members(row.id, before - after)
        is_changed = len(names) > 1 or before != after or row.external_id != fields.external_id
        row.display_name, row.name_key, row.external_id = fields.display_name, fields.display_name.casefold(), fields.external_id
        row.updated_at, row.version = clock.now_ms(), row.version + 1
        row.save()
        _settle(provider, row, names, before | after if len(names) > 1 else before ^ after)
        if is_changed:
            _record(provider, row, names, "group.change", added=len(after - before), removed=len(before - after))
        return _to_records([row])[0]

    return db.write(replace)


def delete_group(provider: IdentityProvider, group_id: str) -> None:
    """Remove a group; its members lose the role that it gave.  NotFound."""

    def delete() -> None:
        row = _get_row(provider, group_id)
        members = _member_ids(row.id)
        ScimGroup.delete().where(ScimGroup.id == row.id).execute()
        _settle(provider, row, {row.display_name}, members)
        _record(provider, row, {row.display_name}, "group.remove", removed=len(members))

    db.write(delete)


def get_group(provider: IdentityProvider, group_id: str, *, with_members: bool = True) -> GroupRecord:
    """One group of this provider; NotFound."""
    return _to_records([_get_row(provider, group_id)], with_members=with_members)[0]


def list_groups(
    provider: IdentityProvider, criteria: tuple[Criterion, ...], part: Slice, *, with_members: bool = True
) -> Listing[GroupRecord]:
    """Groups of this provider that meet all criteria, in the order in which they were added."""
    query = ScimGroup.select().where(ScimGroup.provider == provider.id)
    for criterion in criteria:
        query = query.where(_condition(criterion))
    rows = list(query.order_by(ScimGroup.id).offset(part.offset).limit(part.count)) if part.count else []
    return Listing(query.count(), _to_records(rows, with_members=with_members))


def _condition(criterion: Criterion) -> Any:
    value = str(criterion.value)
    if criterion.field == "display_name":
        return ScimGroup.name_key == value.casefold()
    if criterion.field == "member":
        return ScimGroup.id.in_(ScimMember.select(ScimMember.group_id).where(ScimMember.user_id == value))
    return (ScimGroup.external_id if criterion.field == "external_id" else ScimGroup.id) == value


def _to_records(rows: list[ScimGroup], *, with_members: bool = True) -> list[GroupRecord]:
    members: dict[str, list[str]] = {}
    if with_members:
        rows_of_members = ScimMember.select().where(ScimMember.group_id.in_([row.id for row in rows])).order_by(ScimMember.user_id)
        for each in rows_of_members:
            members.setdefault(each.group_id, []).append(each.user_id)
    return [
        GroupRecord(
            id=row.id, display_name=row.display_name, external_id=row.external_id, members=tuple(members.get(row.id, ())),
            created_at=row.created_at, updated_at=row.updated_at, version=row.version,
        )
        for row in rows
    ]  # fmt: skip


def _get_row(provider: IdentityProvider, group_id: str) -> ScimGroup:
    row: ScimGroup | None = ScimGroup.get_or_none((ScimGroup.id == group_id) & (ScimGroup.provider == provider.id))
    if row is None:
        raise NotFound(Sentence("there is no group %(group_id)s of this provider", group_id=repr(group_id[:80])))
    return row


def _check_fields(fields: GroupFields) -> None:
    check_external_id(fields.external_id)
    name = fields.display_name
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise ValidationFailed(
            Sentence("displayName must have 1 to %(longest)s printable characters", longest=LONGEST_NAME), pointer="/displayName"
        )
    if len(fields.members) > MOST_MEMBERS:
        raise ValidationFailed(Sentence("a group can have at most %(most)s members", most=MOST_MEMBERS), pointer="/members")


def _check_free(provider: IdentityProvider, name: str, group_id: str) -> None:
    same = (ScimGroup.provider == provider.id) & (ScimGroup.name_key == name.casefold()) & (ScimGroup.id != group_id)
    if ScimGroup.select().where(same).exists():
        raise AlreadyExists(Sentence("there is already a group %(name)s", name=repr(name[:80])), pointer="/displayName")


def _known_members(provider: IdentityProvider, members: frozenset[str]) -> set[str]:
    """Those of the members who are people of this provider; ValidationFailed for others, unless their account was deleted here."""
    theirs = ScimUser.select(ScimUser.user_id).where(ScimUser.provider == provider.id)
    storable = {each for each in members if each.isprintable()}  # a database may refuse others
    known = {row[0] for row in _in_chunks(theirs, ScimUser.user_id, storable)}
    deleted = DeletedPerson.select(DeletedPerson.id)
    unknown = members - known - {row[0] for row in _in_chunks(deleted, DeletedPerson.id, storable - known)}
    if unknown:
        raise ValidationFailed(Sentence(
            "there is no user %(user_id)s of this provider; a group can have people as members, not groups",
            user_id=repr(min(unknown)[:80]),
        ), pointer="/members")
    return known


def _in_chunks(query: Any, column: Any, values: Iterable[str]) -> list[tuple[str, ...]]:
    ordered = sorted(values)
    return [row for at in range(0, len(ordered), CHUNK) for row in query.where(column.in_(ordered[at : at + CHUNK])).tuples()]


def _member_ids(group_id: str) -> set[str]:
    return {row[0] for row in ScimMember.select(ScimMember.user_id).where(ScimMember.group_id == group_id).tuples()}


def _add_members(group_id: str, members: set[str]) -> None:
    ordered = sorted(members)
    for at in range(0, len(ordered), CHUNK):
        ScimMember.insert_many([{"group_id": group_id, "user_id": each} for each in ordered[at : at + CHUNK]]).execute()


def _drop_members(group_id: str, members: set[str]) -> None:
    ordered = sorted(members)
    for at in range(0, len(ordered), CHUNK):
        chunk = ScimMember.user_id.in_(ordered[at : at + CHUNK])
        ScimMember.delete().where((ScimMember.group_id == group_id) & chunk).execute()


def _settle(provider: IdentityProvider, row: ScimGroup, names: set[str], members: set[str]) -> None:
    """Inside a write: give these people the roles of their groups in the tenants that the names concern, and in no other."""
    tenants = tenants_of_groups(provider, names)
    for user_id in sorted(members) if tenants else ():
        person = Person.get_by_id(user_id)
        apply_roles(person, provider, find_roles(provider, list_group_names(provider, user_id)), only=tenants)
        end_sessions_without_tenant(person, provider)


def _record(provider: IdentityProvider, row: ScimGroup, names: set[str], action: str, **counts: int) -> None:
    record_for_groups(provider, names, action, row.id, {"name": row.display_name, **counts})
