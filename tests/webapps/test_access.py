"""Access to WebApps: the `access` setting, visits, one-time codes and attempts."""

from typing import Any

import pytest

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import NotFound, ValidationFailed
from appliance.core.events import hub
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.tenants import people
from appliance.tenants import service as tenants
from appliance.webapps.access import visits
from appliance.webapps.access.access import PUBLIC, Access, parse_access
from appliance.webapps.access.sign_ins import SignIns, SignInTarget
from appliance.webapps.access.visitors import Visitor
from appliance.webapps.access.visits import Visits
from appliance.webapps.files.archive import read_settings
from appliance.webapps.service import NewApp, WebApps

OIDC = {"issuer": "https://id.example", "client_id": "shop", "client_secret": {"secret": "CLIENT"}, "allow": ["*@firma.example"]}
EMAIL = {"integration": "post", "allow": ["*@firma.example", "Ann@Elsewhere.example"]}
SEALER = Sealer(b"k" * 32)
HOST = "shop--acme.content.localhost"
ANN = Visitor("user", "ann@firma.example", "ann@firma.example")
BY_EMAIL = parse_access({"email": EMAIL})


class Clock:
    """A time that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ms = clock.now_ms()
        monkeypatch.setattr(clock, "now_ms", lambda: self.ms)
        monkeypatch.setattr(clock, "monotonic", lambda: self.ms / 1000)

    def pass_ms(self, ms: int) -> None:
        self.ms += ms


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def visit_store(webapps: WebApps) -> Visits:
    """The visits of acme, with the app `shop`, and of globex, with an app of the same name."""
    webapps.create_app(TenantScope("globex", "key:globex"), NewApp("shop"))
    return Visits(SEALER)


def test_every_form_of_access_is_parsed() -> None:
    assert parse_access(None) == parse_access("public") == PUBLIC
    assert parse_access({"password": {"secret": "DOOR"}}) == Access("password", secret="DOOR")
    assert parse_access("members") == parse_access({"members": None}) == Access("members")
    assert parse_access({"members": {"roles": ["owner"]}}).roles == ("owner",)
    assert parse_access({"email": EMAIL}).allow == ("*@firma.example", "ann@elsewhere.example")
    access = parse_access({"oidc": {**OIDC, "scopes": ["email", "groups"]}, "paths": {"public": ["/assets/*", "/"]}})
    assert (access.scopes, access.secret, access.public_paths) == ("openid email groups", "CLIENT", ("/assets/*", "/"))
    assert parse_access({"oidc": {**OIDC, "allow": ["*"]}}).allows_everybody


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ("secret", "/access"), (7, "/access"), ({}, "/access"), ({"members": {}, "email": EMAIL}, "/access"),
        ("password", "/access/password/secret"), ({"password": {"secret": "a b"}}, "/access/password/secret"),
        ({"password": {"secret": "DOOR", "hint": "x"}}, "/access/password/hint"), ({"password": "hunter2"}, "/access/password"),
        ({"members": {"roles": ["boss"]}}, "/access/members/roles/0"), ({"members": {"roles": "owner"}}, "/access/members/roles"),
        ({"email": {**EMAIL, "allow": []}}, "/access/email/allow"), ({"email": {**EMAIL, "allow": ["*"]}}, "/access/email/allow/0"),
        ({"email": {**EMAIL, "allow": ["a@b.example", "*.example"]}}, "/access/email/allow/1"),
        ({"email": {"allow": ["a@b.example"]}}, "/access/email/integration"),
        ({"oidc": {**OIDC, "issuer": "http://id.example"}}, "/access/oidc/issuer"),
        ({"oidc": {**OIDC, "issuer": "https://id.example?x=1"}}, "/access/oidc/issuer"),
        ({"oidc": {**OIDC, "client_secret": "hunter2"}}, "/access/oidc/client_secret"),
        ({"oidc": {**OIDC, "allow": ["* "]}, "paths": {"private": []}}, "/access/paths"),
        ({"oidc": {**OIDC, "scopes": ["a b"]}}, "/access/oidc/scopes/0"),
        ({"members": {}, "paths": {"public": ["/a", "b"]}}, "/access/paths/public/1"),
    ],
)  # fmt: skip
def test_invalid_access_is_refused_with_a_pointer(document: Any, pointer: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        parse_access(document)
    assert refused.value.details[0].pointer == pointer


def test_app_yaml_and_the_version_store_access_as_written() -> None:
    settings = read_settings(b"access:\n  members: {roles: [owner, builder]}\n  paths: {public: ['/assets/*']}\n")
    assert parse_access(settings.access).roles == ("owner", "builder")
    assert read_settings(b"spa: true\n").access == "public"
    with pytest.raises(ValidationFailed):
        read_settings(b"access: {password: hunter2}\n")


def test_only_listed_addresses_are_allowed() -> None:
    yes = ["ann@firma.example", "ANN@FIRMA.EXAMPLE", "ann@elsewhere.example"]
    no = ["", "ann@sub.firma.example", "ann@firma.example.evil.example", "bob@elsewhere.example", "@firma.example", "firma.example"]
    assert [BY_EMAIL.allows(email) for email in yes] == [True] * len(yes)
    assert [BY_EMAIL.allows(email) for email in no] == [False] * len(no)


def test_a_public_path_exposes_no_other_file() -> None:
    access = parse_access({"members": {}, "paths": {"public": ["/", "/assets/*", "/help"]}})
    assert [access.is_open(path) for path in ("/", "/assets/a.js", "/help", "/admin")] == [True, True, True, False]
    assert [access.is_public_file(file) for file in ("index.html", "assets/a.js", "help.html")] == [True] * 3
    assert [access.is_public_file(file) for file in ("404.html", "admin/index.html", "data.json")] == [False] * 3


# -- visits


def test_a_visit_is_valid_for_its_app_and_tenant_only(
    visit_store: Visits, webapps: WebApps, acme: TenantScope, globex: TenantScope
) -> None:
    webapps.create_app(acme, NewApp("other"))
    token = visit_store.open_visit(acme, "shop", BY_EMAIL, ANN)
    visit = visit_store.find_visitor(acme, "shop", BY_EMAIL, token)
    assert visit is not None
    assert (visit.kind, visit.email, visit.session[:4]) == ("user", ANN.email, "vis_")
    assert visit_store.find_cached_visitor(acme, "shop", BY_EMAIL, token) == visit
    assert visit_store.find_visitor(acme, "other", BY_EMAIL, token) is None
    assert visit_store.find_visitor(globex, "shop", BY_EMAIL, token) is None
    assert visit_store.find_visitor(acme, "shop", BY_EMAIL, f"{token}x") is None
    stored = db.rows("SELECT digest FROM webapp_visit")
    assert token.encode() not in bytes(stored[0][0])


def test_signing_in_again_ends_the_previous_visit(visit_store: Visits, acme: TenantScope) -> None:
    old = visit_store.open_visit(acme, "shop", BY_EMAIL, ANN)
    new = visit_store.open_visit(acme, "shop", BY_EMAIL, ANN, replaces=old)
    assert visit_store.find_visitor(acme, "shop", BY_EMAIL, old) is None
    assert visit_store.find_visitor(acme, "shop", BY_EMAIL, new) is not None


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
def test_visits_expire_when_idle_and_after_a_week(visit_store: Visits, acme: TenantScope, time: Clock) -> None:
    idle, used = visit_store.open_visit(acme, "shop", BY_EMAIL, ANN), visit_store.open_visit(acme, "shop", BY_EMAIL, ANN)
    hours = 0
    while visit_store.find_visitor(acme, "shop", BY_EMAIL, used) is not None:
        db.write(lambda: None)  # the writer marks a visit as seen beside the answer
        hours += 6
        time.pass_ms(6 * 3_600_000)
        if hours == 12:
            assert visit_store.find_visitor(acme, "shop", BY_EMAIL, idle) is None
    assert hours == 7 * 24
    assert visits.purge(clock.now_ms()) == 2
    assert db.rows("SELECT COUNT(*) FROM webapp_visit") == [(0,)]


def test_a_visit_ends_when_its_password_or_access_changes(visit_store: Visits, acme: TenantScope, time: Clock) -> None:
    tenants.set_secret(acme, SEALER, "DOOR", "open sesame")
    door = parse_access({"password": {"secret": "DOOR"}})
    token = visit_store.open_visit(acme, "shop", door, Visitor("password"))
    assert visit_store.find_visitor(acme, "shop", door, token) is not None
    assert visit_store.find_visitor(acme, "shop", BY_EMAIL, token) is None  # another kind of access
    tenants.set_secret(acme, SEALER, "DOOR", "another word")
    time.pass_ms(1000)
    assert visit_store.find_cached_visitor(acme, "shop", door, token) is None
    assert visit_store.find_visitor(acme, "shop", door, token) is None
    ann = visit_store.open_visit(acme, "shop", BY_EMAIL, ANN)
    without = parse_access({"email": {**EMAIL, "allow": ["*@elsewhere.example"]}})
    assert visit_store.find_cached_visitor(acme, "shop", without, ann) is None
    assert visit_store.find_visitor(acme, "shop", without, ann) is None
    still_allowed = parse_access({"email": {**EMAIL, "allow": ["ann@firma.example"]}})
    assert visit_store.find_visitor(acme, "shop", still_allowed, ann) is not None


def test_a_member_visit_lasts_as_long_as_the_membership(visit_store: Visits, time: Clock) -> None:
    scope = tenants.system_scope("acme")
    person = people.create_user("mia@acme.test", "correct horse battery")
    people.add_member(scope, "mia@acme.test", "builder")
    everybody, owners = parse_access("members"), parse_access({"members": {"roles": ["owner"]}})
    token = visit_store.open_visit(scope, "shop", everybody, Visitor("member", person.id, "mia@acme.test"))
    assert visit_store.find_visitor(scope, "shop", everybody, token) is not None
    assert visit_store.find_visitor(scope, "shop", owners, token) is None
    end = hub.subscribe(people.SignInsEnded, lambda event: visits.forget_person(event.user_id))
    people.set_password("mia@acme.test", "another horse battery")
    end()
    time.pass_ms(1000)
    assert visit_store.find_cached_visitor(scope, "shop", everybody, token) is None
    assert visit_store.find_visitor(scope, "shop", everybody, token) is None
    again = visit_store.open_visit(scope, "shop", everybody, Visitor("member", person.id, "mia@acme.test"))
    people.add_member(scope, "mia@acme.test", "viewer")
    assert visit_store.find_visitor(scope, "shop", everybody, again) is not None
    people.create_user("boss@acme.test", "correct horse battery")
    people.add_member(scope, "boss@acme.test", "owner")
    people.remove_member(scope, person.id)
    time.pass_ms(1000)
    assert visit_store.find_cached_visitor(scope, "shop", everybody, again) is None
    assert visit_store.find_visitor(scope, "shop", everybody, again) is None


def test_operators_list_and_revoke_visits(visit_store: Visits, acme: TenantScope, globex: TenantScope) -> None:
    token = visit_store.open_visit(acme, "shop", BY_EMAIL, ANN)
    visit_store.find_visitor(acme, "shop", BY_EMAIL, token)
    (visit,) = visit_store.list_visits(acme, "shop", PageRequest()).items
    assert (visit.email, visit_store.list_visits(globex, "shop", PageRequest()).items) == (ANN.email, [])
    with pytest.raises(NotFound):
        visit_store.revoke_visit(globex, "shop", visit.id)
    visit_store.revoke_visit(acme, "shop", visit.id)
    assert visit_store.find_cached_visitor(acme, "shop", BY_EMAIL, token) is None
    assert visit_store.find_visitor(acme, "shop", BY_EMAIL, token) is None
    assert visit_store.list_visits(acme, "shop", PageRequest()).items == []


# -- codes


def test_a_member_code_works_once_for_one_target_and_browser(visit_store: Visits, acme: TenantScope, globex: TenantScope) -> None:
    codes, place = SignIns(SEALER), SignInTarget(acme, "shop", HOST)
    code = codes.create_member_code(place, "state", "usr_1")
    assert codes.redeem_member_code(SignInTarget(globex, "shop", HOST), "state", code) is None
    assert codes.redeem_member_code(SignInTarget(acme, "shop", "shop.example"), "state", code) is None
    assert codes.redeem_member_code(place, "another browser", code) is None
    assert codes.redeem_member_code(place, "state", code) == "usr_1"
    assert codes.redeem_member_code(place, "state", code) is None


def test_a_member_code_is_deleted_after_an_hour(visit_store: Visits, acme: TenantScope, time: Clock) -> None:
    SignIns(SEALER).create_member_code(SignInTarget(acme, "shop", HOST), "state", "usr_1")
    assert visits.purge(clock.now_ms()) == 0
    assert visits.purge(clock.now_ms() + visits.SIGN_IN_RETENTION_MS) == 1
