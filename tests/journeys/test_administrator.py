"""An administrator's day on the console: people are added and invited, a key is issued and rotated, and the trail tells of it."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from appliance.testing.kit import Gos
from appliance.testing.pages import find_flaws
from appliance.testing.running import Running

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [390, 1280])
def test_members_and_keys_are_managed_and_audited(gos: Gos, running: Running, gos_page_as: Callable[..., Page], width: int) -> None:
    tenant = gos.tenant(f"office{width}")
    colleague = f"carl@office{width}.test"
    running.user(colleague, "a colleague of the office")
    page = gos_page_as("owner", tenant, width=width, height=844, scheme="dark" if width == 390 else "light")
    page.goto(tenant.url("/console/people"))
    page.get_by_label("Login").fill(colleague)
    page.get_by_role("radio", name="builder").check()
    page.get_by_test_id("add-member").press("Enter")
    row = page.get_by_role("table", name="Members of").get_by_test_id("row").filter(has_text=colleague)
    expect(row.get_by_test_id("state")).to_have_text("builder")
    assert find_flaws(page) == []

    page.get_by_label("Login").fill(f"new@office{width}.test")
    page.get_by_test_id("add-member").press("Enter")
    guest = gos_page_as("visitor", tenant, width=width, height=844)
    guest.goto(page.get_by_test_id("new-link").inner_text())
    assert find_flaws(guest) == []
    guest.get_by_label("New password", exact=True).fill("a guest of the office")
    guest.get_by_label("Confirm new password").fill("a guest of the office")
    guest.get_by_test_id("accept-invitation").press("Enter")
    expect(guest.get_by_role("heading", name="Home")).to_be_visible()

    page.goto(tenant.url("/console/keys/new"))
    page.get_by_label("Name").fill("nightly import")
    page.get_by_role("checkbox", name="entities.write").check()
    page.get_by_test_id("issue-key").press("Enter")
    first = page.get_by_test_id("new-key").inner_text()
    page.goto(tenant.url("/console/keys"))
    page.get_by_label("Change nightly import").press("Enter")
    page.get_by_test_id("rotate-key").first.press("Enter")
    expect(page.get_by_test_id("new-key")).not_to_have_text(first)

    page.goto(tenant.url("/console/audit?text=nightly"))
    expect(page.get_by_test_id("row").first).to_contain_text("key.")
    page.goto(tenant.url("/console/audit"))
    page.get_by_test_id("verify").press("Enter")
    expect(page.get_by_test_id("verdict")).to_contain_text("The chain is intact.")
    assert find_flaws(page) == []
