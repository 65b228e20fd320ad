"""A company signs in with its own provider, `oidc-provider`, in a real browser: roles by groups, and a logout at the provider."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from appliance.connectors.testing import free_port
from appliance.tenants import people
from appliance.testing.running import Running
from tests.journeys.company.provider import Company, running_company

pytestmark = pytest.mark.browser
PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Company]:
    with running_company(tmp_path_factory.mktemp("company"), f"http://localhost:{port}", "corp") as company:
        yield company


@pytest.fixture(scope="module")
def live(
    start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory, company: Company, port: int
) -> Iterator[Running]:
    provider = {
        "id": "corp", "name": "Corp", "issuer": company.issuer, "client_id": company.client_id, "scopes": ["email", "groups"],
        "client_secret": company.client_secret, "groups_claim": "groups", "roles": [
            {"group": "operations", "tenant": "journey", "role": "operator"},
            {"group": "builders", "tenant": "journey", "role": "builder"},
            {"group": "builders", "tenant": "other", "role": "viewer"},
        ],
    }  # fmt: skip
    running = start_appliance(tmp_path_factory.mktemp("data"), server__port=port, sign_in__providers=[provider])
    for tenant in ("journey", "other"):
        running.tenant(tenant)
    running.user("owner@journey.test", PASSWORD, "journey", "owner")
    yield running
    running.stop()


@pytest.fixture
def page(gos_browser: Browser, live: Running) -> Iterator[Page]:
    context = gos_browser.new_context()
    yield context.new_page()
    context.close()


def roles_of(running: Running, login: str) -> dict[str, str]:
    return {tenant.id: role for tenant, role in people.tenants_of(people.find_user(login).id)}


def pass_provider(page: Page, issuer: str) -> None:
    """Sign in and consent on the provider's own pages, as far as it asks."""
    while page.url.startswith(issuer):
        if page.locator("input[name=login]").count():
            page.fill("input[name=login]", "ann")
            page.fill("input[name=password]", "any")
        with page.expect_navigation():
            page.locator("button[type=submit], input[type=submit]").first.click()


def continue_with_provider(page: Page, issuer: str) -> None:
    page.locator("[data-testid=provider][data-id=corp]").click()
    page.wait_for_url(lambda url: "/sign-in" not in url)
    pass_provider(page, issuer)


def sign_in(page: Page, running: Running, issuer: str) -> None:
    page.goto(f"{running.config.tenant_url('journey')}/console/executions")
    continue_with_provider(page, issuer)


def test_a_company_signs_in_with_its_provider(live: Running, company: Company, page: Page) -> None:
    console = f"{live.config.tenant_url('journey')}/console/"
    company.put("ann", "builders")
    sign_in(page, live, company.issuer)
    expect(page).to_have_url(f"{console}executions")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Executions")
    assert roles_of(live, "ann@company.test") == {"journey": "builder", "other": "viewer"}

    company.put("ann", "operations")
    page.context.clear_cookies(domain="localhost")
    page.context.clear_cookies(domain="journey.localhost")
    sign_in(page, live, company.issuer)
    expect(page).to_have_url(f"{console}executions")
    assert roles_of(live, "ann@company.test") == {"journey": "operator"}

    page.goto(f"{company.issuer}/session/end?client_id={company.client_id}")
    with page.expect_navigation():
        page.locator("button[name=logout]").first.click()
    page.goto(console)
    assert "/sign-in?" in page.url, "the session has ended, because the provider said so"

    company.put("ann")
    continue_with_provider(page, company.issuer)
    expect(page.locator("main")).to_contain_text("Your groups at the provider give you no role here")
    assert roles_of(live, "ann@company.test") == {}
