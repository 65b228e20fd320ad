"""Admits somebody whom a source has identified: their account, the roles of their groups, and a session."""

from dataclasses import dataclass

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.tenants import people
from appliance.tenants.models import Person, ProviderSignIn, Session
from appliance.tenants.sign_in import Client, sessions

from .accounts import ReservedLogins, SignInRefused, SourceIdentity, find_account, is_administrator, store_account
from .memberships import apply_roles, end_sessions_without_tenant, find_roles
from .provisioned import list_group_names
from .sources import Source

NO_ROLE = "your groups at the provider give you no role here; ask an administrator which group you need"


def admit(source: Source, identified: SourceIdentity, groups: frozenset[str], reserved: ReservedLogins) -> Person | None:
    """Inside a write: the person, with memberships that follow the groups; SignInRefused, AccountDisabled.

    None if the groups have just taken the last membership: an error would bring the memberships back.
    """
    account = find_account(source, identified, reserved)
    person = account.person
    roles = find_roles(source, list_group_names(source, person.id) if source.scim else groups)
    if not (roles or source.allow_unknown or people.tenants_of(person.id)):
        raise SignInRefused(NO_ROLE)
    store_account(source, account, identified.subject)
    if not (source.scim and is_administrator(reserved, person.login)):
        apply_roles(person, source, roles)
    return None if end_sessions_without_tenant(person, source) else person


@dataclass(frozen=True)
class Admission:
    """Opens sessions for people whom a source has signed in; its word replaces the password."""

    reserved: ReservedLogins
    sealer: Sealer
    lifetime_ms: int

    def open_session(
        self, source: Source, identified: SourceIdentity, groups: frozenset[str], client: Client
    ) -> tuple[Person, str]:
        """Admit the person and open a session on the base host; returns its token.  SignInRefused, AccountDisabled."""

        def sign_in() -> tuple[Person, str] | None:
            person = admit(source, identified, groups, self.reserved)
            if person is None:
                return None
            root = sessions.new_root()
            token = sessions.begin_sign_in(self.sealer, person.id, root=root, lifetime_ms=self.lifetime_ms, client=client)
            _bind(root, person, source, identified)
            return person, token

        opened = db.write(sign_in)
        if opened is None:
            raise SignInRefused(NO_ROLE)
        return opened


def _bind(root: str, person: Person, source: Source, identified: SourceIdentity) -> None:
    """Inside a write: note which sign-in at the source the sessions of `root` belong to."""
    ended = ProviderSignIn.root.not_in(Session.select(Session.root).where(Session.user_id == person.id))
    ProviderSignIn.delete().where((ProviderSignIn.user_id == person.id) & ended).execute()
    ProviderSignIn.create(
        root=root, user_id=person.id, issuer=source.issuer, subject=identified.subject, sid=identified.sid,
        strong=identified.is_strong, created_at=clock.now_ms(),
    )  # fmt: skip
