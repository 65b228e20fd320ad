"""Users, their passwords, roles and sessions."""

import json
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from argon2 import Type, extract_parameters

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, Conflict, NotFound, ScopeMissing, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import AuditFilter, audit
from appliance.tenants import accounts, appliance_scope, people
from appliance.tenants.keys import keys
from appliance.tenants.keys.keys import KeySpec
from appliance.tenants.scopes import ALL_SCOPES, ROLES, SCOPES, scopes_of_role
from appliance.tenants.sign_in import sessions, temporary_passwords
from appliance.tenants.sign_in.password_checks import SignInFailed
from tests.hashing import ORIGINAL_HASHER

LOGIN, PASSWORD = "ann@example.com", "a long enough password"
HOUR = 3_600_000


@pytest.fixture
def ann(one: TenantScope) -> str:
    """The id of a user who owns tenant one."""
    person = people.create_user(LOGIN, PASSWORD)
    people.add_member(one, LOGIN, "owner")
    return str(person.id)


def test_a_password_is_verified_and_stored_only_as_a_hash(ann: str) -> None:
    assert people.check_password(" Ann@Example.com ", PASSWORD).id == ann
    password_hash = db.rows("SELECT password_hash FROM person")[0][0]
    assert password_hash.startswith("$argon2id$")
    assert PASSWORD not in password_hash
    for login, password in ((LOGIN, PASSWORD + "x"), ("bob@example.com", PASSWORD)):
        with pytest.raises(SignInFailed, match="the login or the password is wrong"):
            people.check_password(login, password)


