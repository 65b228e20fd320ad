"""A builder's way in a real browser: a process from an example, its code, a type error, publishing, a run, a failure mended."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

from appliance.testing.kit import Gos
from appliance.testing.pages import flaws_of
from appliance.testing.tenants import QaTenant

pytestmark = pytest.mark.browser

CODE = """export default async function (input: StepInput) {
const total = input.items.reduce((sum, item) => sum + item.price * item.quantity, 0);
if (total > LIMIT) throw new Error("too much");
return { total };
}"""


@pytest.fixture(scope="module")
def workshop(gos: Gos) -> QaTenant:
    return gos.tenant("workshop")


@pytest.fixture
def page(gos_page_as: Callable[..., Page], workshop: QaTenant) -> Page:
    page = gos_page_as("builder", workshop)
    page.goto(workshop.url("/console/processes"))
    return page


PASTE = """(content, text) => {
  const data = new DataTransfer();
  data.setData("text/plain", text);
  content.dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true}));
}"""


def write(page: Page, text: str) -> None:
    """Paste over everything that stands in the editor."""
    content = page.locator(".cm-content")
    content.focus()
    page.keyboard.press("Control+a")
    content.evaluate(PASTE, text)


def save(page: Page) -> None:
    page.keyboard.press("Control+s")
    expect(page.locator("[data-said]")).to_have_text("saved")


def test_a_process_is_written_published_run_and_mended(page: Page, workshop: QaTenant) -> None:
    page.get_by_test_id("new-process").click()
    page.get_by_role("radio", name="A calculation").check()
    page.get_by_role("textbox", name="Name", exact=True).fill("Cart total")
    page.get_by_role("textbox", name="Id", exact=True).fill("cart-total")
    page.get_by_test_id("create-process").click()
    files = page.get_by_role("navigation", name="Files of the draft")
    files.get_by_role("link", name="steps/total.ts").click()
    problems = page.get_by_role("region", name="problem")
    write(page, CODE)
    expect(problems.get_by_role("listitem")).to_contain_text("Cannot find name 'LIMIT'")
    expect(problems.get_by_role("link")).to_have_text("steps/total.ts:3")
    assert flaws_of(page) == []
    write(page, CODE.replace("LIMIT", "100"))
    page.keyboard.type("// get? a/b")
    expect(page.locator(".cm-content")).to_contain_text("// get? a/b")
    expect(page.get_by_role("heading", name="No problems")).to_be_visible()
    save(page)
    page.get_by_test_id("review-draft").click()
    page.get_by_role("textbox", name="What has changed").fill("a limit")
    page.get_by_test_id("publish-draft").click()
    expect(page.get_by_text("a limit")).to_be_visible()
    failed = workshop.execute("cart-total", {"items": [{"price": 60, "quantity": 2}]})
    page.goto(workshop.url(f"/console/executions/{failed['execution_id']}"))
    expect(page.get_by_role("status").first).to_have_text("failed")
    expect(page.locator("#content")).to_contain_text("steps/total.ts:3")
    page.goto(workshop.url("/console/processes/cart-total/edit?file=steps/total.ts"))
    write(page, CODE.replace("LIMIT", "1000"))
    save(page)
    page.goto(workshop.url(f"/console/executions/{failed['execution_id']}"))
    page.get_by_role("button", name="Replay").click()
    page.get_by_label("With").select_option("draft")
    page.get_by_role("button", name="Replay").click()
    expect(page.locator("#content")).to_contain_text('"total": 120')


def test_the_definition_is_completed_from_its_schema(page: Page, workshop: QaTenant) -> None:
    workshop.ask("PUT", "/processes/short", {"id": "short", "steps": [{"id": "one", "rule": {"expression": "= 1"}}]})
    page.goto(workshop.url("/console/processes/short/edit"))
    write(page, "id: short\nsteps:\n  - id: one\n    rule: {expression: = 1}\n    contin")
    page.keyboard.press("Control+Space")
    page.get_by_role("option", name="continue_on_error").click()
    page.keyboard.type("tr")
    page.keyboard.press("Control+Space")
    page.get_by_role("option", name="true").click()
    save(page)
    assert workshop.ask("GET", "/processes/short")["definition"]["steps"][0]["continue_on_error"] is True


def test_a_save_is_never_taken_back(page: Page, workshop: QaTenant) -> None:
    workshop.ask("PUT", "/processes/quick", {"id": "quick", "steps": [{"id": "one", "rule": {"expression": "= 1"}}]})
    page.goto(workshop.url("/console/processes/quick/edit"))
    held: list[Route] = []
    is_holding = [True]

    def hold(route: Route) -> None:
        if is_holding[0] and "do=save" in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    page.route("**/processes/quick/edit", hold)
    write(page, "id: quick\nname: First\nsteps: [{id: one, rule: {expression: = 1}}]\n")
    page.keyboard.press("Control+s")
    page.keyboard.type("# and more")
    expect(page.get_by_role("heading", name="No problems")).to_be_visible()
    page.keyboard.press("Control+s")
    is_holding[0] = False
    for route in held:
        route.continue_()
    expect(page.locator("[data-said]")).to_have_text("saved")
    page.reload()
    expect(page.locator(".cm-content")).to_contain_text("# and more")


def test_without_scripts_it_is_a_form(gos_page_as: Callable[..., Page], page: Page, workshop: QaTenant) -> None:
    workshop.ask("PUT", "/processes/plain", {"id": "plain", "steps": [{"id": "one", "rule": {"expression": "= 1"}}]})
    context = page.context.browser.new_context(java_script_enabled=False, storage_state=page.context.storage_state())  # type: ignore[union-attr]
    try:
        still = context.new_page()
        still.goto(workshop.url("/console/processes/plain/edit"))
        text = "id: plain\nname: Plain text\nsteps: [{id: one, rule: {expression: = 2}}]\n"
        still.get_by_role("textbox", name="process.yaml").fill(text)
        still.get_by_test_id("save-draft").click()
        expect(still.get_by_role("heading", name="No problems")).to_be_visible()
    finally:
        context.close()
    assert workshop.ask("GET", "/processes/plain")["name"] == "Plain text"
