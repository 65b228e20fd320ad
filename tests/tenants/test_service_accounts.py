"""Nobody gets more by a service account than they may grant: not by its scopes, its keys, or an account whose keys they know."""

import json

import pytest

from appliance.core.database import db
from appliance.core.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    PolicyDenied,
    RevokedApiKey,
    ScopeMissing,
    ValidationFailed,
)
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import AuditFilter, audit
from appliance.tenants import AccountChanges, AccountSpec, accounts, people, service, service_accounts
from appliance.tenants.grants import confirmations, continued_access
from appliance.tenants.grants.confirmations import ConfirmationRequest
from appliance.tenants.keys import KeySpec, adoption, keys, lineage
from tests.redteam.test_key_lineage import SEALER, by, issue, make_person, one, use

__all__ = ["one"]
NARROW = ["entities.read", "keys.read", "keys.write"]
WIDE = [*NARROW, "secrets.write"]


@pytest.fixture
def ann(one: TenantScope) -> TenantScope:
    return make_person(one, "ann@acme.test")


@pytest.fixture
def narrow(ann: TenantScope) -> TenantScope:
    """A key that may manage keys and service accounts, and otherwise only read entities."""
    return by(issue(ann, NARROW)[1])


def create(scope: TenantScope, name: str, scopes: list[str]) -> str:
    return service_accounts.create_account(scope, AccountSpec(name, name.title(), scopes)).id


def issue_of(scope: TenantScope, account: str, scopes: list[str], **more: object) -> tuple[str, str]:
    row, text = service_accounts.issue_key(scope, SEALER, account, KeySpec("its", scopes, "test", **more))  # type: ignore[arg-type]
    return row.id, text


def test_an_account_gets_only_scopes_that_its_creator_has(ann: TenantScope, narrow: TenantScope) -> None:
    with pytest.raises(ScopeMissing, match=r"you do not have secrets\.write"):
        create(narrow, "wide", WIDE)
    account = create(narrow, "narrow", NARROW)
    with pytest.raises(ScopeMissing):
        service_accounts.change_account(narrow, account, AccountChanges(scopes=WIDE))
    assert service_accounts.get_account(ann, account).scopes == tuple(sorted(NARROW))


def test_a_description_that_a_database_server_refuses_is_refused_everywhere(ann: TenantScope) -> None:
    """An appliance on SQLite that had one could not be moved to PostgreSQL."""
    account = create(ann, "robot", NARROW)
    with pytest.raises(ValidationFailed, match="contains a NUL character"):
        service_accounts.create_account(ann, AccountSpec("other", "Other", NARROW, description="a\0b"))
    with pytest.raises(ValidationFailed, match="contains a NUL character") as refused:
        service_accounts.change_account(ann, account, AccountChanges(description="a\0b"))
    assert refused.value.details[0].pointer == "/description"


