"""Every page of the console is accessible in light and dark, logs no errors, loads only its own origin, and is small and stable."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from playwright.sync_api import Browser, CDPSession, Page, StorageState, expect

from appliance.console.blueprint import PAGES
from appliance.tenants import scopes_of_role
from appliance.testing.pages import PageMonitor, find_flaws
from appliance.testing.running import Running
from tests import matrices
from tests.console.browser import Browser as HttpBrowser
from tests.screenshots.axe import fetch_axe
from tests.screenshots.furnishing import PASSWORD, TENANT, FurnishedTenant, furnish
from tests.screenshots.pages import Screen, screens
from tests.screenshots.visitor import set_look, signed_in_context, url_of

pytestmark = pytest.mark.browser

MOST_BYTES = 150_000
MOST_SHIFT = 0.02
NARROW, USUAL = 360, 1280
ABSENT = (404, 410)
NOT_FOUND = [f"error: Failed to load resource: the server responded with a status of {status} ()" for status in ABSENT]
OBSERVE_SHIFTS = """
window.shift = 0;
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) if (!each.hadRecentInput) window.shift += each.value;
}).observe({type: "layout-shift", buffered: true});
"""
FINDINGS = """async (options) => {
  const results = await axe.run(document, {resultTypes: ["violations"], ...options});
  return results.violations.filter((each) => ["serious", "critical"].includes(each.impact))
    .map((each) => `${each.id}: ${each.nodes.map((node) => node.target.join(" ")).slice(0, 4).join("; ")}`);
}"""
CONTRAST = "color-contrast"
# Targets of links and of forms that change something; a search form is no `post`.
TARGETS = re.compile(r"""<(?:a|button|form(?=[^>]*?\smethod="post"))\b[^>]*?\s(href|action|formaction)="([^"]*)\"""")
ROUTES = [(each, re.compile(re.sub(r"<(?:path:)?\w+>", "[^/]+", each.path) + "/?")) for each in PAGES]


@dataclass
class Look:
    """A browser page without a cache, and the sizes that one visit transferred, without the editor's script."""

    page: Page
    session: CDPSession
    sizes: list[int] = field(default_factory=list)
    editors: set[str] = field(default_factory=set)
    expected: list[str] = field(default_factory=list)

    def open(self, url: str) -> Any:
        self.sizes.clear()
        return self.page.goto(url)


def record_editor(look: Look, event: Any) -> None:
    if "/static/editor/" in event["request"]["url"]:
        look.editors.add(event["requestId"])


def record_size(look: Look, event: Any) -> None:
    if event["requestId"] not in look.editors:
        look.sizes.append(event["encodedDataLength"])


@pytest.fixture(scope="module")
def house(running: Running) -> FurnishedTenant:
    return furnish(running)


@pytest.fixture(scope="module")
def signed_in(gos_browser: Browser, running: Running, house: FurnishedTenant) -> StorageState:
    """The browser storage of a signed-in user."""
    with signed_in_context(gos_browser, running.config) as context:
        return context.storage_state()


@pytest.fixture
def looks(gos_browser: Browser, running: Running, signed_in: StorageState) -> Iterator[dict[bool, Look]]:
    """A page of a signed-in user (True) and one of a visitor (False); neither may report trouble at the end."""
    axe = fetch_axe()
    member, stranger = gos_browser.new_context(storage_state=signed_in), gos_browser.new_context()
    watches = [PageMonitor(context, f"localhost{running.config.port_suffix}") for context in (member, stranger)]
    opened = {}
    for is_signed_in, context in ((True, member), (False, stranger)):
        context.add_init_script(OBSERVE_SHIFTS)
        context.add_init_script(axe)
        page = context.new_page()
        look = opened[is_signed_in] = Look(page, context.new_cdp_session(page))
        look.session.send("Network.enable")
        look.session.send("Network.setCacheDisabled", {"cacheDisabled": True})
        look.session.on("Network.requestWillBeSent", partial(record_editor, look))
        look.session.on("Network.loadingFinished", partial(record_size, look))
    yield opened
    member.close()
    stranger.close()
    assert [trouble for watch in watches for trouble in watch.troubles if trouble not in opened[True].expected] == []


def test_every_page_is_accessible_quiet_small_and_stable(
    looks: dict[bool, Look], house: FurnishedTenant, request: pytest.FixtureRequest
) -> None:
    """Contrast is measured on every page, and also by axe on the pages sampled for this run; on all with `--all`."""
    by_name = {screen.name: screen for screen in screens(house.things)}
    options = request.config.option
    sampled = set(by_name) if options.all else matrices.sample(list(by_name), options.seed)
    flaws = {name: check_page(looks, house.running, screen, by_axe=name in sampled) for name, screen in by_name.items()}
    assert not any(flaws.values()), "\n".join(f"{name}: {each}" for name, each in flaws.items() if each)


