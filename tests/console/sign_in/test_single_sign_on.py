"""Sign-in with an identity provider: accounts, roles by groups, and where it leads."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from appliance.connectors.testing import Answer, Received
from appliance.core.errors import ApplianceError
from appliance.core.scope import TenantScope
from appliance.tenants import ALL_SCOPES, accounts, people
from appliance.tenants.keys import keys
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.sign_in.company import PASSWORD, Employee, describe_provider, send_logout
from tests.webapps.identity_provider import IdentityProvider

NO_ROLE = "Your groups at the provider give you no role here"


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    instance = IdentityProvider()
    def tell_user(_request: Received) -> Answer:
        return Answer(200, {"Content-Type": "application/json"}, json.dumps({"sub": instance.claims["sub"], **EXTRA}).encode())

    instance.server.answers["/userinfo"] = tell_user
    instance.about = {"userinfo_endpoint": f"{instance.issuer}/userinfo"}
    yield instance
    instance.close()


EXTRA: dict[str, Any] = {}


@pytest.fixture(scope="module")
def partner() -> Iterator[IdentityProvider]:
    instance = IdentityProvider()
    yield instance
    instance.close()


@pytest.fixture(scope="module")
def live(
    start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider,
    partner: IdentityProvider,
) -> Iterator[Running]:  # fmt: skip
    providers = [
        describe_provider(provider),
        describe_provider(partner, id="partner", name="", link_by="email_verified", allow_unknown=True, groups_claim="", roles=[]),
    ]
    running = start_appliance(
        tmp_path_factory.mktemp("sso"), sign_in__providers=providers, egress__allow=["127.0.0.0/8"], console__provision="off",
        console__administrators=["chief@corp.test"],
    )  # fmt: skip
    for tenant in ("acme", "globex", "lonely"):
        running.tenant(tenant)
    running.user("owner@acme.test", PASSWORD, "acme", "owner")
    yield running
    running.stop()


@pytest.fixture
def hire(live: Running, provider: IdentityProvider) -> Callable[[str], Employee]:
    EXTRA.clear()
    return lambda name: Employee(live, provider, name)


def members_of(running: Running, tenant: str) -> dict[str, tuple[str, bool]]:
    return {each.login: (each.role, each.approver) for each in people.list_members(running.tenant(tenant))}


def entries_in(running: Running, tenant: str) -> list[tuple[str, Any]]:
    """Action and fields of the audit entries, oldest first."""
    with running.api(tenant) as api:
        entries = api.get("/api/v1/logs/audit", params={"limit": 500}).json()["data"]
    return [(each["action"], json.loads(each["fields"])) for each in reversed(entries) if each["actor"] == "system"]


def entries_about(running: Running, tenant: str, login: str) -> list[tuple[str, Any]]:
    """Action and role of the entries about this person, which all name the provider."""
    entries = [(action, fields) for action, fields in entries_in(running, tenant) if fields.get("login") == login]
    assert {fields["provider"] for _, fields in entries} <= {"corp"}
    return [(action, fields.get("role")) for action, fields in entries]


# -- roles


def test_a_first_sign_in_makes_an_account_with_the_roles_of_its_groups(live: Running, hire: Callable[[str], Employee]) -> None:
    ann = hire("ann")
    page = ann.sign_in("ops", "dev", "unheard-of", query="?tenant=acme&state=x&to=%2Fconsole%2F")
    assert page.status_code == 200, page.text
    assert ann.can_open("acme")
    assert ann.can_open("globex")
    assert members_of(live, "acme")["ann@corp.test"] == ("builder", False)
    assert members_of(live, "globex")["ann@corp.test"] == ("viewer", False)
    assert entries_about(live, "acme", "ann@corp.test") == [("member.add", "builder")]
    assert people.find_user("ann@corp.test").password_hash == ""


def test_roles_follow_the_groups_at_each_sign_in(live: Running, hire: Callable[[str], Employee]) -> None:
    bob = hire("bob")
    for groups, role in ((["ops"], ("operator", False)), (["bosses"], ("owner", True)), (["dev"], ("builder", False))):
        bob.sign_in(*groups)
        assert members_of(live, "acme")["bob@corp.test"] == role
    assert bob.can_open("globex")
    bob.sign_in("ops")
    assert "bob@corp.test" not in members_of(live, "globex")
    assert not bob.can_open("globex")
    assert entries_about(live, "globex", "bob@corp.test") == [("member.add", "viewer"), ("member.remove", None)]


def test_memberships_given_by_hand_stay(live: Running, hire: Callable[[str], Employee]) -> None:
    eve = hire("eve")
    eve.sign_in("ops")
    people.add_member(live.tenant("acme"), "eve@corp.test", "viewer")
    for groups in (["ops"], []):
        assert eve.sign_in(*groups).status_code == 200
        assert members_of(live, "acme")["eve@corp.test"] == ("viewer", False)


def test_the_last_owner_of_a_tenant_remains(live: Running, hire: Callable[[str], Employee]) -> None:
    cem = hire("cem")
    cem.sign_in("founders")
    for groups in (["ops"], []):
        assert cem.sign_in(*groups).status_code == 200
        assert members_of(live, "lonely")["cem@corp.test"] == ("owner", False)
    actions = [("member.add", "owner"), ("member.keep_owner", None), ("member.keep_owner", None)]
    assert entries_about(live, "lonely", "cem@corp.test") == actions
    people.add_member(live.tenant("lonely"), "owner@acme.test", "owner")
    assert NO_ROLE in cem.sign_in().text
    assert "cem@corp.test" not in members_of(live, "lonely")


def test_keys_and_sessions_end_with_the_membership(live: Running, hire: Callable[[str], Employee]) -> None:
    gus = hire("gus")
    gus.sign_in("bosses")
    scope = TenantScope("acme", f"user:{people.find_user('gus@corp.test').id}", ALL_SCOPES)
    _, key = keys.issue_key(scope, live.services.sealer, keys.KeySpec("mine", ["logs.read"], "test"))
    with live.client("acme.localhost", {"X-API-Key": key}) as client:
        assert client.get("/api/v1/logs/audit").status_code == 200
    other = hire("gus")
    assert NO_ROLE in other.sign_in().text
    assert not gus.can_open("acme")
    gus.browser.get(gus.browser.at("", "/"))
    assert urlsplit(gus.browser.url).path == "/sign-in", "not even on the base host"
    with live.client("acme.localhost", {"X-API-Key": key}) as client:
        assert client.get("/api/v1/logs/audit").json()["error"]["code"] == "revoked_api_key"


# -- who is refused


@pytest.mark.parametrize(
    ("groups", "claims", "words"),
    [
        ([], {}, NO_ROLE), (["unheard-of"], {}, NO_ROLE), (["OPS"], {}, NO_ROLE),
        (["ops"], {"email_verified": False}, "no verified e-mail address"), (["ops"], {"email_verified": "true"}, "no verified"),
        (["ops"], {"email": None}, "no verified e-mail address"), (["ops"], {"email": "owner@acme.test"}, "already an account"),
        (["ops"], {"email": "chief@corp.test"}, "is an administrator of this appliance"),
        (["ops"], {"groups": "other"}, NO_ROLE), (["ops"], {"groups": {"ops": True}}, "did not work"),
        (["ops"], {"groups": ["ops", 7]}, "did not work"),
        (["ops"], {"groups": None, "_claim_names": {"groups": "src1"}}, "did not work"),
    ],
)  # fmt: skip
def test_who_has_no_role_or_name_gets_no_account(
    hire: Callable[[str], Employee], groups: list[str], claims: dict[str, Any], words: str
) -> None:
    stranger = hire("stranger")
    page = stranger.sign_in(*groups, **claims)
    assert (page.status_code in {403, 502}, words in page.text) == (True, True), page.text
    assert not stranger.can_open("acme")
    with pytest.raises(ApplianceError, match="no user"):
        people.find_user("stranger@corp.test")


def test_people_who_are_refused_do_not_delay_their_colleagues(live: Running, hire: Callable[[str], Employee]) -> None:
    for _ in range(25):
        assert NO_ROLE in hire("stranger").sign_in().text
    assert hire("kim").sign_in("ops").status_code == 200


def test_attempts_with_invalid_codes_are_delayed(live: Running, hire: Callable[[str], Employee]) -> None:
    kim = hire("kim")
    kim.become("ops")
    answers = []
    for _ in range(25):
        back = kim.provider.sign_in(kim.start())
        answers.append(kim.come_back(back.replace("code-1", "code-2")).status_code)
    assert (answers[0], answers[-1]) == (502, 429)
    live.services.single_sign_on._attempts.succeed(("console", "callback"), "127.0.0.1")  # for the tests after this one


def test_a_single_group_can_be_a_text(live: Running, hire: Callable[[str], Employee]) -> None:
    assert hire("ida").sign_in(groups="ops").status_code == 200
    assert members_of(live, "acme")["ida@corp.test"] == ("operator", False)


def test_claims_that_the_token_lacks_are_read_from_userinfo(live: Running, hire: Callable[[str], Employee]) -> None:
    leo = hire("leo")
    EXTRA.update({"sub": "u-leo", "email": "leo@corp.test", "email_verified": True, "groups": ["ops"]})
    leo.sign_in(email=None, email_verified=None, groups=None)
    assert members_of(live, "acme")["leo@corp.test"] == ("operator", False)
    EXTRA.update({"sub": "u-ann", "groups": ["bosses"]})
    page = leo.sign_in(email=None, email_verified=None, groups=None)
    assert (page.status_code, members_of(live, "acme")["leo@corp.test"][0]) == (502, "operator")


# -- linking


def test_an_account_is_linked_by_its_verified_address_where_allowed(live: Running, partner: IdentityProvider) -> None:
    live.user("old@corp.test", PASSWORD, "acme", "viewer")
    old = Employee(live, partner, "old", "partner")
    assert old.sign_in(email_verified=False).status_code == 403
    assert old.sign_in(email="Old@Corp.test").status_code == 200
    assert old.can_open("acme")
    assert members_of(live, "acme")["old@corp.test"] == ("viewer", False)
    details = {"login": "old@corp.test", "provider": "partner", "issuer": partner.issuer}
    assert ("identity.link", details) in entries_in(live, "acme")
    assert old.sign_in(email="new@corp.test").status_code == 200, "the identity is the subject, whatever its address is"
    assert old.can_open("acme")


def test_people_without_a_role_may_sign_in_where_allowed(live: Running, partner: IdentityProvider) -> None:
    zoe = Employee(live, partner, "zoe", "partner")
    page = zoe.sign_in()
    assert (page.status_code, urlsplit(zoe.browser.url).path) == (200, "/")
    assert people.tenants_of(people.find_user("zoe@corp.test").id) == []


# -- where it leads


def test_the_sign_in_page_has_a_button_per_provider_that_keeps_the_way(live: Running) -> None:
    browser = Browser(live)
    page = browser.get(browser.at("acme", "/console/logs")).text
    assert "Sign in with Corp" in page
    assert "Sign in with partner" in page
    assert "/oidc/corp/start?tenant=acme&amp;state=" in page
    assert 'name="password"' in page


def test_a_sign_in_leads_to_the_requested_page(hire: Callable[[str], Employee]) -> None:
    kim = hire("kim")
    kim.browser.get(kim.browser.at("acme", "/console/executions?state=failed"))
    page = kim.sign_in("ops", query=f"?{urlsplit(kim.browser.url).query}")
    assert (page.status_code, kim.browser.url) == (200, kim.browser.at("acme", "/console/executions?state=failed"))


def test_a_sign_in_leads_to_a_webapp(hire: Callable[[str], Employee]) -> None:
    kim = hire("kim")
    kim.sign_in("ops", query="?host=shop--acme.content.localhost&state=abc")
    assert urlsplit(kim.browser.url).path == "/visit/signed-in"
    assert parse_qs(urlsplit(kim.browser.url).query) == {"host": ["shop--acme.content.localhost"], "state": ["abc"]}


def test_signing_in_again_ends_the_earlier_sign_in_of_the_browser(hire: Callable[[str], Employee]) -> None:
    kim = hire("kim")
    kim.sign_in("ops")
    assert kim.can_open("acme")
    host = urlsplit(kim.browser.at("acme", "")).netloc
    old = dict(kim.browser.cookies[host])
    kim.sign_in("ops")
    kim.browser.cookies[host] = old
    state = kim.browser.send("GET", kim.browser.at("acme", "/console/"), None, {"Sec-Fetch-Site": "none"})
    assert state.status_code == 303


def test_an_account_of_a_provider_has_no_password(live: Running, hire: Callable[[str], Employee]) -> None:
    pat = hire("pat")
    pat.sign_in("ops")
    page = pat.browser.get(pat.browser.at("acme", "/console/account")).text
    assert ("This account has no password here" in page, 'name="password"' in page) == (True, False)
    browser = Browser(live)
    for password in ("", "x", PASSWORD):
        assert browser.sign_in("pat@corp.test", password, "acme").status_code == 401


# -- logout


def test_a_logout_ends_the_sign_in_of_its_sid_only(
    live: Running, hire: Callable[[str], Employee], provider: IdentityProvider
) -> None:
    one, two = hire("max"), hire("max")
    one.sign_in("ops", sid="session-1")
    two.sign_in("ops", sid="session-2")
    assert one.can_open("acme")
    assert two.can_open("acme")
    answer = send_logout(live, provider.logout_token(sid="session-1"))
    assert (answer.status_code, answer.content, answer.headers["Cache-Control"]) == (200, b"", "no-store")
    assert (one.can_open("acme"), two.can_open("acme")) == (False, True)
    assert ("session.provider_logout", {"provider": "corp"}) in entries_in(live, "acme")


def test_a_logout_without_sid_ends_every_session_of_the_person(
    live: Running, hire: Callable[[str], Employee], provider: IdentityProvider
) -> None:
    other = hire("kim")
    other.sign_in("ops")
    one, two = hire("nil"), hire("nil")
    one.sign_in("ops", sid="session-1")
    two.sign_in("ops")
    assert send_logout(live, provider.logout_token()).status_code == 200
    assert [each.can_open("acme") for each in (one, two, other)] == [False, False, True]
    assert send_logout(live, provider.logout_token(sub="nobody")).status_code == 200, "nobody is signed in, as required"
    assert send_logout(live, provider.logout_token(exp=None)).status_code == 200, "older providers leave it out"


def test_the_account_page_lists_the_sign_in_with_its_address(live: Running, hire: Callable[[str], Employee]) -> None:
    iva = hire("iva")
    iva.sign_in("ops")
    page = iva.browser.get(iva.browser.at("acme", "/console/account")).text
    assert (page.count("this browser<"), page.count("from 127.0.0.1")) == (1, 2), "of the sign-in, and of its last use"


# -- disabled and deleted accounts


def test_a_disabled_account_does_not_sign_in_with_its_provider(live: Running, hire: Callable[[str], Employee]) -> None:
    ned = hire("ned")
    ned.sign_in("ops")
    accounts.disable_account("ned@corp.test")
    for groups in (["bosses"], []):
        page = ned.sign_in(*groups)
        assert (page.status_code, "This account is disabled" in page.text) == (403, True)
    assert not ned.can_open("acme")
    assert people.tenants_of(people.find_user("ned@corp.test").id)[0][1] == "operator", "its memberships stay as they were"
    accounts.enable_account("ned@corp.test")
    assert ned.sign_in("dev").status_code == 200
    assert ned.can_open("acme")


def test_a_deleted_account_is_made_anew_without_what_was_given_by_hand(live: Running, hire: Callable[[str], Employee]) -> None:
    una = hire("una")
    una.sign_in("ops")
    people.add_member(live.tenant("globex"), "una@corp.test", "owner")
    accounts.delete_account("una@corp.test", may_leave_ownerless=True)
    assert una.sign_in("ops").status_code == 200
    assert una.can_open("acme")
    assert not una.can_open("globex")