@pytest.fixture
def proper_hashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hashed as outside of tests."""
    monkeypatch.setattr(people, "_hasher", ORIGINAL_HASHER)
    people._dummy_hash.cache_clear()
    yield
    people._dummy_hash.cache_clear()


def test_a_password_is_hashed_with_the_recommended_parameters(proper_hashes: None, ann: str) -> None:
    """OWASP asks for 19 MiB with two passes, or more."""
    ((password_hash,),) = db.rows("SELECT password_hash FROM person")
    parameters = extract_parameters(password_hash)
    assert (parameters.type, parameters.memory_cost >= 19_456, parameters.time_cost >= 2) == (Type.ID, True, True)


def test_an_unknown_or_disabled_login_takes_as_long_as_a_wrong_password(proper_hashes: None, ann: str) -> None:
    people.create_user("bob@example.com", PASSWORD)
    accounts.disable_account("bob@example.com")
    times = []
    for login in (LOGIN, "nobody@example.com", "bob@example.com", "nobody@example.com", "bob@example.com", LOGIN):
        started_at = time.thread_time()  # a hash is computed in the thread that asks; how busy the machine is does not count
        with pytest.raises(SignInFailed):
            people.check_password(login, "wrong password")
        times.append(time.thread_time() - started_at)
    assert min(times) > max(times) / 5


def test_wrong_passwords_do_not_lock_the_account(ann: str) -> None:
    for _ in range(12):
        with pytest.raises(SignInFailed):
            people.check_password(LOGIN, "wrong password")
    assert people.check_password(LOGIN, PASSWORD).id == ann


@pytest.mark.parametrize("login", ["", "   ", "a b", "a\nb", "x" * 255, "a\x00b"])
def test_an_invalid_login_is_refused(database: None, login: str) -> None:
    with pytest.raises(ValidationFailed):
        people.create_user(login, PASSWORD)


@pytest.mark.parametrize("password", ["", "short", "x" * 11, "x" * 1001])
def test_a_password_has_a_minimum_and_maximum_length(database: None, password: str) -> None:
    with pytest.raises(ValidationFailed):
        people.create_user(LOGIN, password)


def test_a_login_is_taken_once(ann: str) -> None:
    with pytest.raises(AlreadyExists):
        people.create_user("ANN@example.com", PASSWORD)


def test_a_role_is_granted_changed_and_revoked(one: TenantScope, two: TenantScope, ann: str) -> None:
    people.create_user("bob@example.com", PASSWORD)
    for role in ROLES:
        assert people.add_member(one, "bob@example.com", role).role == role
    assert [(m.login, m.role) for m in people.list_members(one)] == [("ann@example.com", "owner"), ("bob@example.com", "owner")]
    assert people.list_members(two) == []
    assert [tenant.id for tenant, _ in people.tenants_of(ann)] == ["one"]
    with pytest.raises(NotFound):
        people.remove_member(two, ann)
    people.remove_member(one, ann)
    assert people.tenants_of(ann) == []
    with pytest.raises(Conflict):
        people.remove_member(one, people.find_user("bob@example.com").id)


def test_a_higher_role_cannot_be_granted(one: TenantScope, ann: str) -> None:
    builder = TenantScope("one", "user:usr_2", scopes_of_role("builder"))
    with pytest.raises(ScopeMissing):
        people.add_member(builder, LOGIN, "owner")
    with pytest.raises(ValidationFailed):
        people.add_member(one, LOGIN, "emperor")


def test_a_role_lost_during_the_request_grants_and_revokes_nothing(one: TenantScope, ann: str, sealer: Sealer) -> None:
    people.create_user("bob@example.com", PASSWORD)
    bob = people.add_member(one, "bob@example.com", "owner").user_id
    key, _text = keys.issue_key(one, sealer, KeySpec("ci", sorted(ALL_SCOPES)))
    stale = [TenantScope("one", f"user:{bob}", ALL_SCOPES), TenantScope("one", f"key:{key.id}", ALL_SCOPES)]
    people.add_member(one, "bob@example.com", "viewer")
    keys.revoke_key(one, key.id)
    for scope in stale:
        with pytest.raises(ScopeMissing):
            people.add_member(scope, "bob@example.com", "owner")
        with pytest.raises(ScopeMissing):
            people.remove_member(scope, ann)
    people.remove_member(one, bob)
    with pytest.raises(ScopeMissing):
        people.add_member(stale[0], "bob@example.com", "viewer")


def test_each_role_includes_the_scopes_of_the_lower_one() -> None:
    grants = [scopes_of_role(role) for role in ROLES]
    assert all(smaller < larger for smaller, larger in pairwise(grants))
    assert grants[-1] == frozenset(SCOPES)


def find(sealer: Sealer, token: str, tenant: str | None) -> people.SignedIn | None:
    return sessions.find_session(sealer, token, tenant, lifetime_ms=HOUR, use=sessions.SessionUse("req_1"))


def test_a_session_is_valid_on_its_own_host_only(one: TenantScope, two: TenantScope, ann: str, sealer: Sealer) -> None:
    token = sessions.create_session(sealer, ann, "one", lifetime_ms=HOUR)
    session = find(sealer, token, "one")
    assert session is not None
    assert session.scope == TenantScope("one", f"user:{ann}", scopes_of_role("owner"), "req_1")
    for tenant in ("two", None):
        assert find(sealer, token, tenant) is None
    assert find(sealer, token + "x", "one") is None
    assert find(Sealer(b"other" * 8), token, "one") is None
    assert token.encode() not in db.rows("SELECT digest FROM session")[0][0]


def test_a_session_ends_with_time_sign_out_role_and_password(one: TenantScope, ann: str, sealer: Sealer) -> None:
    people.create_user("bob@example.com", PASSWORD)
    people.add_member(one, "bob@example.com", "owner")

    def open_one() -> str:
        return sessions.create_session(sealer, ann, "one", lifetime_ms=HOUR)

    token = open_one()
    sessions.close_sign_in(sealer, token)
    sessions.close_sign_in(sealer, token)
    assert find(sealer, token, "one") is None
    token = open_one()
    db.write(lambda: db.execute("UPDATE session SET expires_at = 1"))
    assert find(sealer, token, "one") is None
    token = open_one()
    people.remove_member(one, ann)
    assert find(sealer, token, "one") is None
    people.add_member(one, LOGIN, "viewer")
    token = open_one()
    people.set_password(LOGIN, "another long password")
    assert find(sealer, token, "one") is None
    assert people.check_password(LOGIN, "another long password").id == ann


def test_an_own_password_replaces_only_the_temporary_one_that_was_checked(ann: str) -> None:
    """Not one that was set, nor that of an account that was disabled, while the person chose theirs."""
    people.set_password(LOGIN, "one for the first sign-in", expires_at=clock.now_ms() + HOUR)
    checked = people.check_password(LOGIN, "one for the first sign-in")
    people.set_password(LOGIN, "set by an operator since")
    with pytest.raises(SignInFailed, match="has just been changed"):
        temporary_passwords.replace_temporary_password(checked, "seven green bottles hum")
    people.set_password(LOGIN, "one for the first sign-in", expires_at=clock.now_ms() + HOUR)
    checked = people.check_password(LOGIN, "one for the first sign-in")
    accounts.disable_account(LOGIN, may_leave_ownerless=True)
    with pytest.raises(people.AccountDisabled):
        temporary_passwords.replace_temporary_password(checked, "seven green bottles hum")


def test_a_password_that_an_operator_sets_is_in_the_trails(ann: str, one: TenantScope) -> None:
    """Whoever knows it can act as the person."""
    people.set_password(LOGIN, "another long password")
    people.set_password(LOGIN, "one for the first sign-in", expires_at=clock.now_ms() + HOUR)
    for scope in (one, appliance_scope()):
        entries = audit.list_entries(scope, AuditFilter(action="password.set"), PageRequest()).items
        assert [(each.actor, each.subject, json.loads(each.fields)) for each in reversed(entries)] == [
            ("system", ann, {"login": LOGIN, "temporary": is_temporary}) for is_temporary in (False, True)
        ]


def test_use_extends_a_session(ann: str, sealer: Sealer) -> None:
    token = sessions.create_session(sealer, ann, "one", lifetime_ms=HOUR // 2)
    before = db.rows("SELECT expires_at FROM session")[0][0]
    assert find(sealer, token, "one") is not None
    db.write(lambda: None)
    assert db.rows("SELECT expires_at FROM session")[0][0] > before + HOUR // 3


def test_a_code_is_valid_once_for_its_tenant_and_is_not_a_session(ann: str, two: TenantScope, sealer: Sealer) -> None:
    sessions.create_session(sealer, ann, None, lifetime_ms=HOUR, root="r")
    code = sessions.create_code(sealer, ann, "one", "enter", root="r")
    assert find(sealer, code, "one") is None
    assert sessions.redeem_code(sealer, code, "two", "enter") is None
    login = sessions.redeem_code(sealer, code, "one", "enter")
    assert login is not None
    assert login.user_id == ann
    assert sessions.redeem_code(sealer, code, "one", "enter") is None
    session = sessions.create_session(sealer, ann, "one", lifetime_ms=HOUR)
    assert sessions.redeem_code(sealer, session, "one", "enter") is None
    sign_out_code = sessions.create_code(sealer, ann, "one", "sign-out", root="")
    assert sessions.redeem_code(sealer, sign_out_code, "one", "enter") is None
    assert sessions.redeem_code(sealer, sign_out_code, "one", "sign-out") is not None
    expired = sessions.create_code(sealer, ann, "one", "enter", root="r")
    clock.move(sessions.CODE_MS + 1)
    try:
        assert sessions.redeem_code(sealer, expired, "one", "enter") is None
    finally:
        clock.move(-sessions.CODE_MS - 1)
