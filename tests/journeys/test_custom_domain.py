"""A WebApp on its own domain, over HTTPS, in Chromium: it takes orders, is replaced and rolled back, and stays isolated."""

import base64
import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect

from appliance.cli import main
from appliance.testing.pages import launch
from appliance.testing.running import Running
from appliance.webapps.certificates import ca_certificate
from tests.sites.live_server import await_that

pytestmark = pytest.mark.browser
PARTS = Path(__file__).parent / "custom_domain"
SHOP, BLOG = "shop.orders-example.net", "www.letters-example.org"
Deploy = Callable[..., int]


@pytest.fixture(scope="module")
def live(start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = start_appliance(tmp_path_factory.mktemp("domains"), server__tls="internal")
    for tenant in ("journey", "other"):
        running.tenant(tenant)
    running.user("owner@journey.test", "correct horse battery", "journey")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def trusting_browser(gos_playwright: Playwright, live: Running) -> Iterator[Browser]:
    """A browser that trusts the appliance's CA and resolves both domains to this machine."""
    certificate = x509.load_pem_x509_certificate(ca_certificate(live.config).read_bytes())
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    pin = base64.b64encode(hashlib.sha256(key).digest()).decode()
    browser = launch(
        gos_playwright,
        f"--ignore-certificate-errors-spki-list={pin}", f"--host-resolver-rules=MAP {SHOP} 127.0.0.1, MAP {BLOG} 127.0.0.1",
    )  # fmt: skip
    yield browser
    browser.close()


@pytest.fixture
def context(trusting_browser: Browser) -> Iterator[BrowserContext]:
    context = trusting_browser.new_context()
    yield context
    context.close()


@pytest.fixture
def deploy(live: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deploy:
    """Run `gos deploy --publish` for an edition of the shop as an app of a tenant; returns the exit code."""

    def run(tenant: str, app: str, mark: str, smoke: str = "") -> int:
        monkeypatch.setenv("GOS_API_KEY", live.key(tenant))
        built = build(tmp_path / app / mark, mark)
        with (built / "app.yaml").open("a") as file:
            file.write(smoke)
        return main(["deploy", app, str(built), "--create", "--publish", *connection_options(live)])

    return run


def connection_options(live: Running) -> list[str]:
    """The CLI options for the appliance's address and CA."""
    return ["--url", f"https://127.0.0.1:{live.config.server.port}", "--ca-file", str(ca_certificate(live.config))]


def build(folder: Path, mark: str) -> Path:
    """Build the app like a bundler, with `mark` as the hash in file names and references."""
    shutil.copytree(PARTS / "app", folder)
    for path in [each for each in folder.rglob("*") if each.is_file()]:
        path.write_text(path.read_text().replace("MARK", mark))
        path.rename(path.with_name(path.name.replace("MARK", mark)))
    return folder


def give_domain(live: Running, tenant: str, app: str, host: str) -> None:
    """The operator approves the name; then the appliance issues its certificate."""
    with live.api(tenant) as api:
        api.post(f"/api/v1/webapps/{app}/domains", json={"host": host, "method": "operator"}).raise_for_status()
        live.services.webapps.domains.approve_domain(live.tenant(tenant), host)
        await_that(lambda: api.get(f"/api/v1/webapps/{app}/domains/{host}").json()["data"]["state"] == "active")


def address(live: Running, host: str, path: str = "/") -> str:
    return f"https://{host}{live.config.port_suffix}{path}"


def order(page: Page, name: str, product: str = "tea") -> None:
    page.get_by_label("Your name").fill(name)
    page.get_by_label("Product").fill(product)
    page.get_by_role("button", name="Order").click()


@pytest.fixture(scope="module")
def shop(live: Running) -> None:
    """The process and the collection behind the shop."""
    with pytest.MonkeyPatch.context() as patch:
        for tenant in ("journey", "other"):
            patch.setenv("GOS_API_KEY", live.key(tenant))
            assert main(["apply", str(PARTS / "solution"), "--yes", *connection_options(live)]) == 0


@pytest.mark.usefixtures("shop")
def test_an_app_on_its_own_domain_takes_orders_and_is_replaced_and_rolled_back(
    live: Running, context: BrowserContext, deploy: Deploy
) -> None:
    assert deploy("journey", "shop", "aaaa1111") == 0
    give_domain(live, "journey", "shop", SHOP)
    page = context.new_page()
    page.goto(address(live, SHOP))
    expect(page.get_by_text("Edition aaaa1111")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(1, 2, 3)"

    order(page, "Ada", "wine")
    expect(page.get_by_role("status")).to_have_text("/product")
    order(page, "Ada")
    expect(page.get_by_role("status")).to_have_text("Thank you, Ada")
    with live.api("journey") as api:
        [entity] = api.get("/api/v1/datapool/orders/entities").json()["data"]
        assert (entity["name"], entity["product"], entity["quantity"]) == ("Ada", "tea", 1)
        live_only = "  - {path: /, header: {X-Robots-Tag: noindex}}\n"  # a preview sends it, the live app does not
        assert deploy("journey", "shop", "bbbb2222", live_only) == 1
        publication = api.get("/api/v1/webapps/shop/versions/2/publication").json()["data"]
    assert publication["state"] == "switched_back"
    assert [check["phase"] for check in publication["checks"] if check["outcome"] != "passed"] == ["live"]
    page.reload()
    expect(page.get_by_text("Edition aaaa1111")).to_be_visible()

    assert deploy("journey", "shop", "cccc3333") == 0
    page.get_by_role("button", name="Help").click()
    expect(page.get_by_role("status")).to_have_text("Help of edition aaaa1111")
    page.reload()
    expect(page.get_by_text("Edition cccc3333")).to_be_visible()
    with live.api("journey") as api:
        api.post("/api/v1/webapps/shop/rollback", json={}).raise_for_status()
    page.reload()
    expect(page.get_by_text("Edition aaaa1111")).to_be_visible()


SEND = """([to, mode]) => fetch(to, {
  method: 'POST', mode, credentials: 'include', body: JSON.stringify({name: 'Eve', product: 'tea', quantity: 1}),
  headers: mode === 'cors' ? {'Content-Type': 'application/json'} : {},
}).then(() => 'answered', () => 'refused')"""
POST_FORM = """(to) => {
  const form = document.createElement('form')
  form.method = 'post'
  form.action = to
  for (const [name, value] of [['name', 'Eve'], ['product', 'tea'], ['quantity', '1']]) form.append(Object.assign(
    document.createElement('input'), {name, value}))
  document.body.append(form)
  form.submit()
}"""
READ = "(to) => fetch(to, {credentials: 'include'}).then(answer => answer.text(), () => 'refused')"


def names(live: Running, tenant: str) -> list[str]:
    """Who has ordered."""
    with live.api(tenant) as api:
        return [each["name"] for each in api.get("/api/v1/datapool/orders/entities").json()["data"]]


def sign_in(page: Page, live: Running) -> None:
    page.goto(address(live, "journey.localhost", "/console/"))
    page.get_by_label("Login").fill("owner@journey.test")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("navigation").first).to_be_visible()


@pytest.mark.usefixtures("shop")
def test_apps_and_the_console_cannot_reach_each_other(live: Running, context: BrowserContext, deploy: Deploy) -> None:
    assert deploy("other", "letters", "dddd4444") == 0
    give_domain(live, "other", "letters", BLOG)
    page = context.new_page()
    sign_in(page, live)
    page.goto(address(live, SHOP))
    page.evaluate("document.cookie = 'mine=1; Secure'; localStorage.mine = '1'")
    before = names(live, "journey")
    console, api = (address(live, "journey.localhost", path) for path in ("/console/", "/api/v1/webapps"))

    page.goto(address(live, BLOG))
    assert page.evaluate("[document.cookie, localStorage.length]") == ["", 0]
    for target in (console, api, address(live, SHOP), address(live, SHOP, "/api/orders")):
        assert page.evaluate(READ, target) == "refused", target
    for mode in ("cors", "no-cors"):
        page.evaluate(SEND, [address(live, SHOP, "/api/orders"), mode])
    for target in (address(live, SHOP, "/api/orders"), address(live, "journey.localhost", "/console/webapps/shop/unpublish")):
        page.goto(address(live, BLOG))
        with page.expect_navigation() as sent:
            page.evaluate(POST_FORM, target)
        assert sent.value.status == 403, target
    assert names(live, "journey") == before
    ours = {cookie["domain"] for cookie in context.cookies() if cookie["name"].startswith("__Host-")}
    assert ours <= {"localhost", "journey.localhost"}
