"""Somebody creates a service account with a key, and leaves: the key works with exactly its rights until the account is disabled.

Another owner sees that nobody is responsible any more, takes over, and finds all of it in the audit trail.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from appliance.tenants import accounts, people
from appliance.testing.running import Running

pytestmark = pytest.mark.browser
PASSWORD, TENANT = "correct horse battery", "machines"
ANN, BOB = "ann@machines.test", "bob@machines.test"
REVOCATION_MS = 500
"""The time within which docs/contract.md promises that an ended key is refused."""


@pytest.fixture(scope="module")
def live(start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = start_appliance(tmp_path_factory.mktemp("data"))
    for login in (ANN, BOB):
        running.user(login, PASSWORD, TENANT, "owner")
    yield running
    running.stop()


def sign_in(browser: Browser, live: Running, login: str) -> Page:
    page = browser.new_context().new_page()
    page.goto(f"{live.config.tenant_url(TENANT)}/console/service-accounts")
    page.get_by_label("Login").fill(login)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="Service accounts")).to_be_visible()
    return page


def test_a_service_account_outlives_the_person_who_created_it(live: Running, gos_browser: Browser) -> None:
    ann, bob = sign_in(gos_browser, live, ANN), sign_in(gos_browser, live, BOB)
    former, later = (f"user:{people.find_user(login).id}" for login in (ANN, BOB))
    text = create_account_with_key(ann)
    accounts.delete_account(ANN)
    with live.client(f"{TENANT}.localhost", {"X-API-Key": text}) as key:
        live.move_clock(REVOCATION_MS)
        assert key.get("/api/v1/skills").status_code == 200, "it may still do what it was given"
        assert key.get("/api/v1/webapps").status_code == 403, "the account may, its key may not"
        assert key.get("/api/v1/documents").status_code == 403, "neither the account nor its key may"
        assert key.put("/api/v1/secrets/SHOP_TOKEN", json={"value": "for the trail"}).is_success

        bob.reload()
        expect(bob.get_by_test_id("nobody-responsible")).to_contain_text("Order intake")
        bob.get_by_role("link", name="Order intake").first.click()
        bob.get_by_label("Responsible person").select_option(label=BOB)
        bob.get_by_test_id("save-account").click()
        expect(bob.get_by_test_id("nobody-responsible")).to_have_count(0)
        assert key.get("/api/v1/skills").status_code == 200

        bob.get_by_test_id("disable-account").click()
        expect(bob.get_by_role("heading", name="Order intake")).to_contain_text("disabled")
        live.move_clock(REVOCATION_MS)
        refused = key.get("/api/v1/skills")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "revoked_api_key")
    assert "service account is disabled" in refused.json()["error"]["message"]
    check_trail(live, former, later)


def create_account_with_key(page: Page) -> str:
    """Create the account with two scopes, and a key of it with one of them; returns the text of the key."""
    page.get_by_role("link", name="New service account").first.click()
    page.get_by_label("Title").fill("Order intake")
    page.get_by_label("Name", exact=True).fill("order-intake")
    for scope in ("skills.read", "secrets.write", "webapps.read"):
        page.locator(f'input[name="scopes"][value="{scope}"]').check()
    page.get_by_test_id("create-account").click()
    expect(page.get_by_role("heading", name="Order intake")).to_be_visible()
    page.get_by_role("link", name="New key").click()
    page.get_by_label("Name", exact=True).fill("shop")
    assert page.locator('input[name="scopes"][value="documents.read"]').count() == 0, "the account has no such scope"
    for scope in ("skills.read", "secrets.write"):
        page.locator(f'input[name="scopes"][value="{scope}"]').check()
    page.get_by_test_id("issue-key").click()
    return page.get_by_test_id("new-key").inner_text()


def check_trail(live: Running, former: str, later: str) -> None:
    """Every step is in the trail in this order, with the values before and after."""
    with live.api(TENANT) as client:
        entries: list[dict[str, Any]] = client.get("/api/v1/logs/audit", params={"limit": 100}).json()["data"]
        theirs = client.get("/api/v1/logs/audit", params={"actor": "service:order-intake"}).json()["data"]
    trail = [(each["action"], each["actor"], json.loads(each["fields"] or "{}")) for each in reversed(entries)]
    actions = iter(action for action, _, _ in trail)
    story = (
        "service_account.create", "key.issue", "user.delete", "secret.set", "service_account.change", "service_account.disable",
    )  # fmt: skip
    assert all(action in actions for action in story), trail
    before, after = next(fields["responsible"] for action, _, fields in trail if action == "service_account.change")
    assert (before, after) == (former, later)
    (key_id,) = {each["subject"] for each in entries if each["action"] == "key.issue" and each["actor"] == former}
    assert {each["action"] for each in theirs} == {"secret.set", "request.refuse"}, "each entry of the key names the account"
    assert {json.loads(each["fields"])["api_key"] for each in theirs} == {key_id}
