"""The API explorer in a real browser: its index, samples and calls, and how it looks in light and dark, wide and narrow."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from appliance.testing.kit import Gos
from appliance.testing.pages import VISITOR, Scheme, find_flaws
from appliance.testing.running import Running
from appliance.testing.tenants import QaTenant
from tests.journeys.test_every_page import FINDINGS
from tests.screenshots.axe import fetch_axe

pytestmark = pytest.mark.browser

WIDE, NARROW = 1280, 390
SCHEMES: tuple[Scheme, ...] = ("light", "dark")


@pytest.fixture
def tenant(gos: Gos) -> QaTenant:
    return gos.tenant("explorer")


@pytest.fixture
def page(gos_page_as: Callable[..., Page], tenant: QaTenant) -> Page:
    """The explorer, opened by a visitor."""
    page = gos_page_as(VISITOR, tenant)
    page.goto(tenant.url("/api-docs/"))
    return page


def test_the_explorer_takes_a_key_and_makes_calls(page: Page, tenant: QaTenant, running: Running) -> None:
    page.get_by_role("button", name="Authorize").click()
    dialog = page.locator(".modal-ux")
    dialog.get_by_role("textbox").fill(running.key("explorer", ["logs.read"]))
    dialog.get_by_role("button", name="Apply credentials").click()
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("navigation", name="Operations").get_by_role("link", name="tenant", exact=True).click()
    call = page.locator(".opblock-get", has=page.locator('[data-path="/api/v1/tenant"]'))
    call.locator(".opblock-summary-control").click()
    call.get_by_role("button", name="Execute").click()
    expect(call.locator(".live-responses-table .response .response-col_status")).to_contain_text("200")
    expect(call.locator(".live-responses-table")).to_contain_text('"id": "explorer"')


def test_the_index_leads_to_every_operation(page: Page, tenant: QaTenant) -> None:
    index = page.get_by_role("navigation", name="Operations")
    expect(index.get_by_role("link", name="processes", exact=True)).to_have_attribute("aria-current", "page")
    field = index.get_by_label("Filter operations")
    field.fill("collection delete")
    expect(index.get_by_role("status")).to_contain_text("operation")
    link = index.get_by_role("link", name="Delete a collection with its entities")
    link.focus()
    page.keyboard.press("Enter")
    operation = page.locator(".opblock-delete.is-open")
    expect(operation).to_be_in_viewport()
    expect(link).to_have_attribute("aria-current", "page")
    page.go_back()
    expect(page.get_by_role("heading", name="processes", exact=True)).to_be_visible()
    field.fill("no such operation")
    expect(index.get_by_role("status")).to_have_text("No operations")


def test_samples_are_shown_in_the_chosen_language(page: Page, tenant: QaTenant) -> None:
    page.goto(tenant.url("/api-docs/#/datapool/create_collection"))
    samples = page.get_by_role("region", name="Code samples")
    expect(samples).to_contain_text("curl --fail-with-body --request POST")
    samples.get_by_role("radio", name="Python").check(force=True)
    expect(samples).to_contain_text("import urllib.request")
    page.reload()
    expect(samples).to_contain_text("import urllib.request")
    samples.get_by_role("radio", name="Python").press("ArrowRight")
    expect(samples).to_contain_text("await fetch(")


def test_the_explorer_is_accessible_in_light_and_dark_wide_and_narrow(page: Page, tenant: QaTenant) -> None:
    page.add_init_script(fetch_axe())
    page.goto(tenant.url("/api-docs/#/datapool/create_collection"))
    page.reload()  # for axe: only the fragment has changed
    expect(page.get_by_role("region", name="Code samples")).to_be_visible()
    for scheme in SCHEMES:
        for width in (WIDE, NARROW):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 800})
            assert (scheme, width, find_flaws(page)) == (scheme, width, [])
            assert (scheme, width, page.evaluate(FINDINGS, {})) == (scheme, width, [])
