"""A passkey and an app protect an account: added, used to sign in and for an approval, with Chromium's virtual authenticator."""

import re

import pyotp
import pytest
from playwright.sync_api import Page, expect

from appliance.core import clock
from appliance.testing.kit import Gos
from appliance.testing.pages import Pages, find_flaws
from appliance.testing.tenants import QaTenant

pytestmark = pytest.mark.browser

STEP_MS = 30_000
ASKING = {
    "id": "asking",
    "name": "Asking",
    "steps": [{"id": "ask", "human": {"kind": "approval", "title": "= 'Ship ' + input.order + '?'", "expires": "48h"}}],
}


@pytest.fixture(scope="module")
def guarded(gos: Gos) -> QaTenant:
    """A tenant with a process that requests a decision."""
    tenant = gos.tenant("guarded")
    tenant.ask("POST", "/processes", ASKING)
    tenant.ask("POST", "/processes/asking/publish", {})
    return tenant


@pytest.fixture
def page(gos_pages: Pages, guarded: QaTenant) -> Page:
    """A browser with a device that has a fingerprint reader."""
    opened = gos_pages.open(guarded, "visitor")
    add_virtual_device(opened)
    return opened


def add_virtual_device(page: Page) -> None:
    """Give the browser a device that knows its holder and confirms at once."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
        "isUserVerified": True, "automaticPresenceSimulation": True,
    }  # fmt: skip
    devtools.send("WebAuthn.addVirtualAuthenticator", {"options": options})


def enter_password(page: Page, tenant: QaTenant, role: str) -> None:
    login, password = tenant.login(role)
    page.goto(tenant.url())
    page.get_by_label("Login").fill(login)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()


def open_account(page: Page, tenant: QaTenant) -> None:
    page.goto(tenant.url("/console/account"))
    expect(page.get_by_role("heading", name="Passkeys and apps")).to_be_visible()


def sign_out(page: Page) -> None:
    page.get_by_test_id("sign-out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def code_of(secret: str, steps: int = 0) -> str:
    return pyotp.TOTP(secret.replace(" ", "")).generate_otp(clock.now_ms() // STEP_MS + steps)


def test_a_passkey_is_added_signs_in_and_confirms_an_approval(page: Page, gos: Gos, guarded: QaTenant) -> None:
    enter_password(page, guarded, "approver")
    expect(page.get_by_test_id("console")).to_be_visible()
    open_account(page, guarded)
    page.get_by_test_id("add-factor").click()
    assert find_flaws(page) == []
    page.get_by_label("Name").fill("Laptop")
    page.get_by_test_id("add-passkey").click()
    expect(page.get_by_test_id("recovery-codes").get_by_role("listitem")).to_have_count(10)
    assert find_flaws(page) == []
    with page.expect_download() as download:
        page.get_by_test_id("download-codes").click()
    assert len(re.findall(r"^[a-z0-9-]{29}$", download.value.path().read_text(), re.MULTILINE)) == 10
    page.get_by_test_id("continue").click()
    expect(page.get_by_test_id("factor")).to_contain_text("Laptop")
    sign_out(page)

    page.get_by_test_id("use-passkey").click()
    expect(page.get_by_test_id("console")).to_be_visible()
    gos.clock.advance(minutes=11)
    guarded.ask("POST", "/processes/asking/execute", {"order": "10248"})
    gos.drain()
    page.goto(guarded.url("/console/approvals"))
    page.get_by_role("link", name="Ship 10248?").first.click()
    page.get_by_label("Comment").fill("gladly & <soon>")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("heading", name="Confirm that it is you")).to_be_visible()
    assert find_flaws(page) == []
    page.get_by_test_id("use-passkey").click()
    expect(page.get_by_role("status")).to_have_text("approved")
    expect(page.locator("#content")).to_contain_text("gladly & <soon>")
    page.go_back()
    expect(page.locator("main")).to_contain_text("was sent already")
    entries = guarded.ask("GET", "/logs/audit?limit=100")
    assert [each["action"] for each in entries].count("step_up.confirm") == 1


def test_an_app_and_a_recovery_code_sign_in(page: Page, guarded: QaTenant) -> None:
    enter_password(page, guarded, "operator")
    open_account(page, guarded)
    page.get_by_test_id("add-factor").click()
    page.get_by_test_id("choose-app").click()
    expect(page.get_by_alt_text(re.compile("QR code"))).to_be_visible()
    assert find_flaws(page) == []
    secret = page.get_by_test_id("app-secret").inner_text()
    page.get_by_label("Name").fill("Phone")
    page.get_by_label("Code from the app").fill(code_of(secret))
    page.get_by_test_id("add-app").click()
    recovery = page.get_by_test_id("recovery-codes").get_by_role("listitem").first.inner_text()
    page.get_by_test_id("continue").click()
    expect(page.get_by_test_id("factor")).to_contain_text("Phone")
    sign_out(page)

    enter_password(page, guarded, "operator")
    page.get_by_label("Code from your authenticator app").fill(code_of(secret, 1))
    assert find_flaws(page) == []
    page.get_by_test_id("send-code").click()
    expect(page.get_by_test_id("console")).to_be_visible()
    sign_out(page)

    enter_password(page, guarded, "operator")
    page.get_by_text("Lost your device?").click()
    page.get_by_label("Recovery code").fill(recovery)
    page.get_by_test_id("send-recovery-code").click()
    expect(page.get_by_test_id("console")).to_be_visible()
    open_account(page, guarded)
    expect(page.locator("#content")).to_contain_text("Recovery codes left: 9")


def test_a_cancelled_passkey_says_so(page: Page, guarded: QaTenant) -> None:
    page.goto(guarded.url())
    page.get_by_test_id("use-passkey").click()
    expect(page.get_by_role("alert")).to_contain_text("The passkey was not used")
    expect(page.get_by_test_id("use-passkey")).to_be_enabled()
