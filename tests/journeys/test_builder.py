"""A builder works in a real browser by keyboard only: a process from an example, its code, a test, a fixed failure."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from appliance.testing.kit import Gos
from appliance.testing.pages import find_flaws
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
    """Replace the whole text of the editor by pasting."""
    content = page.locator(".cm-content")
    content.focus()
    page.keyboard.press("Control+a")
    content.evaluate(PASTE, text)


def save(page: Page) -> None:
    page.keyboard.press("Control+s")
    expect(page.locator("[data-said]")).to_have_text("saved")


# Whether the target is still in the page, whether it has the focus, and the HTML of a focused element without a visible focus:
# without an outline of its own or around it, and without a frame that turns.
FOCUS_STATE = """(target) => {
  const is = (style) => style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
  const isSeen = (element) => {
    if (element.matches("body, main, .code-host") || element.closest(".code-panel")) return true;
    const box = element.querySelector(".flow-box");
    const isFramed = box !== null && parseFloat(getComputedStyle(box).strokeWidth) > 2;
    return isFramed || is(getComputedStyle(element)) || is(getComputedStyle(element, "::after"));
  };
  const focused = document.activeElement, inner = focused.shadowRoot?.activeElement;
  return [target.isConnected, target === focused || target === inner, isSeen(focused) ? "" : focused.outerHTML];
}"""
MOST_STOPS = 150


def focus(page: Page, target: Locator, *, by_the_menu: bool = False) -> None:
    """Press Tab until the target has the focus; every stop shows its focus. Skips the menu unless `by_the_menu`."""
    expect(target).to_be_visible()
    if not by_the_menu and page.evaluate("document.activeElement === document.body"):
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
    element = target.element_handle()
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        is_in_page, is_there, unseen = element.evaluate(FOCUS_STATE)
        if not is_in_page:  # Look up its replacement only then: a lookup at every stop would be slower than the keys.
            element = target.element_handle()
            _, is_there, unseen = element.evaluate(FOCUS_STATE)
        assert not unseen, f"the focus cannot be seen on {unseen}"
        if is_there:
            return
    raise AssertionError(f"no Tab leads to {target}")


def press(page: Page, target: Locator, *, by_the_menu: bool = False) -> None:
    focus(page, target, by_the_menu=by_the_menu)
    page.keyboard.press("Enter")


def type_over(page: Page, target: Locator, text: str) -> None:
    focus(page, target)
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def code(page: Page, text: str) -> None:
    """Go to the editor, and paste over everything in it."""
    focus(page, page.locator(".cm-content"))
    code_again(page, text)


def code_again(page: Page, text: str) -> None:
    """Paste over everything in the editor, which has the focus."""
    page.keyboard.press("Control+a")
    page.locator(".cm-content").evaluate(PASTE, text)


def leave(page: Page) -> None:
    """Tab is a letter in the editor, unless Escape came before."""
    page.keyboard.press("Escape")


def test_a_process_is_built_run_and_fixed_by_keyboard(page: Page) -> None:
    """Long because it is one path, from the menu to the mended execution."""
    press(page, page.get_by_test_id("new-process"), by_the_menu=True)
    focus(page, page.get_by_role("radio").first)
    while not page.get_by_role("radio", name="A calculation").is_checked():
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.insert_text("Cart total")
    page.keyboard.press("Tab")
    page.keyboard.insert_text("cart-total")
    page.keyboard.press("Tab")
    expect(page.get_by_test_id("create-process")).to_be_focused()
    page.keyboard.press("Enter")
    files = page.get_by_role("navigation", name="Files of the draft")
    press(page, files.get_by_role("link", name="steps/total.ts"), by_the_menu=True)
    problems = page.get_by_role("region", name="problem")
    expect(page.get_by_role("heading", name="No problems")).to_be_visible()
    code(page, CODE)
    expect(problems.get_by_role("listitem")).to_contain_text("Cannot find name 'LIMIT'")
    expect(problems.get_by_role("link")).to_have_text("steps/total.ts:3")
    assert find_flaws(page) == []
    leave(page)
    press(page, problems.get_by_role("link"))  # the link leads to the problem in the text
    code_again(page, CODE.replace("LIMIT", "100"))
    save(page)
    expect(page.get_by_role("heading", name="No problems")).to_be_visible()
    leave(page)
    press(page, page.get_by_test_id("test-draft"))
    type_over(page, page.get_by_label("Process input"), '{"items": [{"price": 60, "quantity": 1}]}')
    press(page, page.get_by_test_id("test"))
    expect(page.locator("#output")).to_contain_text('"total": 60')
    press(page, page.get_by_role("link", name="Edit", exact=True))
    press(page, page.get_by_test_id("review-draft"))
    expect(page.get_by_role("table", name="steps/total.ts")).to_contain_text("too much")
    focus(page, page.get_by_label("What has changed"))
    page.keyboard.insert_text("a limit")
    press(page, page.get_by_test_id("publish-draft"))
    expect(page.get_by_text("a limit")).to_be_visible()
    type_over(page, page.get_by_role("textbox", name="Items"), '[{"price": 60, "quantity": 2}]')
    press(page, page.get_by_test_id("run"))
    expect(page.get_by_role("status").first).to_have_text("failed")
    expect(page.get_by_test_id("flow-step")).to_have_attribute("data-state", "failed")
    press(page, page.get_by_role("link", name="Open in the editor").first)
    code(page, CODE.replace("LIMIT", "1000"))
    save(page)
    leave(page)
    press(page, page.get_by_role("navigation", name="You are here").get_by_role("link", name="Cart total"))
    press(page, page.get_by_role("table", name="Latest executions").get_by_role("link"), by_the_menu=True)
    press(page, page.get_by_test_id("replay"))
    focus(page, page.get_by_label("Version"))
    page.keyboard.type("the draft")
    press(page, page.get_by_test_id("replay"))
    expect(page.locator("#content")).to_contain_text('"total": 120')


IN_A_FILE = "export default function (input: StepInput) {\n  const limit = 1; if (input.n > limit) throw new Error('no');\n}\n"
INLINE = """id: fails
input: {type: object, required: [n], properties: {n: {type: integer}}}
steps:
  - id: inline
    code:
      language: typescript
      source: |
        export default function (input: StepInput) {
          if (input.n > 2) throw new Error("no");
        }
  - id: file
    code: {language: typescript, file: steps/file.ts}
