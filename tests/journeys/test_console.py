"""A user of the console in a real browser: sign-in, a run, its execution, a failure, a key, sign-out."""

import re
from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Page, expect

from appliance.solutions import starter_input
from appliance.testing.kit import Gos
from appliance.testing.running import Running
from appliance.testing.tenants import QaTenant

pytestmark = pytest.mark.browser

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
def journey(gos: Gos) -> QaTenant:
    """A tenant with the starter and two processes of its own."""
    tenant = gos.tenant("journey", solution="starter")
    for definition in (SLOW, STRICT):
        tenant.ask("POST", "/processes", definition)
        tenant.ask("POST", f"/processes/{definition['id']}/publish", {})
    return tenant


@pytest.fixture
def page(gos_page_as: Callable[..., Page], journey: QaTenant) -> Page:
    """The home page of the owner, after a real sign-in."""
    page = gos_page_as("owner", journey)
    page.goto(journey.url("/console/processes"))
    return page


def test_orders_are_run_from_the_form_and_end_in_datapool(page: Page, journey: QaTenant) -> None:
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


def test_an_execution_is_followed_until_it_ends(page: Page, journey: QaTenant) -> None:
    page.goto(journey.url("/console/processes/slow-count"))
    page.get_by_role("textbox", name="Input").fill("{}")
    page.get_by_role("button", name="Run Slow count").click()
    page.wait_for_url(re.compile("/console/executions/exe_"))
    page.locator("#step-first > summary").click()
    expect(page.get_by_role("status").first).to_have_text("succeeded")
    expect(page.locator("#step-first")).to_have_attribute("open", "")
    expect(page.locator("#output")).to_have_text("42")
    assert page.locator("[data-live]").count() == 0, "a finished execution is not asked for again"


def test_a_failure_is_explained_and_listed(page: Page, journey: QaTenant) -> None:
    page.goto(journey.url("/console/processes/strict"))
    page.get_by_label("Even number").fill("7.5")
    page.get_by_role("button", name="Run Strict").click()
    expect(page.locator('[id="in/even-error"]')).to_have_text("Enter a whole number.")
    page.get_by_label("Even number").fill("7")
    page.get_by_role("button", name="Run Strict").click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("7 is odd")
    expect(alert).to_contain_text("What to do:")
    expect(alert).to_contain_text(":3:")
    page.goto(journey.url("/console/failures"))
    page.get_by_role("link", name="Newest execution").first.click()
    page.get_by_role("link", name="Run with this input").click()
    expect(page.get_by_label("Even number")).to_have_value("7")
    page.goto(journey.url("/console/logs"))
    page.keyboard.press("/")
    page.keyboard.type("looking at a number")
    page.keyboard.press("Enter")
    expect(page.locator(".log li").first).to_contain_text("even=7")


def test_a_key_is_issued_and_works(page: Page, journey: QaTenant, running: Running) -> None:
    page.goto(journey.url("/console/keys/new"))
    page.get_by_label("Name", exact=True).fill("journey")
    page.get_by_role("button", name="Read everything").click()
    page.get_by_role("button", name="Issue key").click()
    key = page.locator("#key").inner_text()
    with running.client("journey.localhost", {"X-API-Key": key}) as client:
        answer: httpx.Response = client.get("/api/v1/processes")
    assert answer.status_code == 200


def test_sign_out_also_blocks_the_back_button(page: Page, journey: QaTenant) -> None:
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in")
    page.goto(journey.url("/console/processes"))
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
