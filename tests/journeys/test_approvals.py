"""Code requests an approval, a form and a choice, which are decided in a real browser, and continues."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from appliance.testing.external_systems import Mailbox
from appliance.testing.kit import Gos
from appliance.testing.pages import find_flaws
from appliance.testing.tenants import QaTenant

pytestmark = pytest.mark.browser

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
LEAVE = {
    "id": "leave",
    "name": "Leave",
    "steps": [{"id": "ask", "human": {"kind": "approval", "title": "= input.day + ' off?'", "expires": "48h"}}],
    "output": {"day": "= input.day", "by": "= steps.ask.decided_by", "told": "= steps.ask.comment"},
}


@pytest.fixture(scope="module")
def asking(gos: Gos) -> QaTenant:
    """A tenant with a process that requests decisions."""
    tenant = gos.tenant("asking")
    tenant.ask("POST", "/processes", ASKING)
    tenant.ask("POST", "/processes/asking/publish", {})
    return tenant


@pytest.fixture
def olga(gos_page_as: Callable[..., Page], asking: QaTenant) -> Page:
    """The page of an operator who is no approver."""
    return gos_page_as("operator", asking)


@pytest.fixture
def eve(gos_page_as: Callable[..., Page], asking: QaTenant) -> Page:
    """The page of an approver."""
    return gos_page_as("approver", asking)


def start(asking: QaTenant, order: int) -> str:
    """Start an execution that requests decisions about this order."""
    return str(asking.ask("POST", "/processes/asking/execute", {"order": order})["execution_id"])


def open_request(page: Page, asking: QaTenant, execution: str, title: str) -> None:
    """Open the request from the page of the waiting execution."""
    page.goto(asking.url(f"/console/executions/{execution}"))
    page.get_by_role("link", name=title).click()
    expect(page.get_by_role("heading", name=title)).to_be_visible()


def test_code_asks_three_times_and_ends_with_the_answers(olga: Page, eve: Page, asking: QaTenant) -> None:
    execution = start(asking, 10248)
    open_request(olga, asking, execution, "Ship order 10248?")
    expect(olga.locator("#content")).to_contain_text("You cannot decide this request.")
    expect(olga.get_by_role("button", name="Approve")).to_have_count(0)

    open_request(eve, asking, execution, "Ship order 10248?")
    expect(eve.get_by_role("table")).to_contain_text("Tea")
    eve.get_by_label("Comment").fill("gladly")
    eve.get_by_role("button", name="Approve").click()
    expect(eve.get_by_role("status")).to_have_text("approved")

    open_request(olga, asking, execution, "Where does it go?")
    olga.get_by_label("Street").fill("High Street 1")
    olga.get_by_label("Floor").fill("-1")
    olga.get_by_role("button", name="Send answer").click()
    expect(olga.get_by_role("alert")).to_contain_text("does not match")
    expect(olga.get_by_label("Floor")).to_have_attribute("aria-invalid", "true")
    expect(olga.get_by_label("Street")).to_have_value("High Street 1")
    olga.get_by_label("Floor").fill("2")
    olga.keyboard.press("Enter")
    expect(olga.get_by_role("status")).to_have_text("answered")

    open_request(olga, asking, execution, "How does it go?")
    olga.get_by_role("button", name="by rail").click()
    expect(olga.get_by_role("status")).to_have_text("answered")
    olga.get_by_role("link", name=execution).click()
    expect(olga.get_by_role("status").first).to_have_text("succeeded")
    row = asking.execution(execution, "asking")
    assert row["output"] == {
        "order": 10248,
        "street": "High Street 1",
        "floor": 2,
        "how": "by rail",
        "by": asking.login("approver")[0],
    }


def test_code_receives_a_rejection_from_the_inbox(eve: Page, asking: QaTenant) -> None:
    execution = start(asking, 10249)
    open_request(eve, asking, execution, "Ship order 10249?")
    menu = eve.get_by_role("navigation", name="Console")
    menu.get_by_role("link", name=re.compile("Approvals *1 to decide")).click()
    expect(eve.get_by_role("heading", name="Waiting on you")).to_be_visible()
    eve.get_by_role("link", name="Ship order 10249?").click()
    eve.get_by_label("Comment").fill("not today")
    eve.get_by_role("button", name="Reject").click()
    expect(eve.get_by_role("status")).to_have_text("rejected")
    eve.get_by_role("link", name=execution).click()
    expect(eve.locator("#output")).to_contain_text('"stopped": "not today"')
    eve.get_by_role("link", name="Approvals", exact=True).click()
    expect(eve.locator("#content")).to_contain_text("No pending requests")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_fit_a_narrow_screen_and_have_enough_contrast(
    gos_page_as: Callable[..., Page], asking: QaTenant, scheme: str
) -> None:
    execution = start(asking, 10250)
    eve = gos_page_as("approver", asking, width=360, height=740, scheme=scheme)
    open_request(eve, asking, execution, "Ship order 10250?")
    request = eve.url
    others = [asking.url(path) for path in ("/console/approvals", f"/console/executions/{execution}")]
    for url in (request, *others):
        eve.goto(url)
        assert find_flaws(eve) == [], url
    eve.goto(request)
    eve.get_by_role("button", name="Reject").click()
    expect(eve.get_by_role("status")).to_have_text("rejected")


def test_an_email_leads_an_approver_to_the_inbox_on_a_phone(gos: Gos, gos_mail: Mailbox, gos_page_as: Callable[..., Page]) -> None:
    office = gos.tenant("letters")
    gos.connect_mail(office)
    login, password = office.login("approver")
    office.ask("POST", "/processes", LEAVE)
    office.ask("POST", "/processes/leave/publish", {})
    first = office.execute("leave", {"day": "Monday"}, wait=0)["execution_id"]
    letter = gos_mail.wait_for(to=login, subject="Your approval is needed")
    second = office.execute("leave", {"day": "Friday"}, wait=0)["execution_id"]
    gos.drain()

    phone = gos_page_as("visitor", office, width=390, height=844, scheme="dark")
    phone.goto(letter.links[0])
    expect(phone.get_by_role("heading", name="Sign in")).to_be_visible()
    assert find_flaws(phone) == []
    phone.get_by_label("Login").fill(login)
    phone.get_by_label("Password").fill("not the password")
    phone.get_by_label("Password").press("Enter")
    expect(phone.get_by_role("alert")).to_be_visible()
    expect(phone.get_by_label("Login")).to_have_value(login)
    phone.get_by_label("Password").fill(password)
    phone.get_by_label("Password").press("Enter")
    phone.wait_for_url(letter.links[0])
    expect(phone.get_by_role("heading", name="Monday off?")).to_be_visible()
    assert find_flaws(phone) == []

    phone.get_by_test_id("crumbs").get_by_role("link", name="Approvals").click()
    for day in ("Monday", "Friday"):
        phone.get_by_role("checkbox", name=f"Select {day} off?").check()
    phone.get_by_label("Comment on all selected requests").fill("enjoy it")
    assert find_flaws(phone) == []
    phone.get_by_test_id("approve-chosen").click()
    expect(phone.get_by_role("status")).to_contain_text("2 requests were decided")
    expect(phone.get_by_text("No pending requests")).to_be_visible()
    gos.drain()
    outputs = [office.execution(each, "leave")["output"] for each in (first, second)]
    assert outputs == [{"day": day, "by": login, "told": "enjoy it"} for day in ("Monday", "Friday")]
