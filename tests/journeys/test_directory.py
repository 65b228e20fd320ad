"""People of a directory, Debian's slapd, sign in with their password in a real browser, and are out when they have left."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from appliance.tenants import people
from appliance.testing.running import Running
from tests.agents.world import wait_until
from tests.directory_server import DELETE, GROUPS, PASSWORD, DirectoryServer, running_directory

pytestmark = pytest.mark.browser
FIVE_MINUTES = 301_000


@pytest.fixture(scope="module")
def server() -> Iterator[DirectoryServer]:
    with running_directory() as server:
        yield server


@pytest.fixture(scope="module")
def live(
    start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory, server: DirectoryServer
) -> Iterator[Running]:
    running = start_appliance(tmp_path_factory.mktemp("data"), sign_in__directories=[server.describe()], console__provision="off")
    for tenant in ("acme", "globex"):
        running.tenant(tenant)
    running.user("owner@acme.test", "a local password here", "acme", "owner")
    yield running
    running.stop()


@pytest.fixture
def page(gos_browser: Browser, live: Running) -> Iterator[Page]:
    context = gos_browser.new_context()
    yield context.new_page()
    context.close()


def sign_in(page: Page, login: str, password: str) -> None:
    page.fill("input[name=login]", login)
    page.fill("input[name=password]", password)
    page.get_by_role("button", name="Sign in", exact=True).click()


def test_a_person_of_the_directory_enters_follows_their_groups_and_leaves(
    live: Running, server: DirectoryServer, page: Page
) -> None:
    console = f"{live.config.tenant_url('acme')}/console/"
    dn = server.hire("ann", "ops", "bosses")
    page.goto(f"{console}executions")
    sign_in(page, "ann", "not her password")
    expect(page.locator("main")).to_contain_text("The login or the password is wrong")
    sign_in(page, "ann", PASSWORD)
    expect(page).to_have_url(f"{console}executions")
    assert [role for _, role in people.tenants_of(people.find_user("ann@corp.test").id)] == ["owner"]

    server.change(f"cn=bosses,{GROUPS}", DELETE, "member", dn)
    page.context.clear_cookies()
    page.goto(f"{console}executions")
    sign_in(page, "ann@corp.test", PASSWORD)
    expect(page).to_have_url(f"{console}executions")
    assert [role for _, role in people.tenants_of(people.find_user("ann@corp.test").id)] == ["operator"]

    server.remove(dn)
    live.move_clock(FIVE_MINUTES)
    wait_until(lambda: people.find_user("ann@corp.test").disabled_at)
    page.goto(f"{console}executions")
    assert "/sign-in" in page.url
    sign_in(page, "ann", PASSWORD)
    expect(page.locator("main")).to_contain_text("The login or the password is wrong")

    server.stop()
    sign_in(page, "ann", PASSWORD)
    expect(page.locator("main")).to_contain_text("Corp cannot check passwords at the moment")
    sign_in(page, "owner@acme.test", "a local password here")
    expect(page).to_have_url(f"{console}executions")
    server.start()