def test_a_tenant_has_a_bounded_number_of_accounts(ann: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    assert service_accounts.MAX_ACCOUNTS == 200
    monkeypatch.setattr(service_accounts, "MAX_ACCOUNTS", 2)
    for name in ("first", "second"):
        create(ann, name, NARROW)
    with pytest.raises(Conflict, match="at most 2 service accounts; delete one that is no longer used"):
        create(ann, "third", NARROW)
    service_accounts.delete_account(ann, "first")
    assert create(ann, "third", NARROW) == "third", "deleted accounts do not count"
    assert [each.id for each in service_accounts.list_accounts(ann, PageRequest()).items] == ["second", "third"]


def test_scopes_are_checked_as_they_are_inside_the_write(ann: TenantScope, one: TenantScope) -> None:
    """A page that was opened as an owner gives nothing away any more once its visitor is a viewer."""
    account = create(ann, "early", WIDE)
    make_person(one, "bob@acme.test")
    people.add_member(one, "ann@acme.test", "viewer")
    for attempt in (lambda: create(ann, "late", ["secrets.write"]), lambda: issue_of(ann, account, ["secrets.write"])):
        with pytest.raises(ScopeMissing):
            attempt()


def test_a_key_of_an_account_gets_only_scopes_that_both_have(ann: TenantScope, narrow: TenantScope) -> None:
    account = create(ann, "wide", WIDE)
    with pytest.raises(ScopeMissing, match=r"secrets\.write"):
        issue_of(narrow, account, ["secrets.write"])
    with pytest.raises(ValidationFailed, match=r"the service account does not have webapps\.read"):
        issue_of(ann, account, ["webapps.read"])
    assert by(issue_of(narrow, account, ["entities.read"])[1]).scopes == {"entities.read"}


def test_raising_an_account_gives_its_known_keys_nothing_new(ann: TenantScope, narrow: TenantScope) -> None:
    account = create(ann, "known", NARROW)
    _, text = issue_of(narrow, account, NARROW)
    service_accounts.change_account(ann, account, AccountChanges(scopes=WIDE))
    assert by(text).scopes == set(NARROW), "the key keeps the scopes it was issued with"
    with pytest.raises(ScopeMissing):
        issue_of(narrow, account, ["secrets.write"])
    _, wide = issue_of(ann, account, ["secrets.write"])
    service_accounts.change_account(ann, account, AccountChanges(scopes=NARROW))
    assert by(wide).scopes == frozenset()
    with pytest.raises(ScopeMissing):
        service_accounts.change_account(narrow, account, AccountChanges(scopes=WIDE))


def test_enabling_needs_what_it_gives_back(ann: TenantScope, narrow: TenantScope) -> None:
    account = create(ann, "paused", WIDE)
    _, text = issue_of(ann, account, ["secrets.write"])
    assert use(text).scope.scopes == {"secrets.write"}
    service_accounts.change_account(narrow, account, AccountChanges(is_disabled=True))
    with pytest.raises(RevokedApiKey, match="service account is disabled"):
        use(text)  # at once, although the key was just authenticated
    with pytest.raises(ScopeMissing):
        service_accounts.change_account(narrow, account, AccountChanges(is_disabled=False))
    with pytest.raises(Conflict, match="is disabled"):
        issue_of(ann, account, ["secrets.write"])
    service_accounts.change_account(ann, account, AccountChanges(is_disabled=False))
    assert by(text).scopes == {"secrets.write"}


def test_rotation_leaves_the_key_to_its_account_and_needs_its_scopes(ann: TenantScope, narrow: TenantScope) -> None:
    account = create(ann, "rotated", WIDE)
    key_id, text = issue_of(ann, account, WIDE)
    with pytest.raises(ScopeMissing):
        keys.rotate_key(narrow, SEALER, key_id, 0)
    by_ann, later = keys.rotate_key(ann, SEALER, key_id, 60)
    by_itself, latest = keys.rotate_key(by(later), SEALER, by_ann.id, 60)
    assert [by_ann.issuer, by_itself.issuer] == ["service:rotated"] * 2
    with pytest.raises(Conflict, match="needs no adoption"):
        adoption.adopt_key(ann, by_itself.id)
    accounts.delete_account("ann@acme.test", may_leave_ownerless=True)
    assert [by(each).scopes for each in (text, later, latest)] == [frozenset(WIDE)] * 3


def test_a_key_of_a_person_moves_to_an_account_that_may_do_as_much(ann: TenantScope, narrow: TenantScope, one: TenantScope) -> None:
    wide, small = create(ann, "wide", WIDE), create(ann, "small", ["entities.read"])
    key_id, text = issue(ann, WIDE)
    with pytest.raises(ValidationFailed, match=r"does not have keys\.read, keys\.write, secrets\.write"):
        service_accounts.adopt_key(ann, small, key_id)
    with pytest.raises(ScopeMissing):
        service_accounts.adopt_key(narrow, wide, key_id)
    with pytest.raises(PolicyDenied, match="cannot change itself"):
        service_accounts.adopt_key(by(issue_of(ann, wide, WIDE)[1]), wide, key_id)
    service_accounts.adopt_key(ann, wide, key_id)
    make_person(one, "bob@acme.test")
    accounts.delete_account("ann@acme.test")
    assert by(text).scopes == set(WIDE)
    (entry,) = audit.list_entries(one, audit.AuditFilter(action="key.adopt"), PageRequest()).items
    assert json.loads(entry.fields) == {"name": "issued", "from": ann.actor, "to": "service:wide"}
    service_accounts.change_account(one, wide, AccountChanges(is_disabled=True))
    with pytest.raises(Conflict, match="is disabled"):
        service_accounts.adopt_key(one, wide, key_id)


def test_a_key_whose_issuer_has_left_moves_to_an_account(ann: TenantScope, one: TenantScope) -> None:
    bob = make_person(one, "bob@acme.test")
    account = create(bob, "late", WIDE)
    key_id, text = issue(ann, NARROW, daily_requests=9)
    accounts.delete_account("ann@acme.test")
    with pytest.raises(RevokedApiKey):
        by(text)
    service_accounts.adopt_key(by(issue(bob, NARROW, daily_requests=5)[1]), account, key_id)
    assert by(text).scopes == set(NARROW)
    assert keys.get_key(one, key_id).daily_requests == 5


def test_a_key_that_was_moved_waits_for_no_owner_any_more(ann: TenantScope, one: TenantScope) -> None:
    """Confirmed later, it would be taken out of the account."""
    account = create(ann, "home", WIDE)
    key_id, _ = issue(make_person(one, "bob@acme.test"), NARROW)
    request = ConfirmationRequest("key", key_id, "d1", {})
    db.write(lambda: confirmations.request_confirmation(one, request))
    service_accounts.adopt_key(ann, account, key_id)
    assert confirmations.list_open(one) == []


def test_a_service_account_cannot_change_itself(ann: TenantScope) -> None:
    account = create(ann, "selfish", WIDE)
    _, text = issue_of(ann, account, WIDE)
    _, below = issue(by(text), NARROW)
    for key in (by(text), by(below)):
        for attempt in (
            lambda key: service_accounts.change_account(key, account, AccountChanges(description="mine")),
            lambda key: service_accounts.delete_account(key, account),
            lambda key: issue_of(key, account, NARROW),
        ):
            with pytest.raises(PolicyDenied, match="cannot change itself"):
                attempt(key)
    with pytest.raises(ValidationFailed, match="name the responsible person"):
        create(by(text), "orphan", NARROW)


def test_a_key_of_an_account_takes_over_none_beside_itself(ann: TenantScope) -> None:
    """Rotating one would show it a text that works when it is revoked itself; moved away, one would outlive the account."""
    account, other = create(ann, "selfish", WIDE), create(ann, "other", WIDE)
    _, text = issue_of(ann, account, WIDE)
    beside, _ = issue_of(ann, account, NARROW)
    below_id, below = issue(by(text), NARROW)
    for key in (by(text), by(below)):
        with pytest.raises(PolicyDenied, match="beside"):
            keys.rotate_key(key, SEALER, beside, 0)
        with pytest.raises(PolicyDenied, match="beside"):
            service_accounts.adopt_key(key, other, beside)
    assert keys.get_key(ann, beside).issuer == "service:selfish"
    keys.rotate_key(by(below), SEALER, below_id, 60)
    assert keys.rotate_key(by(text), SEALER, below_id, 60)[0].issuer.startswith("key:")
    assert service_accounts.adopt_key(ann, other, beside).issuer == "service:other", "a person may"


def test_a_large_entry_still_has_the_key_that_acted(ann: TenantScope) -> None:
    audit.set_account_lookup(lineage.find_account_of)
    _, text = issue_of(ann, create(ann, "robot", WIDE), WIDE)
    key = by(text)
    for details in ({"text": "x" * 40_000}, {"text": "x" * 16_370}, {}):
        db.write(lambda details=details: audit.record(key, "robot.act", "thing", details))  # type: ignore[misc]
    entries = audit.list_entries(key, AuditFilter(action="robot.act"), PageRequest()).items
    assert [json.loads(each.fields)["api_key"] for each in entries] == [key.actor.removeprefix("key:")] * 3
    assert all(len(each.fields.encode()) <= audit.FIELDS_BYTES for each in entries)


def test_what_an_acting_key_issues_keeps_its_limits(ann: TenantScope) -> None:
    """Rate, addresses, expiry, kind and limits of the acting key apply, as to any key that it issues."""
    account = create(ann, "bounded", WIDE)
    acting = by(issue(ann, NARROW, expires_in_days=7, rate_requests=5, rate_window_s=60, allowed_ips=["127.0.0.0/8"])[1])
    key_id, _ = issue_of(acting, account, ["entities.read"], is_default_rate=True)
    row = keys.get_key(ann, key_id)
    assert (row.rate_requests, row.allowed_ips) == (5, ["127.0.0.0/8"])
    assert row.expires_at <= lineage.expiry_of(keys.get_key(ann, acting.actor.removeprefix("key:")))
    with pytest.raises(ValidationFailed, match="exceed the limit"):
        issue_of(acting, account, ["entities.read"], rate_requests=6)
    counted = by(issue(ann, NARROW, daily_requests=20)[1])
    assert keys.get_key(ann, issue_of(counted, account, ["entities.read"])[0]).daily_requests == 20
    few_id, _ = issue_of(counted, account, ["entities.read"], daily_requests=3)
    assert [keys.rotate_key(scope, SEALER, few_id, 60)[0].daily_requests for scope in (counted, ann)] == [3, 3]
    assert keys.rotate_key(counted, SEALER, key_id, 60)[0].daily_requests == 20
    agent = by(issue(ann, NARROW, kind="agent")[1])
    assert keys.get_key(ann, issue_of(agent, account, ["entities.read"])[0]).kind == "agent"


def test_deletion_ends_every_key_and_keeps_the_name(ann: TenantScope, one: TenantScope) -> None:
    account = create(ann, "gone", WIDE)
    key_id, text = issue_of(ann, account, WIDE)
    _, below = issue(by(text), ["entities.read"])
    service_accounts.delete_account(ann, account)
    assert keys.get_key(ann, key_id).revoked_at is not None
    for key in (text, below):
        with pytest.raises(RevokedApiKey):
            by(key)
    for read in (service_accounts.get_account, service_accounts.delete_account):
        with pytest.raises(NotFound):
            read(ann, account)
    with pytest.raises(AlreadyExists, match="the audit trail names it"):
        create(ann, account, NARROW)
    assert service_accounts.find_title(one, account) == "Gone"
    assert service_accounts.list_accounts(one, PageRequest()).items == []


def test_another_tenant_reaches_no_account(ann: TenantScope, one: TenantScope) -> None:
    account = create(ann, "theirs", WIDE)
    other = service.system_scope("globex")
    for attempt in (
        lambda: service_accounts.get_account(other, account),
        lambda: service_accounts.change_account(other, account, AccountChanges(title="Mine")),
        lambda: service_accounts.delete_account(other, account),
        lambda: issue_of(other, account, NARROW),
    ):
        with pytest.raises(NotFound):
            attempt()


def test_nobody_is_responsible_while_the_person_is_disabled_and_after_they_left(ann: TenantScope, one: TenantScope) -> None:
    account = create(ann, "kept", NARROW)
    _, text = issue_of(ann, account, ["entities.read"])
    bob = make_person(one, "bob@acme.test")
    assert service_accounts.list_without_responsible(one) == []
    accounts.disable_account("ann@acme.test")
    assert [each.id for each in service_accounts.list_without_responsible(one)] == [account]
    accounts.enable_account("ann@acme.test")
    assert service_accounts.get_account(one, account).responsible == "ann@acme.test"
    people.remove_member(bob, ann.actor.removeprefix("user:"))
    assert [each.id for each in service_accounts.list_without_responsible(one)] == [account]
    assert use(text).scope.scopes == {"entities.read"}
    with pytest.raises(ValidationFailed, match="is not an enabled member"):
        service_accounts.change_account(bob, account, AccountChanges(responsible="ann@acme.test"))
    service_accounts.change_account(bob, account, AccountChanges(responsible="Bob@acme.test "))
    assert service_accounts.list_without_responsible(one) == []


def test_who_created_or_is_responsible_for_an_account_is_behind_its_keys(ann: TenantScope, one: TenantScope) -> None:
    """So they approve nothing that its keys ask for."""
    bob, eve = make_person(one, "bob@acme.test"), make_person(one, "eve@acme.test")
    account = create(by(issue(ann)[1]), "asking", ["entities.read"])
    service_accounts.change_account(ann, account, AccountChanges(responsible="bob@acme.test"))
    key_id, _ = issue_of(eve, account, ["entities.read"])
    behind = lineage.people_behind(one, f"key:{key_id}")
    assert behind == {scope.actor.removeprefix("user:") for scope in (ann, bob, eve)}
    assert lineage.root_of(TenantScope("acme", f"key:{key_id}")) == "service:asking"


def test_what_a_key_started_stops_with_its_account(ann: TenantScope) -> None:
    account = create(ann, "started", NARROW)
    key_id, _ = issue_of(ann, account, ["entities.read"])
    continued_access.check_still_allowed(ann, f"key:{key_id}", {"entities.read"})
    service_accounts.change_account(ann, account, AccountChanges(scopes=["keys.read"]))
    with pytest.raises(PolicyDenied, match=r"no longer has the scope entities\.read"):
        continued_access.check_still_allowed(ann, f"key:{key_id}", {"entities.read"})
    service_accounts.change_account(ann, account, AccountChanges(is_disabled=True))
    with pytest.raises(PolicyDenied, match="ended with its issuer"):
        continued_access.check_still_allowed(ann, f"key:{key_id}", {"entities.read"})


def test_the_trail_names_the_account_of_a_key_at_any_depth(ann: TenantScope) -> None:
    audit.set_account_lookup(lineage.find_account_of)  # as the appliance does when it is built
    account = create(ann, "actor", WIDE)
    key_id, text = issue_of(ann, account, WIDE)
    child_id, child = issue(by(text), NARROW)
    db.write(lambda: audit.record(by(child), "test.done", "it", {"seen": 1}))
    entries = audit.list_entries(ann, audit.AuditFilter(actor="service:actor"), PageRequest()).items
    fields = [(each.action, json.loads(each.fields)) for each in entries]
    assert fields[0] == ("test.done", {"seen": 1, "api_key": child_id})
    assert fields[1][0] == "key.issue"
    assert fields[1][1]["api_key"] == key_id
    assert audit.verify(ann).intact


def test_a_list_of_keys_shows_what_single_reads_show(ann: TenantScope, one: TenantScope) -> None:
    account = create(ann, "listed", NARROW)
    rows = [keys.get_key(ann, issue_of(ann, account, ["entities.read"])[0])]
    rows.append(keys.get_key(ann, issue(by(issue_of(ann, account, NARROW)[1]), ["entities.read"])[0]))
    for is_disabled in (False, True):
        service_accounts.change_account(ann, account, AccountChanges(is_disabled=is_disabled))
        issuers = lineage.load_issuers(one)
        for row in rows:
            assert lineage.build_authority(row, issuers) == lineage.build_authority(row)
