"""Accounts are disabled, enabled and deleted, with everything that depends on them."""

from collections.abc import Iterator

import pytest

from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import Conflict, Gone, NotFound, PolicyDenied, RevokedApiKey
from appliance.core.events import hub
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants import InvitationSpec, accounts, invitations, people
from appliance.tenants.accounts import FormerName
from appliance.tenants.grants import continued_access
from appliance.tenants.keys import keys, lineage
from appliance.tenants.keys.keys import KeySpec
from appliance.tenants.people import AccountDisabled
from appliance.tenants.scopes import ALL_SCOPES
from appliance.tenants.sign_in import sessions
from appliance.tenants.sign_in.password_checks import SignInFailed

ANN, BOB, PASSWORD = "ann@example.com", "bob@example.com", "a long enough password"
HOUR = 3_600_000


@pytest.fixture
def ann(one: TenantScope) -> str:
    """The id of a user who owns tenant one together with bob."""
    for login in (BOB, ANN):
        user_id = people.create_user(login, PASSWORD).id
        people.add_member(one, login, "owner")
    return str(user_id)


def actor(user_id: str) -> TenantScope:
    return TenantScope("one", f"user:{user_id}", ALL_SCOPES)


def issue(scope: TenantScope, sealer: Sealer) -> tuple[str, str]:
    """The id and the text of a new key."""
    row, text = keys.issue_key(scope, sealer, KeySpec("ci", ["keys.write", "keys.read"]))
    return str(row.id), text


def use(sealer: Sealer, text: str) -> keys.Caller:
    return keys.authenticate_key(sealer, text, tenant_id="one", address="127.0.0.1", request_id="")


def find(sealer: Sealer, token: str, tenant: str | None) -> people.SignedIn | None:
    return sessions.find_session(sealer, token, tenant, lifetime_ms=HOUR, use=sessions.SessionUse())


def actions(scope: TenantScope) -> list[tuple[str, str, str]]:
    entries = audit.list_entries(scope, audit.AuditFilter(), PageRequest(100)).items
    return [(each.action, each.subject, each.actor) for each in entries]


def test_a_disabled_account_has_no_sign_in_session_or_code(ann: str, sealer: Sealer) -> None:
    checked = people.check_password(ANN, PASSWORD)
    tokens = {tenant: sessions.create_session(sealer, ann, tenant, lifetime_ms=HOUR, root="r") for tenant in (None, "one")}
    code = sessions.create_code(sealer, ann, "one", "enter", root="r")
    accounts.disable_account(" Ann@Example.com ")
    assert [find(sealer, token, tenant) for tenant, token in tokens.items()] == [None, None]
    assert sessions.enter(sealer, code, "one", lifetime_ms=HOUR) is None
    with pytest.raises(AccountDisabled, match="is disabled; ask the operator"):
        people.check_password(ANN, PASSWORD)
    with pytest.raises(SignInFailed, match="the login or the password is wrong"):
        people.check_password(ANN, "not the password")
    with pytest.raises(AccountDisabled):  # whose password was checked just before
        sessions.sign_in(sealer, checked, lifetime_ms=HOUR)
    with pytest.raises(AccountDisabled):
        sessions.create_session(sealer, ann, None, lifetime_ms=HOUR)
    accounts.enable_account(ANN)
    assert find(sealer, tokens["one"], "one") is None
    assert people.check_password(ANN, PASSWORD).id == ann


def test_a_session_that_came_beside_the_disabling_grants_nothing_then_or_later(ann: str, sealer: Sealer) -> None:
    token = sessions.create_session(sealer, ann, "one", lifetime_ms=HOUR)
    ((row),) = db.rows("SELECT digest, user_id, tenant_id, kind, created_at, expires_at, root FROM session")
    accounts.disable_account(ANN)
    columns = "digest, user_id, tenant_id, kind, created_at, expires_at, root"
    db.write(lambda: db.execute(f"INSERT INTO session ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", tuple(row)))  # noqa: S608
    assert find(sealer, token, "one") is None
    accounts.enable_account(ANN)
    assert find(sealer, token, "one") is None


def test_keys_of_a_disabled_account_pause_with_their_descendants(one: TenantScope, ann: str, sealer: Sealer) -> None:
    parent, text = issue(actor(ann), sealer)
    _, child = issue(TenantScope("one", f"key:{parent}", ALL_SCOPES), sealer)
    for each in (text, child):
        assert use(sealer, each).scope.scopes == {"keys.write", "keys.read"}
    accounts.disable_account(ANN)
    for each in (text, child):
        with pytest.raises(RevokedApiKey, match="account of the person who issued it is disabled; it works again"):
            use(sealer, each)
    preloaded = lineage.build_authority(keys.get_key(one, parent), lineage.load_issuers(one))
    assert (preloaded.ended, preloaded.scopes) == (lineage.ISSUER_DISABLED, frozenset())
    accounts.enable_account(ANN)
    for each in (text, child):
        assert use(sealer, each).scope.scopes == {"keys.write", "keys.read"}


def test_a_disabled_member_does_nothing_and_is_still_listed(one: TenantScope, ann: str, sealer: Sealer) -> None:
    stale = actor(ann)
    accounts.disable_account(ANN)
    assert [(each.login, each.is_disabled) for each in people.list_members(one, with_disabled=True)] == [(ANN, True), (BOB, False)]
    assert [each.login for each in people.list_members(one)] == [BOB]
    assert (people.find_member(one, ann), lineage.find_role("one", ann)) == (None, None)
    assert lineage.reload_scope(stale).scopes == frozenset()
    assert not continued_access.is_still_allowed(stale, "entities.read")
    with pytest.raises(PolicyDenied, match="the account of the person who started this is disabled"):
        continued_access.check_still_allowed(one, stale.actor, {"entities.read"})
    accounts.enable_account(ANN)
    assert lineage.reload_scope(stale).scopes == ALL_SCOPES
    assert continued_access.is_still_allowed(stale, "entities.read")


