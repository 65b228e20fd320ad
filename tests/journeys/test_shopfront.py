"""A shop whose pages call routes, in Chromium: an order is refused, placed, followed; and no other app can place one."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from appliance.cli import main
from appliance.sites.sign_in.visiting import VISIT_COOKIE
from appliance.solutions import read_folder, write_zip
from appliance.testing.kit import Gos
from appliance.testing.pages import PageMonitor, find_flaws
from appliance.testing.running import Running
from appliance.testing.tenants import QaTenant

pytestmark = pytest.mark.browser
SHOP = Path(__file__).parent / "shopfront"
PATIENCE = 30_000
DOOR_PASSWORD = "the leaves of the third flush"
FORGED_FORM = """<!doctype html><html lang="en"><title>Forging</title><link rel="icon" href="data:,">
<form method="post" action="%s/api/orders"><input name="sku" value="oolong"><input name="name" value="forged">
<input name="quantity" value="1"><button>Win a prize</button></form></html>"""
FORGED_REQUESTS = """async address => {
  document.cookie = "__Host-gos_browser=forged; Path=/; Domain=content.localhost; Secure";
  document.cookie = "sibling=forged; Path=/; Domain=content.localhost";
  const body = JSON.stringify({sku: "oolong", name: "forged", quantity: 1});
  for (const type of ["text/plain", "application/json"]) {
    const options = {method: "POST", mode: "no-cors", credentials: "include", headers: {"Content-Type": type}, body};
    await fetch(`${address}/api/orders`, options).catch(() => {});
    await fetch(`${address}/api/orders`, {...options, mode: "cors"}).catch(() => {});
  }
  const read = await fetch(`${address}/api/products`, {credentials: "include"}).catch(() => null);
  return [document.cookie, read];
}"""


@pytest.fixture(scope="module")
def api(running: Running) -> Iterator[httpx.Client]:
    """The tenant of the shop, with the processes and collections that its routes use."""
    running.tenant("teahouse")
    with running.api("teahouse") as client:
        solution = write_zip(read_folder(SHOP / "solution"))
        client.post("/api/v1/solutions/apply", content=solution, headers={"Content-Type": "application/zip"}).raise_for_status()
        tea = {"sku": "oolong", "name": "Oolong", "price": 3.5, "stock": 5}
        client.post("/api/v1/datapool/shop_products/entities", json=tea).raise_for_status()
        yield client


@pytest.fixture
def shop(running: Running, api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of the shop, deployed as a builder does it."""
    monkeypatch.setenv("GOS_URL", running.config.tenant_url("teahouse"))
    monkeypatch.setenv("GOS_API_KEY", running.key("teahouse"))
    assert main(["deploy", "shop", str(SHOP), "--create", "--publish"]) == 0
    return running.config.webapp_url("teahouse", "shop").removesuffix("/")


