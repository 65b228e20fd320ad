"""People of a directory without local accounts: linked accounts, the account for emergencies, and second factors."""

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from appliance.tenants import people
from appliance.tenants.models import PersonIdentity
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.sign_in.factor_holder import Holder
from tests.directory_server import PASSWORD, DirectoryServer, running_directory

LOCAL = "a local password here"
GLASS = "glass@corp.test"


@pytest.fixture(scope="module")
def server() -> Iterator[DirectoryServer]:
    with running_directory() as server:
        yield server


@pytest.fixture(scope="module")
def live(
    start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory, server: DirectoryServer
) -> Iterator[Running]:
    running = start_appliance(
        tmp_path_factory.mktemp("linked"), sign_in__directories=[server.describe(link_by="login", urls=[server.starttls_url])],
        sign_in__local_accounts=False, sign_in__break_glass=GLASS, second_factor__required_for=["owner"],
    )  # fmt: skip
    for tenant in ("acme", "globex"):
        running.tenant(tenant)
    running.user(GLASS, LOCAL, "acme", "viewer")
    running.user("ann@corp.test", LOCAL, "acme", "viewer")
    yield running
    running.stop()


def enter(browser: Browser, login: str, password: str) -> int:
    return browser.post(browser.at("", "/sign-in"), {"login": login, "password": password}).status_code


def test_a_trusted_directory_gets_the_accounts_of_its_logins(live: Running, server: DirectoryServer) -> None:
    server.hire("ann", "ops")
    assert enter(Browser(live), "ann@corp.test", LOCAL) == 401
    assert enter(Browser(live), "ann@corp.test", PASSWORD) == 200
    ann = people.find_user("ann@corp.test")
    assert [row.issuer for row in PersonIdentity.select().where(PersonIdentity.user_id == ann.id)] == ["directory:corp"]
    assert {tenant.id: role for tenant, role in people.tenants_of(ann.id)} == {"acme": "viewer"}, "given by hand, so it stays"


def test_the_account_for_emergencies_belongs_to_no_directory(live: Running, server: DirectoryServer) -> None:
    server.hire("glass", "bosses")
    assert enter(Browser(live), "glass", PASSWORD) == 403
    assert enter(Browser(live), GLASS, PASSWORD) == 401
    assert enter(Browser(live), GLASS, LOCAL) == 200


def test_the_form_for_a_password_is_shown(live: Running) -> None:
    browser = Browser(live)
    assert 'name="password"' in browser.get(browser.at("", "/sign-in")).text


def test_a_role_that_needs_a_second_factor_is_led_to_it_and_asked_for_it(live: Running, server: DirectoryServer) -> None:
    server.hire("bea", "bosses")
    holder = Holder(live, "bea@corp.test")
    holder.sign_in()
    assert urlsplit(holder.browser.url).path == "/factors/new"
    holder.add_app(f"?{urlsplit(holder.browser.url).query}")

    again = Holder(live, "bea@corp.test")
    again.secret = holder.secret
    again.sign_in()
    assert urlsplit(again.browser.url).path == "/sign-in/factor"
    assert again.browser.post(again.browser.url, {"code": "000000"}).status_code != 200
    assert again.browser.post(again.browser.url, {"code": again.code(1)}).status_code == 200
    assert urlsplit(again.browser.url).path == "/console/"
