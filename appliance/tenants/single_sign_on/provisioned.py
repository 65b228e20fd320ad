"""Whom a provider has provisioned (SCIM), for signing in with it."""

from appliance.tenants.models import Person, ScimGroup, ScimMember, ScimUser

from .sources import Source


def is_provisioned(provider: Source, user_id: str) -> bool:
    """Whether the provider has added this person, and says that they are active."""
    theirs = (ScimUser.user_id == user_id) & (ScimUser.provider == provider.id)
    return bool(ScimUser.select().where(theirs & ScimUser.active).exists())


def find_provisioned(provider: Source, login: str) -> Person | None:
    """The account with this login, if the provider has added it and says that it is active."""
    person: Person | None = Person.get_or_none(Person.login == login)
    return person if person is not None and is_provisioned(provider, person.id) else None


def list_group_names(provider: Source, user_id: str) -> frozenset[str]:
    """The names of the provider's groups that have this person as a member."""
    of_member = ScimGroup.select(ScimGroup.display_name).join(ScimMember, on=(ScimMember.group_id == ScimGroup.id))
    rows = of_member.where((ScimMember.user_id == user_id) & (ScimGroup.provider == provider.id)).tuples()
    return frozenset(row[0] for row in rows)
