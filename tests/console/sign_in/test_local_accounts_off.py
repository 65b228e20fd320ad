"""While local accounts are off, people sign in with their provider, and one account with a password, which is never unnoticed."""

import logging
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from appliance.core.errors import ScopeMissing
from appliance.tenants import InvitationSpec, invitations
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.sign_in.company import BREAK_GLASS, PASSWORD, Employee, describe_provider
from tests.console.sign_in.factor_holder import add_passkey, use_passkey
from tests.tenants.second_factors.authenticator import Authenticator
from tests.webapps.identity_provider import IdentityProvider


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    instance = IdentityProvider()
    yield instance
    instance.close()


@pytest.fixture(scope="module")
def live(
    start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider
) -> Iterator[Running]:
    running = start_appliance(
        tmp_path_factory.mktemp("sso"), sign_in__providers=[describe_provider(provider, link_by="email_verified")],
        sign_in__local_accounts=False, sign_in__break_glass=BREAK_GLASS.upper(),
    )  # fmt: skip
    for tenant in ("acme", "globex"):
        running.tenant(tenant)
    running.user("owner@acme.test", PASSWORD, "acme", "owner")
    running.user(BREAK_GLASS, PASSWORD, "acme", "owner")
    yield running
    running.stop()


def test_the_form_for_a_password_is_behind_a_link(live: Running) -> None:
    browser = Browser(live)
    page = browser.get(browser.at("acme", "/console/logs")).text
    assert "Sign in with Corp" in page
    assert 'name="password"' not in page
    assert "Forgot your password?" not in page
    assert f'{browser.url.partition("?")[2].replace("&", "&amp;")}&amp;local=1"' in page
    assert 'name="password"' in browser.get(f"{browser.url}&local=1").text


@pytest.mark.parametrize(("login", "password"), [("owner@acme.test", PASSWORD), ("owner@acme.test", "wrong"), ("nobody", "x")])
def test_nobody_else_signs_in_with_a_password(live: Running, login: str, password: str) -> None:
    page = Browser(live).sign_in(login, password, "acme")
    assert (page.status_code, "Accounts with a password are turned off here" in page.text) == (403, True)


def test_the_account_for_emergencies_signs_in_and_is_noticed(live: Running, caplog: pytest.LogCaptureFixture) -> None:
    browser = Browser(live)
    with caplog.at_level(logging.WARNING):
        assert browser.sign_in(BREAK_GLASS, "wrong", "acme").status_code == 401
        assert "break-glass" not in caplog.text
        assert browser.sign_in(BREAK_GLASS, PASSWORD, "acme").status_code == 200
    assert f"the break-glass account {BREAK_GLASS} has signed in with its password" in caplog.text
    for tenant, times in (("acme", 1), ("globex", 0)):
        with live.api(tenant) as api:
            entries = api.get("/api/v1/logs/audit", params={"action": "session.break_glass"}).json()["data"]
        assert len(entries) == times


def test_a_passkey_signs_in_no_account_of_a_provider(live: Running, provider: IdentityProvider) -> None:
    """The provider alone decides whether somebody may sign in; here they can add a factor for what is sensitive."""
    carol = Employee(live, provider, "carol")
    assert carol.sign_in("bosses").status_code == 200
    device = Authenticator(live.config.base_url, "localhost")
    assert add_passkey(carol.browser, device).status_code == 201
    page = use_passkey(Browser(live), device, "/sign-in/passkey/options", "/sign-in/passkey")
    assert (page.status_code, "signs in with its identity provider" in page.text) == (401, True)
    owner = Employee(live, provider, "owner")
    owner.sign_in(email="owner@acme.test")
    hers = Authenticator(live.config.base_url, "localhost")
    add_passkey(owner.browser, hers)
    page = use_passkey(Browser(live), hers, "/sign-in/passkey/options", "/sign-in/passkey")
    assert (page.status_code, "Accounts with a password are turned off here" in page.text) == (403, True)


def test_a_sign_in_with_a_provider_asks_for_no_factor_but_sensitive_forms_do(live: Running, provider: IdentityProvider) -> None:
    dora = Employee(live, provider, "dora")
    dora.sign_in("bosses")
    device = Authenticator(live.config.base_url, "localhost")
    add_passkey(dora.browser, device)
    again = Employee(live, provider, "dora")
    assert again.sign_in("bosses").status_code == 200
    assert again.can_open("acme")
    form = {"login": "owner@acme.test", "role": "builder", "sure": "yes"}
    again.browser.post(again.browser.at("acme", "/console/people"), form)
    url = urlsplit(again.browser.url)
    assert url.path == "/confirm"
    token = parse_qs(url.query)["request"][0]
    page = use_passkey(again.browser, device, f"/confirm/options?request={token}", "/confirm", request=token)
    assert "data-sends-itself" in page.text


def test_no_provider_gets_the_account_for_emergencies(live: Running, provider: IdentityProvider) -> None:
    page = Employee(live, provider, "glass").sign_in("bosses")
    assert (page.status_code, "with its password only" in page.text) == (403, True)


def test_other_accounts_are_linked(live: Running, provider: IdentityProvider) -> None:
    owner = Employee(live, provider, "owner")
    assert owner.sign_in(email="owner@acme.test").status_code == 200
    assert owner.can_open("acme")


def test_nobody_is_invited_to_an_account_with_a_password(live: Running) -> None:
    with pytest.raises(ScopeMissing):
        live.services.governance.invitations.invite(live.tenant("acme"), InvitationSpec("new@acme.test", "viewer"))
    _, token = invitations.invite(live.tenant("acme"), live.services.sealer, InvitationSpec("new@acme.test", "viewer"))
    browser = Browser(live)
    page = browser.post(browser.at("", "/invitation"), {"token": token, "password": PASSWORD, "again": PASSWORD})
    assert (page.status_code, "Accounts with a password are turned off here" in page.text) == (403, True)