@pytest.fixture
def closed_shop(running: Running, api: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Deploy the shop with this `access` setting; returns its address."""
    monkeypatch.setenv("GOS_URL", running.config.tenant_url("teahouse"))
    monkeypatch.setenv("GOS_API_KEY", running.key("teahouse"))
    api.put("/api/v1/secrets/DOOR", json={"value": DOOR_PASSWORD}).raise_for_status()

    def deploy(access: str) -> str:
        folder = shutil.copytree(SHOP, tmp_path / "club")
        with (folder / "app.yaml").open("a") as file:
            file.write(f"access: {access}\n")
        assert main(["deploy", "club", str(folder), "--create", "--publish"]) == 0
        return running.config.webapp_url("teahouse", "club").removesuffix("/")

    return deploy


@pytest.fixture
def context(gos_browser: Browser) -> Iterator[BrowserContext]:
    context = gos_browser.new_context()
    context.set_default_timeout(PATIENCE)
    yield context
    context.close()


def orders(api: httpx.Client) -> list[tuple[str, int]]:
    entities = api.get("/api/v1/datapool/shop_orders/entities").raise_for_status().json()["data"]
    return sorted((each["name"], each["quantity"]) for each in entities)


def test_a_form_runs_a_process_and_shows_its_answer(
    running: Running, api: httpx.Client, shop: str, context: BrowserContext
) -> None:
    watch = PageMonitor(context, f"localhost{running.config.port_suffix}")
    page = context.new_page()
    page.goto(f"{shop}/")
    expect(page.locator("html[data-ready=yes]")).to_be_attached(timeout=PATIENCE)
    page.get_by_label("Your name").fill("Ada")
    page.get_by_label("Packets").fill("9")
    page.get_by_role("button", name="Order").click()
    expect(page.get_by_role("status")).to_have_text("Only 5 packets of Oolong are left.", timeout=PATIENCE)
    page.get_by_label("Packets").fill("2")
    page.get_by_role("button", name="Order").click()
    expect(page.get_by_role("status")).to_have_text("Thank you, Ada: 7 euro", timeout=PATIENCE)
    assert page.context.cookies() == []
    page.get_by_role("button", name="Pack it").click()
    expect(page.locator("#progress li").last).to_have_text("succeeded: ready", timeout=PATIENCE)
    [cookie] = page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["secure"]) == ("__Host-gos_browser", True, True)
    page.get_by_label("Packets").fill("1")
    page.evaluate("document.forms[0].submit()")
    expect(page.get_by_role("heading")).to_have_text("Thank you", timeout=PATIENCE)
    assert orders(api) == [("Ada", 1), ("Ada", 2)]
    assert watch.troubles == []


def enter_by_password(page: Page, _tenant: QaTenant) -> None:
    """The password is mistyped first."""
    page.get_by_label("Password").fill("guessed")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("alert")).to_have_text("That password is not correct; try again.")
    assert find_flaws(page) == []
    page.get_by_label("Password").fill(DOOR_PASSWORD)
    page.get_by_label("Password").press("Enter")


def enter_as_member(page: Page, tenant: QaTenant) -> None:
    """Sign in on the console, which redirects back to the shop."""
    login, password = tenant.login("viewer")
    page.get_by_label("Login").fill(login)
    page.get_by_label("Password").fill(password)
    page.get_by_label("Password").press("Enter")


@pytest.mark.parametrize(
    ("width", "access", "enter"),
    [(390, "{password: {secret: DOOR}}", enter_by_password), (1280, "members", enter_as_member)],
    ids=["password on a phone", "member at a desk"],
)
def test_permitted_visitors_of_a_closed_shop_can_order(
    gos: Gos, api: httpx.Client, closed_shop: Callable[[str], str], gos_page_as: Callable[..., Page], width: int, access: str,
    enter: Callable[[Page, QaTenant], None],
) -> None:  # fmt: skip
    address, tenant = closed_shop(access), gos.tenant("teahouse")
    page = gos_page_as("visitor", tenant, width=width, height=844)
    page.goto(f"{address}/?from=letter")
    enter(page, tenant)
    page.wait_for_url(f"{address}/?from=letter")
    expect(page.locator("html[data-ready=yes]")).to_be_attached()
    assert find_flaws(page) == []
    before = len(orders(api))
    page.get_by_label("Your name").fill("Grace")
    page.get_by_label("Packets").fill("0")
    page.get_by_role("button", name="Order").click()
    expect(page.get_by_role("status")).to_contain_text("The value is less than the minimum of 1.")
    page.evaluate("document.forms[0].submit()")
    expect(page.get_by_text("Quantity: The value is less than the minimum of 1.", exact=True)).to_be_visible()
    assert find_flaws(page) == []
    assert len(orders(api)) == before
    page.get_by_role("link", name="Back to the app").click()
    page.get_by_label("Your name").fill("Grace")
    page.get_by_label("Packets").fill("3")
    page.get_by_label("Packets").press("Enter")
    expect(page.get_by_role("status")).to_have_text("Thank you, Grace: 10.5 euro")
    page.get_by_role("button", name="Pack it").click()
    expect(page.locator("#progress li").last).to_have_text("succeeded: ready")
    assert VISIT_COOKIE in [each["name"] for each in page.context.cookies(address)]
    assert len(orders(api)) == before + 1
    page.goto(f"{address}/_gos/sign-out")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Signed out")).to_be_visible()
    assert VISIT_COOKIE not in [each["name"] for each in page.context.cookies(address)]


def test_another_app_places_no_order(running: Running, api: httpx.Client, shop: str, context: BrowserContext) -> None:
    before = orders(api)
    running.tenant("thief")
    with running.api("thief") as thief:
        thief.post("/api/v1/webapps", json={"id": "prize"}).raise_for_status()
        files = write_zip({"index.html": (FORGED_FORM % shop).encode()})
        path = "/api/v1/webapps/prize/versions"
        thief.post(path, content=files, headers={"Content-Type": "application/zip"}).raise_for_status()
        thief.post(f"{path}/1/publish", json={}).raise_for_status()
    page = context.new_page()
    page.goto(running.config.webapp_url("thief", "prize"))
    cookies, read = page.evaluate(FORGED_REQUESTS, shop)
    assert "sibling=forged" in cookies
    assert "__Host-" not in cookies
    assert read is None
    with page.expect_navigation() as moved:
        page.get_by_role("button").click()
    assert moved.value.status == 403
    expect(page.locator("body")).to_contain_text("This call comes from another site", timeout=PATIENCE)
    assert orders(api) == before