"""


@pytest.mark.parametrize(
    ("n", "here"), [(3, 'if (input.n > 2) throw new |Error("no");'), (2, "if (input.n > limit) throw new |Error('no');")]
)
def test_the_editor_is_opened_where_the_code_failed(page: Page, workshop: QaTenant, n: int, here: str) -> None:
    body = {"definition": {"id": "fails", "steps": []}, "files": {"steps/file.ts": IN_A_FILE}}
    workshop.ask("PUT", "/processes/fails", body)
    page.goto(workshop.url("/console/processes/fails/edit"))
    write(page, INLINE)
    save(page)
    workshop.ask("POST", "/processes/fails/publish", {})
    failed = workshop.ask("POST", "/processes/fails/execute?wait=30", {"n": n})["execution_id"]
    page.goto(workshop.url(f"/console/executions/{failed}"))
    page.get_by_role("link", name="Open in the editor").first.click()
    expect(page.locator(".cm-content")).to_be_focused()
    page.keyboard.type("|")
    expect(page.locator(".cm-activeLine")).to_contain_text(here)


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


def test_a_late_response_does_not_undo_a_later_save(page: Page, workshop: QaTenant) -> None:
    workshop.ask("PUT", "/processes/quick", {"id": "quick", "steps": [{"id": "one", "rule": {"expression": "= 1"}}]})
    workshop.ask("POST", "/processes/quick/publish", {})
    page.goto(workshop.url("/console/processes/quick/edit"))
    expect(page.get_by_text("Matches the published version.")).to_be_visible()
    delayed: list[Route] = []
    is_delaying = [True]

    def delay(route: Route) -> None:
        if is_delaying[0] and "do=save" in (route.request.post_data or ""):
            delayed.append(route)
        else:
            route.continue_()

    page.route("**/processes/quick/edit", delay)
    write(page, "id: quick\nname: First\nsteps: [{id: one, rule: {expression: = 1}}]\n")
    page.keyboard.press("Control+s")
    page.keyboard.type("# and more")
    expect(page.get_by_role("heading", name="No problems")).to_be_visible()
    page.keyboard.press("Control+s")
    is_delaying[0] = False
    for route in delayed:
        route.continue_()
    expect(page.locator("[data-said]")).to_have_text("saved")
    expect(page.get_by_text("Matches the published version.")).to_be_hidden()
    page.reload()
    expect(page.locator(".cm-content")).to_contain_text("# and more")


def test_text_typed_over_a_selection_gets_no_inline_style(page: Page, workshop: QaTenant) -> None:
    """The browser would give it an inline style, which the policy refuses: the page's watch hears of that."""
    workshop.ask("PUT", "/processes/over", {"id": "over", "steps": [{"id": "one", "rule": {"expression": "= 1"}}]})
    page.goto(workshop.url("/console/processes/over/edit"))
    content = page.locator(".cm-content")
    content.focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("(")
    expect(content).to_contain_text("(id: over")
    page.keyboard.type("name")
    expect(content).to_have_text("(name)")


def test_the_editor_works_as_a_form_without_scripts(gos_page_as: Callable[..., Page], page: Page, workshop: QaTenant) -> None:
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
