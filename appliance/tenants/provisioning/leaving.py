"""What a person loses when their provider deactivates or removes them, and gets back when it activates them again."""

from appliance.core.config.sign_in import IdentityProvider
from appliance.tenants import accounts, people
from appliance.tenants.models import Person, PersonIdentity, ProviderSignIn, ScimMember, ScimUser
from appliance.tenants.single_sign_on.memberships import apply_roles, report_last_owner


def deactivate(provider: IdentityProvider, row: ScimUser) -> None:
    """Inside a write: disable the account, even that of a last owner, whose membership stays and is reported.

    An account that is disabled already stays as it is, so that activating does not enable what the operator disabled.
    """
    person = Person.get_by_id(row.user_id)
    if person.disabled_at is not None:
        return
    for tenant, role in people.tenants_of(person.id):
        if role == "owner" and people.is_last_owner(tenant.id, person.id):
            report_last_owner(provider, person, tenant.id)
    accounts.disable_account(person.login, may_leave_ownerless=True, provider=provider.id)
    row.disabled_at = Person.get_by_id(person.id).disabled_at


def activate(provider: IdentityProvider, row: ScimUser) -> None:
    """Inside a write: enable the account, if the provider disabled it and nobody has since."""
    person = Person.get_by_id(row.user_id)
    if person.disabled_at is not None and person.disabled_at == row.disabled_at:
        accounts.enable_account(person.login, provider=provider.id)
    row.disabled_at = None


def remove(provider: IdentityProvider, row: ScimUser) -> None:
    """Inside a write: delete the account, if it is the provider's alone and no tenant's last owner; else disable and release it.

    What is released keeps what others gave it, and can be linked or deleted by the operator.
    """
    person = Person.get_by_id(row.user_id)
    owns = any(role == "owner" and people.is_last_owner(tenant.id, person.id) for tenant, role in people.tenants_of(person.id))
    if not owns and not _has_other_sign_in(provider, person):
        accounts.delete_account(person.login, provider=provider.id)
        return
    deactivate(provider, row)
    apply_roles(person, provider, {})
    ScimMember.delete().where(ScimMember.user_id == person.id).execute()
    ScimUser.delete().where(ScimUser.user_id == person.id).execute()
    for table in (PersonIdentity, ProviderSignIn):
        table.delete().where((table.user_id == person.id) & (table.issuer == provider.issuer)).execute()


def _has_other_sign_in(provider: IdentityProvider, person: Person) -> bool:
    """Whether the person has a password, or an account at another provider."""
    theirs = PersonIdentity.select().where(PersonIdentity.user_id == person.id, PersonIdentity.issuer != provider.issuer)
    return person.password_hash != "" or bool(theirs.exists())
