"""An invitation is accepted once by the holder of its link, while the inviter still has the right to invite."""

import pytest

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, Gone, NotFound, ScopeMissing, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.tenants import invitations, people
from appliance.tenants.invitations import InvitationSpec
from appliance.tenants.scopes import scopes_of_role
from appliance.tenants.sign_in.password_checks import SignInFailed

PASSWORD = "a long enough password"
NEW = InvitationSpec(" New@Example.com ", "operator", approver=True)


@pytest.fixture
def owner(one: TenantScope) -> TenantScope:
    """An owner of tenant one, acting."""
    person = people.create_user("ann@example.com", PASSWORD)
    people.add_member(one, person.login, "owner")
    return TenantScope("one", f"user:{person.id}", scopes_of_role("owner"))


def roles(scope: TenantScope) -> dict[str, tuple[str, ...]]:
    return {member.login: member.roles for member in people.list_members(scope)}


def test_a_new_user_chooses_a_password_and_becomes_a_member(owner: TenantScope, sealer: Sealer) -> None:
    invitation, token = invitations.invite(owner, sealer, NEW)
    assert (invitation.login, invitation.state, invitation.sending) == ("new@example.com", "open", "link")
    offer = invitations.read_offer(sealer, token)
    assert (offer.tenant, offer.login, offer.role, offer.has_account) == ("One", "new@example.com", "operator", False)
    with pytest.raises(ValidationFailed, match="15 to 1000"):
        invitations.accept(sealer, token, "short")
    person, tenant_id = invitations.accept(sealer, token, PASSWORD)
    assert (person.login, tenant_id) == ("new@example.com", "one")
    assert roles(owner)["new@example.com"] == ("operator", "approver")
    assert people.check_password("new@example.com", PASSWORD).id == person.id
    assert invitations.list_invitations(owner) == []
    with pytest.raises(Gone):
        invitations.accept(sealer, token, PASSWORD)
    trail = [row[0] for row in db.rows("SELECT action FROM audit_entry WHERE tenant_id = 'one' ORDER BY seq")]
    assert trail[-3:] == ["invitation.make", "invitation.accept", "member.add"]


def test_no_readable_part_of_a_link_is_stored(owner: TenantScope, sealer: Sealer) -> None:
    _, token = invitations.invite(owner, sealer, NEW)
    rows = [repr(row) for table in ("invitation", "audit_entry") for row in db.rows(f"SELECT * FROM {table}")]  # noqa: S608
    assert rows
    assert not [each for each in rows if token in each]


def test_an_existing_account_keeps_its_password(owner: TenantScope, sealer: Sealer) -> None:
    _, token = invitations.invite(owner, sealer, NEW)
    people.create_user("new@example.com", PASSWORD)
    assert invitations.read_offer(sealer, token).has_account
    with pytest.raises(SignInFailed):
        invitations.accept(sealer, token, "another long password")
    assert "new@example.com" not in roles(owner)
    invitations.accept(sealer, token, PASSWORD)
    assert "new@example.com" in roles(owner)


def test_an_earlier_link_is_void_after_a_role_was_granted(owner: TenantScope, two: TenantScope, sealer: Sealer) -> None:
    _, token = invitations.invite(owner, sealer, NEW)
    invitations.invite(two, sealer, NEW)
    person = people.create_user("new@example.com", PASSWORD)
    people.add_member(owner, "new@example.com", "owner")
    assert (invitations.list_invitations(owner), len(invitations.list_invitations(two))) == ([], 1)
    people.remove_member(owner, person.id)
    with pytest.raises(Gone):
        invitations.accept(sealer, token, PASSWORD)
    assert "new@example.com" not in roles(owner)


def test_an_earlier_link_is_void_after_removal(owner: TenantScope, sealer: Sealer) -> None:
    person = people.create_user("new@example.com", PASSWORD)
    _, token = invitations.invite(owner, sealer, NEW)
    now = clock.now_ms()
    sql = "INSERT INTO membership (tenant_id, user_id, role, approver, created_at) VALUES ('one', ?, 'viewer', ?, ?)"
    db.write(lambda: db.execute(sql, (person.id, False, now)))
    people.remove_member(owner, person.id)
    with pytest.raises(Gone):
        invitations.accept(sealer, token, PASSWORD)


def test_an_email_interrupted_by_a_stop_is_marked_failed(
    owner: TenantScope, sealer: Sealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    invitation, _ = invitations.invite(owner, sealer, NEW, "sending")
    for seconds, sending in ((60, "sending"), (61, "failed")):
        monkeypatch.setattr(clock, "now_ms", lambda at=invitation.created_at + seconds * 1000: at)
        failed = invitations.get_invitation(owner, invitation.id)
        assert (failed.sending, "invite them again" in failed.problem) == (sending, sending == "failed")


@pytest.mark.parametrize("end", ["revoked", "replaced", "too old", "the inviter left", "the inviter may less"])
def test_an_expired_invitation_is_refused(owner: TenantScope, sealer: Sealer, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    invitation, token = invitations.invite(owner, sealer, NEW)
    people.create_user("bob@example.com", PASSWORD)
    people.add_member(owner, "bob@example.com", "owner")
    if end == "revoked":
        invitations.revoke_invitation(owner, invitation.id)
    elif end == "replaced":
        invitations.invite(owner, sealer, NEW)
    elif end == "too old":
        later = clock.now_ms() + 7 * invitations.DAY_MS
        monkeypatch.setattr(clock, "now_ms", lambda: later)
        assert [each.state for each in invitations.list_invitations(owner)] == ["expired"]
    elif end == "the inviter left":
        people.remove_member(owner, owner.actor.removeprefix("user:"))
    else:
        people.add_member(owner, "ann@example.com", "viewer")
    for operation in (invitations.read_offer, lambda sealer, token: invitations.accept(sealer, token, PASSWORD)):
        with pytest.raises(Gone, match="this invitation is no longer valid"):
            operation(sealer, token)
    with pytest.raises(NotFound):
        people.find_user("new@example.com")


def test_an_invitation_cannot_grant_more_than_its_sender_has(owner: TenantScope, sealer: Sealer) -> None:
    builder = TenantScope("one", "user:usr_b", scopes_of_role("builder"))
    with pytest.raises(ScopeMissing, match="you cannot make somebody owner"):
        invitations.invite(builder, sealer, InvitationSpec("new@example.com", "owner"))
    with pytest.raises(AlreadyExists, match="already a member"):
        invitations.invite(owner, sealer, InvitationSpec("ann@example.com", "viewer"))
    with pytest.raises(ValidationFailed, match="1 to 30 days"):
        invitations.invite(owner, sealer, InvitationSpec("new@example.com", "viewer", days=0))


def test_invitations_are_isolated_by_tenant(owner: TenantScope, two: TenantScope, sealer: Sealer) -> None:
    invitation, _ = invitations.invite(owner, sealer, NEW)
    assert invitations.list_invitations(two) == []
    for verb in (invitations.get_invitation, invitations.revoke_invitation):
        with pytest.raises(NotFound):
            verb(two, invitation.id)
    invitations.record_sending(two, invitation.id, "failed")
    assert invitations.get_invitation(owner, invitation.id).sending == "link"


def test_old_invitations_are_purged(owner: TenantScope, sealer: Sealer) -> None:
    invitation, _ = invitations.invite(owner, sealer, NEW)
    assert invitations.purge(invitation.expires_at + invitations.RETENTION_MS - 1) == 0
    assert invitations.purge(invitation.expires_at + invitations.RETENTION_MS) == 1