def test_invitations_by_and_for_a_disabled_account_wait(one: TenantScope, two: TenantScope, ann: str, sealer: Sealer) -> None:
    _, by_ann = invitations.invite(actor(ann), sealer, InvitationSpec("new@example.com", "viewer"))
    _, for_ann = invitations.invite(two, sealer, InvitationSpec(ANN, "viewer"))
    accounts.disable_account(ANN)
    with pytest.raises(Gone):
        invitations.read_offer(sealer, by_ann)
    with pytest.raises(AccountDisabled):
        invitations.accept(sealer, for_ann, PASSWORD)
    accounts.enable_account(ANN)
    assert invitations.read_offer(sealer, by_ann).login == "new@example.com"
    assert invitations.accept(sealer, for_ann, PASSWORD)[1] == "two"


@pytest.fixture
def ended() -> Iterator[list[str]]:
    """The users whose sign-ins to WebApps were ended."""
    ids: list[str] = []
    end = hub.subscribe(people.SignInsEnded, lambda event: ids.append(event.user_id))
    yield ids
    end()


@pytest.mark.writes_once(reason="counts events")
def test_each_change_is_audited_in_every_tenant_once(one: TenantScope, two: TenantScope, ann: str, ended: list[str]) -> None:
    people.add_member(two, ANN, "viewer")
    before = len(actions(one))
    for _ in range(2):
        accounts.disable_account(ANN)
    assert ended == [ann]
    for _ in range(2):
        accounts.enable_account(ANN)
    accounts.delete_account(ANN)
    for scope in (one, two):
        assert actions(scope)[:3] == [(f"user.{what}", ann, "system") for what in ("delete", "enable", "disable")]
    assert len(actions(one)) == before + 3


@pytest.mark.parametrize("change", [accounts.disable_account, accounts.delete_account])
def test_the_last_owner_goes_only_if_that_is_allowed(one: TenantScope, two: TenantScope, ann: str, change: object) -> None:
    assert callable(change)
    people.add_member(two, ANN, "owner")
    accounts.disable_account(BOB)  # an owner, but one who cannot do anything
    with pytest.raises(Conflict, match=r"ann@example.com is the only owner of one, two; .*--leave-tenants-without-owner"):
        change(ANN)
    assert people.find_member(one, ann) is not None
    change(ANN, may_leave_ownerless=True)
    assert people.find_member(one, ann) is None


def test_the_last_enabled_owner_cannot_leave_a_tenant(one: TenantScope, ann: str) -> None:
    accounts.disable_account(BOB)
    for leave in (lambda: people.remove_member(one, ann), lambda: people.add_member(one, ANN, "viewer")):
        with pytest.raises(Conflict, match="at least one owner whose account is enabled"):
            leave()
    people.remove_member(one, people.find_user(BOB).id)
    with pytest.raises(Conflict):
        people.remove_member(one, ann)
    accounts.disable_account(ANN, may_leave_ownerless=True)
    with pytest.raises(Conflict):
        people.remove_member(one, ann)


def test_an_unknown_login_is_not_found(ann: str) -> None:
    for change in (accounts.disable_account, accounts.enable_account, accounts.delete_account):
        with pytest.raises(NotFound, match="there is no user 'nobody'"):
            change("nobody")


def test_a_deleted_account_leaves_its_name_and_nothing_else(one: TenantScope, two: TenantScope, ann: str, sealer: Sealer) -> None:
    key_id, text = issue(actor(ann), sealer)
    _, link = invitations.invite(two, sealer, InvitationSpec(ANN, "viewer"))
    token = sessions.create_session(sealer, ann, "one", lifetime_ms=HOUR)
    accounts.delete_account(ANN)
    with pytest.raises(RevokedApiKey, match="no longer a member"):
        use(sealer, text)
    assert keys.get_key(one, key_id).orphaned_at is not None
    with pytest.raises(Gone):
        invitations.read_offer(sealer, link)
    with pytest.raises(SignInFailed):
        people.check_password(ANN, PASSWORD)
    assert find(sealer, token, "one") is None
    tables = ("person", "membership", "session")
    assert [db.rows(f"SELECT count(*) FROM {table}")[0][0] for table in tables] == [1, 1, 0]  # noqa: S608
    assert accounts.find_former_name(ann) == FormerName(ANN, is_deleted=True)


def test_a_login_can_be_used_again_by_another_account(one: TenantScope, ann: str, sealer: Sealer) -> None:
    _, text = issue(actor(ann), sealer)
    accounts.delete_account(ANN)
    successor = people.create_user(ANN, PASSWORD).id
    people.add_member(one, ANN, "owner")
    assert successor != ann
    with pytest.raises(RevokedApiKey):
        use(sealer, text)
    accounts.delete_account(ANN)
    assert [accounts.find_former_name(each) for each in (ann, successor)] == [FormerName(ANN, is_deleted=True)] * 2


def test_a_former_member_has_a_name(one: TenantScope, ann: str) -> None:
    people.remove_member(one, ann)
    assert accounts.find_former_name(ann) == FormerName(ANN, is_deleted=False)
    assert accounts.find_former_name("usr_nobody") is None


def test_accounts_are_listed_with_state_and_tenants(one: TenantScope, two: TenantScope, ann: str) -> None:
    people.add_member(two, ANN, "viewer")
    accounts.disable_account(ANN)
    listed = [(each.login, each.state, each.roles) for each in accounts.list_accounts()]
    assert listed == [(ANN, "disabled", (("one", "owner"), ("two", "viewer"))), (BOB, "active", (("one", "owner"),))]
