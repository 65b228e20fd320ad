"""A person's way through the console in a real browser: sign-in, a run, its execution, a failure, a key, sign-out."""

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from appliance.solutions.service import Tools, apply_solution
from appliance.solutions.starter import starter_input, starter_solution
from appliance.testing.running import Running
from tests.journeys.screen import PAGE_CHECKS, Watch, address

pytestmark = pytest.mark.browser

LOGIN, PASSWORD = "journey@console.test", "a journey of a thousand miles"
SLOW = {
    "id": "slow-count",
    "name": "Slow count",
    "steps": [
        {"id": "first", "rule": {"expression": "= 1 + 1"}},
        {"id": "pause", "wait": {"for": "1500ms"}},
        {"id": "last", "rule": {"expression": "= steps.first * 21"}},
    ],
}
STRICT = {
    "id": "strict",
    "name": "Strict",
    "input": {"type": "object", "required": ["even"], "properties": {"even": {"type": "integer", "title": "Even number"}}},
    "steps": [
        {
            "id": "check",
            "code": {
                "language": "typescript",
                "source": "export default async function (input: {even: number}, api: any) {\n"
                "  api.log.warn('looking at a number', {even: input.even})\n"
                "  if (input.even % 2) throw new Error(`${input.even} is odd`)\n"
                "  return input.even / 2\n}",
            },
        }
    ],
}


@pytest.fixture(scope="module")
def journey(running: Running) -> Running:
    """A tenant with the starter and two processes of its own, and its operator of the house."""
    scope = running.tenant("journey")
    running.user(LOGIN, PASSWORD, "journey", "owner")
    url = f"http://localhost:{running.config.server.port}/demo"
    apply_solution(scope, Tools(None, running.services.integrations), starter_solution(url))
    with running.api("journey") as api:
        for definition in (SLOW, STRICT):
            api.post("/api/v1/processes", json=definition).raise_for_status()
            api.post(f"/api/v1/processes/{definition['id']}/publish", json={}).raise_for_status()
    return running


@pytest.fixture
def context(chromium: Browser, journey: Running) -> Iterator[BrowserContext]:
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(15_000)
    watch = Watch(context, journey.config.server.port)
    yield context
    context.close()
    assert watch.troubles == []


@pytest.fixture
def page(context: BrowserContext, journey: Running) -> Page:
    """A signed-in person on the first page, through the real sign-in."""
    page = context.new_page()
    page.goto(address(journey.config, "/console/"))
    page.get_by_label("Login").fill(LOGIN)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(address(journey.config, "/console/processes"))
    return page


def test_orders_are_run_from_the_form_and_end_in_datapool(page: Page, journey: Running) -> None:
    page.get_by_role("link", name="Order intake").click()
    page.get_by_role("link", name="As JSON").click()
    page.get_by_role("textbox", name="Input").fill(starter_input().read_text("utf8"))
    page.get_by_role("button", name="Run Order intake").click()
    expect(page.get_by_role("status").first).to_have_text("succeeded")
    expect(page.locator("#output")).to_contain_text('"accepted"')
    page.locator("summary", has_text="check").first.click()
    expect(page.locator("#step-check .entry-body")).to_contain_text("Output")
    page.get_by_role("navigation", name="Console").get_by_role("link", name="DataPool").click()
    page.get_by_role("link", name="orders", exact=True).click()
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    assert page.locator("tbody tr").count() > 0


def test_an_execution_is_watched_until_it_ends(page: Page, journey: Running) -> None:
    page.goto(address(journey.config, "/console/processes/slow-count"))
    page.get_by_role("textbox", name="Input").fill("{}")
    page.get_by_role("button", name="Run Slow count").click()
    page.wait_for_url(re.compile("/console/executions/exe_"))
    page.locator("#step-first > summary").click()
    expect(page.get_by_role("status").first).to_have_text("succeeded")
    expect(page.locator("#step-first")).to_have_attribute("open", "")
    expect(page.locator("#output")).to_have_text("42")
    assert page.locator("[data-live]").count() == 0, "a finished execution is not asked for again"


def test_a_failure_is_understood_and_found_again(page: Page, journey: Running) -> None:
    page.goto(address(journey.config, "/console/processes/strict"))
    page.get_by_label("Even number").fill("7.5")
    page.get_by_role("button", name="Run Strict").click()
    expect(page.locator('[id="in/even-error"]')).to_have_text("This must be a whole number.")
    page.get_by_label("Even number").fill("7")
    page.get_by_role("button", name="Run Strict").click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("7 is odd")
    expect(alert).to_contain_text("What to do:")
    expect(alert).to_contain_text(":3:")
    page.goto(address(journey.config, "/console/failures"))
    page.get_by_role("link", name="Newest execution").first.click()
    page.get_by_role("link", name="Run with this input").click()
    expect(page.get_by_label("Even number")).to_have_value("7")
    page.goto(address(journey.config, "/console/logs"))
    page.keyboard.press("/")
    page.keyboard.type("looking at a number")
    page.keyboard.press("Enter")
    expect(page.locator(".log li").first).to_contain_text("even=7")


def test_a_key_is_issued_and_works(page: Page, journey: Running) -> None:
    page.goto(address(journey.config, "/console/keys/new"))
    page.get_by_label("Name").fill("journey")
    page.get_by_role("button", name="Read everything").click()
    page.get_by_role("button", name="Issue the key").click()
    key = page.locator("#key").inner_text()
    with journey.client("journey.localhost", {"X-API-Key": key}) as client:
        answer: httpx.Response = client.get("/api/v1/processes")
    assert answer.status_code == 200


def test_the_explorer_takes_a_key_and_makes_calls(page: Page, journey: Running) -> None:
    page.goto(address(journey.config, "/api-docs/"))
    page.get_by_role("button", name="Authorize").click()
    dialog = page.locator(".modal-ux")
    dialog.get_by_role("textbox").fill(journey.key("journey", ["logs.read"]))
    dialog.get_by_role("button", name="Apply credentials").click()
    dialog.get_by_role("button", name="Close").click()
    page.get_by_placeholder("Filter").fill("tenant")  # of a long list only what is in sight exists
    call = page.locator(".opblock", has=page.locator('[data-path="/api/v1/tenant"]'))
    call.locator(".opblock-summary-control").click()
    call.get_by_role("button", name="Execute").click()
    expect(call.locator(".live-responses-table .response .response-col_status")).to_contain_text("200")
    expect(call.locator(".live-responses-table")).to_contain_text('"id": "journey"')


def test_sign_out_ends_the_way_back_too(page: Page, journey: Running) -> None:
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(address(journey.config, "/sign-in", tenant=""))
    page.goto(address(journey.config, "/console/processes"))
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_a_narrow_screen_and_reads_well(page: Page, journey: Running, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": 360, "height": 740})
    paths = [
        "processes",
        "processes/order-intake",
        "executions",
        "approvals",
        "failures",
        "logs",
        "datapool",
        "datapool/orders",
        "integrations",
    ]
    for path in [*paths, "integrations/order-system", "keys", "keys/new", "about"]:
        page.goto(address(journey.config, f"/console/{path}"))
        found = page.evaluate(PAGE_CHECKS)
        assert (found["faint"], found["unnamed"]) == ([], []), path
        assert found["overflow"] <= 0, path