def check_page(looks: dict[bool, Look], running: Running, screen: Screen, *, by_axe: bool) -> list[str]:
    """The flaws of a page."""
    look = looks[screen.is_signed_in]
    page = look.page
    set_look(page, "light", USUAL)
    answer = look.open(url_of(running.config, screen))
    look.expected += NOT_FOUND if screen.is_absent and not look.expected else []
    flaws = [f"answers {answer.status}"] if answer.status not in (ABSENT if screen.is_absent else (200,)) else []
    policy = answer.headers["content-security-policy"]
    flaws += ["unsafe policy"] if "unsafe" in policy or "default-src 'none'" not in policy else []
    flaws += [f"{sum(look.sizes)} bytes"] if not 0 < sum(look.sizes) <= MOST_BYTES else []
    flaws += page.evaluate(FINDINGS, {"rules": {CONTRAST: {"enabled": by_axe}}}) + find_flaws(page)
    shift = page.evaluate("window.shift")
    flaws += [f"shifts by {shift:.3f}"] if shift >= MOST_SHIFT else []
    page.emulate_media(color_scheme="dark")
    dark = find_flaws(page) + (page.evaluate(FINDINGS, {"runOnly": [CONTRAST]}) if by_axe else [])
    page.set_viewport_size({"width": NARROW, "height": 800})
    return flaws + [f"dark {each}" for each in dark] + find_flaws(page)


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_no_page_offers_a_refused_action(house: FurnishedTenant, role: str) -> None:
    """No link or form leads to a route whose scope the role lacks."""
    login, scopes = f"{role}@northgate.test", scopes_of_role(role)
    house.running.user(login, PASSWORD, TENANT, role)
    browser, refused, seen = HttpBrowser(house.running), [], 0
    browser.sign_in(login, PASSWORD, TENANT)
    for screen in (each for each in screens(house.things) if each.is_signed_in and not each.is_on_base):
        page = browser.get(browser.at(TENANT, screen.path))
        for kind, address in TARGETS.findall(page.text) if page.status_code == 200 else ():
            needed = scope_of("GET" if kind == "href" else "POST", urlsplit(urljoin(screen.path, html.unescape(address))).path)
            seen += 1
            refused += [f"{screen.path}: {address} needs {needed}"] if needed is not None and needed not in scopes else []
    assert seen > 1000
    assert refused == []


def scope_of(method: str, path: str) -> str | None:
    """The scope of the matching route with the fewest parameters."""
    matches = [each for each, pattern in ROUTES if each.method == method and pattern.fullmatch(path)]
    return min(matches, key=lambda each: each.path.count("<")).scope if matches else None


def test_the_menu_works_by_mouse_and_by_keyboard(looks: dict[bool, Look], house: FurnishedTenant) -> None:
    page, at = looks[True].page, house.running.config.tenant_url
    set_look(page, "light", USUAL)
    page.goto(f"{at(TENANT)}/console/about")
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.wait_for_url(f"{at(TENANT)}/console/failures")
    when = page.locator("time").first
    assert re.search(r"\n20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC$", when.get_attribute("title") or "")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Shortcuts")).to_be_visible()
    page.get_by_role("checkbox", name="Single-key shortcuts").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_label("Switch tenant").click()
    page.get_by_role("list", name="Your tenants").get_by_role("link", name="Globex").click()
    page.wait_for_url(re.compile(re.escape(at("globex")) + "/console/"))
    expect(page.get_by_role("link", name="Globex globex", exact=True)).to_be_visible()


def test_the_mobile_menu_opens_without_scripts(
    gos_browser: Browser, signed_in: StorageState, house: FurnishedTenant
) -> None:
    context = gos_browser.new_context(java_script_enabled=False, storage_state=signed_in, viewport={"width": NARROW, "height": 740})
    page = context.new_page()
    page.goto(f"{house.running.config.tenant_url(TENANT)}/console/keys")
    link = page.get_by_role("navigation", name="Console").get_by_role("link", name="Policies")
    expect(link).to_have_count(0)
    page.get_by_role("button", name="Menu, current page: API keys").click()
    link.click()
    expect(page.get_by_role("heading", name="Policies")).to_be_visible()
    context.close()
