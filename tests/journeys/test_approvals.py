"""Code asks people, and goes on: an approval, a form and a choice, decided in a real browser."""

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from appliance.tenants import people
from appliance.testing.running import Running
from tests.journeys.screen import PAGE_CHECKS, Watch, address

pytestmark = pytest.mark.browser

PASSWORD = "three people and a process"
ASKING = {
    "id": "asking",
    "name": "Asking",
    "grants": {"human": True},
    "steps": [
        {
            "id": "ask",
            "code": {
                "language": "javascript",
                "source": """export default async function (input, api) {
  const started = new Map([["order", input.order]])
  const leave = await api.human.request({kind: "approval", title: `Ship order ${input.order}?`, reason: "Over the limit.",
    details: {total: "1440.50", lines: [{product: "Tea", quantity: 3}, {product: "Jam"}]}, expires: "48h"})
  if (leave.status !== "approved") return {stopped: leave.comment, by: leave.decided_by}
  const where = await api.human.request({kind: "input", title: "Where does it go?", schema: {type: "object",
    required: ["street", "floor"], properties: {street: {type: "string", title: "Street"},
    floor: {type: "integer", title: "Floor", minimum: 0}}}})
  const how = await api.human.request({kind: "choice", title: "How does it go?", choices: ["by road", "by rail"]})
  return {order: started.get("order"), ...where.answer, how: how.answer, by: leave.decided_by}
}""",
            },
        }
    ],
}


@pytest.fixture(scope="module")
def api(running: Running) -> Iterator[httpx.Client]:
    """A tenant with somebody who approves, somebody who does not, and a process that asks them."""
    running.user("olga@asking.test", PASSWORD, "asking", "operator")
    running.user("eve@asking.test", PASSWORD, "asking", "operator")
    people.add_member(running.tenant("asking"), "eve@asking.test", "operator", approver=True)
    with running.api("asking") as api:
        api.post("/api/v1/processes", json=ASKING).raise_for_status()
        api.post("/api/v1/processes/asking/publish", json={}).raise_for_status()
        yield api


@pytest.fixture(scope="module")
def screens(chromium: Browser, running: Running, api: httpx.Client) -> Iterator[dict[str, Page]]:
    """The browsers of the two, signed in."""
    pages = {}
    watches = []
    for name in ("olga", "eve"):
        context = chromium.new_context(viewport={"width": 1280, "height": 800})
        context.set_default_timeout(15_000)
        watches.append(Watch(context, running.config.server.port))
        page = pages[name] = context.new_page()
        page.goto(address(running.config, "/console/", "asking."))
        page.get_by_label("Login").fill(f"{name}@asking.test")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(address(running.config, "/console/processes", "asking."))
    yield pages
    for page in pages.values():
        page.context.close()
    assert [trouble for watch in watches for trouble in watch.troubles] == []


def start(api: httpx.Client, order: int) -> str:
    """An execution that asks about this order."""
    answer = api.post("/api/v1/processes/asking/execute", json={"order": order}).raise_for_status()
    return str(answer.json()["data"]["execution_id"])


def open_request(page: Page, running: Running, execution: str, title: str) -> None:
    """From the execution, which says what it waits for, to the request."""
    page.goto(address(running.config, f"/console/executions/{execution}", "asking."))
    page.get_by_role("link", name=title).click()
    expect(page.get_by_role("heading", name=title)).to_be_visible()


def test_code_asks_three_times_and_ends_with_the_answers(screens: dict[str, Page], running: Running, api: httpx.Client) -> None:
    execution = start(api, 10248)
    olga, eve = screens["olga"], screens["eve"]
    open_request(olga, running, execution, "Ship order 10248?")
    expect(olga.locator("#content")).to_contain_text("Not yours to decide.")
    expect(olga.get_by_role("button", name="Approve")).to_have_count(0)

    open_request(eve, running, execution, "Ship order 10248?")
    expect(eve.get_by_role("table")).to_contain_text("Tea")
    eve.get_by_label("Comment").fill("gladly")
    eve.get_by_role("button", name="Approve").click()
    expect(eve.get_by_role("status")).to_have_text("approved")

    open_request(olga, running, execution, "Where does it go?")
    olga.get_by_label("Street").fill("High Street 1")
    olga.get_by_label("Floor").fill("-1")
    olga.get_by_role("button", name="Send the answer").click()
    expect(olga.get_by_role("alert")).to_contain_text("does not fit")
    expect(olga.get_by_label("Floor")).to_have_attribute("aria-invalid", "true")
    expect(olga.get_by_label("Street")).to_have_value("High Street 1")
    olga.get_by_label("Floor").fill("2")
    olga.keyboard.press("Enter")
    expect(olga.get_by_role("status")).to_have_text("answered")

    open_request(olga, running, execution, "How does it go?")
    olga.get_by_role("button", name="by rail").click()
    expect(olga.get_by_role("status")).to_have_text("answered")
    olga.get_by_role("link", name=execution).click()
    expect(olga.get_by_role("status").first).to_have_text("succeeded")
    row = api.get(f"/api/v1/processes/asking/executions/{execution}").json()["data"]
    assert row["output"] == {"order": 10248, "street": "High Street 1", "floor": 2, "how": "by rail", "by": "eve@asking.test"}


def test_the_inbox_leads_to_a_rejection_that_the_code_hears(screens: dict[str, Page], running: Running, api: httpx.Client) -> None:
    execution = start(api, 10249)
    eve = screens["eve"]
    open_request(eve, running, execution, "Ship order 10249?")
    menu = eve.get_by_role("navigation", name="Console")
    menu.get_by_role("link", name=re.compile("Approvals *1 to decide")).click()
    expect(eve.get_by_role("heading", name="For you")).to_be_visible()
    eve.get_by_role("link", name="Ship order 10249?").click()
    eve.get_by_label("Comment").fill("not today")
    eve.get_by_role("button", name="Reject").click()
    expect(eve.get_by_role("status")).to_have_text("rejected")
    eve.get_by_role("link", name=execution).click()
    expect(eve.locator("#output")).to_contain_text('"stopped": "not today"')
    eve.get_by_role("link", name="Approvals", exact=True).click()
    expect(eve.locator("#content")).to_contain_text("Nothing waits for a decision")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_fit_a_narrow_screen_and_read_well(
    screens: dict[str, Page], running: Running, api: httpx.Client, scheme: str
) -> None:
    execution = start(api, 10250)
    eve = screens["eve"]
    eve.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    eve.set_viewport_size({"width": 360, "height": 740})
    open_request(eve, running, execution, "Ship order 10250?")
    request = eve.url
    others = [address(running.config, path, "asking.") for path in ("/console/approvals", f"/console/executions/{execution}")]
    for url in (request, *others):
        eve.goto(url)
        found = eve.evaluate(PAGE_CHECKS)
        assert (found["faint"], found["unnamed"]) == ([], []), url
        assert found["overflow"] <= 0, url
    eve.goto(request)
    eve.get_by_role("button", name="Reject").click()
    expect(eve.get_by_role("status")).to_have_text("rejected")
