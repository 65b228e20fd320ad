"""Somebody joins a company, works here and leaves: provider, groups, a passkey for an approval, and afterwards nothing is left.

All of it is in the audit trail, at a syslog server and in a SIEM that gets it by OTLP.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from appliance.connectors.testing import free_port
from appliance.core.scope import TenantScope
from appliance.governance.approvals import approvals
from appliance.monitor.forwarding import SyslogServer
from appliance.tenants import ALL_SCOPES, SignedIn, people
from appliance.tenants.keys import KeySpec, keys
from appliance.testing.running import Running
from tests.agents.world import wait_until
from tests.journeys.company.provider import Company, running_company
from tests.journeys.test_company import pass_provider
from tests.journeys.test_second_factors import add_virtual_device
from tests.monitor.collector import Collector, to_dict
from tests.monitor.test_audit_forwarding import Receiver
from tests.scim.provider import Directory

pytestmark = pytest.mark.browser
LOGIN, TENANT, MINUTE = "ann@company.test", "leaving", 60_000


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def syslog() -> Receiver:
    return Receiver()


@pytest.fixture(scope="module")
def siem() -> Iterator[Collector]:
    with closing(Collector()) as collector:
        yield collector


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Company]:
    with running_company(tmp_path_factory.mktemp("company"), f"http://localhost:{port}", "corp") as company:
        yield company


@pytest.fixture(scope="module")
def live(
    start_appliance: Callable[..., Running],
    tmp_path_factory: pytest.TempPathFactory,
    company: Company,
    port: int,
    syslog: Receiver,
    siem: Collector,
) -> Iterator[Running]:
    provider = {
        "id": "corp", "name": "Corp", "issuer": company.issuer, "client_id": company.client_id, "scopes": ["email"],
        "client_secret": company.client_secret, "scim": True,
        "roles": [{"group": "bosses", "tenant": TENANT, "role": "owner", "approver": True}],
    }  # fmt: skip
    running = start_appliance(
        tmp_path_factory.mktemp("data"), server__port=port, sign_in__providers=[provider],
        audit__syslog=f"tcp://127.0.0.1:{syslog.port}", audit__otlp=siem.url,
    )  # fmt: skip
    running.user("founder@leaving.test", "correct horse battery", TENANT, "owner")
    yield running
    running.stop()
    forwarding, _ = running.services.monitor.audit_forwardings
    assert isinstance(forwarding.destination, SyslogServer)
    assert forwarding.destination._server is None, "the connection to the syslog server has ended too"


@pytest.fixture
def page(gos_browser: Browser) -> Iterator[Page]:
    """A browser with a device that has a fingerprint reader."""
    context = gos_browser.new_context()
    opened = context.new_page()
    add_virtual_device(opened)
    yield opened
    context.close()


def request_approval(running: Running, title: str) -> None:
    with running.api(TENANT) as client:
        client.post("/api/v1/approvals", json={"kind": "approval", "title": title}).raise_for_status()


def test_somebody_joins_decides_and_leaves(live: Running, company: Company, page: Page, syslog: Receiver, siem: Collector) -> None:
    console = f"{live.config.tenant_url(TENANT)}/console/"
    company.put("ann")
    with Directory(live, "corp") as directory:
        user = directory.add_user(LOGIN)
        directory.add_group("bosses", user)
        sign_in(page, console, company)
        add_passkey(page, console)

        live.move_clock(11 * MINUTE)
        request_approval(live, "Ship 10248?")
        approve(page, console, "Ship 10248?")

        request_approval(live, "Ship 10249?")
        scope = TenantScope(TENANT, f"user:{user}", ALL_SCOPES)
        ann = SignedIn(user, LOGIN, "owner", scope)
        assert approvals.count_decidable(scope, ann) == 1
        text = keys.issue_key(scope, live.services.sealer, KeySpec("hers", ["logs.read"], "test"))[1]
        with live.client(f"{TENANT}.localhost", {"X-API-Key": text}) as key:
            assert key.get("/api/v1/logs/audit").status_code == 200
            directory.patch(f"/Users/{user}", {"op": "Replace", "path": "active", "value": "False"})
            assert key.get("/api/v1/logs/audit").status_code == 401
    page.goto(f"{console}approvals")
    assert "/sign-in?" in page.url
    assert approvals.count_decidable(scope, ann) == 0
    assert LOGIN not in {each.login for each in people.list_members(scope)}
    check_trail(live, syslog, siem)


def sign_in(page: Page, console: str, company: Company) -> None:
    page.goto(f"{console}approvals")
    page.locator("[data-testid=provider][data-id=corp]").click()
    page.wait_for_url(lambda url: "/sign-in" not in url)
    pass_provider(page, company.issuer)
    expect(page).to_have_url(f"{console}approvals")


def add_passkey(page: Page, console: str) -> None:
    page.goto(f"{console}account")
    page.get_by_test_id("add-factor").click()
    page.get_by_label("Name").fill("Laptop")
    page.get_by_test_id("add-passkey").click()
    page.get_by_test_id("continue").click()
    expect(page.get_by_test_id("factor")).to_contain_text("Laptop")


def approve(page: Page, console: str, title: str) -> None:
    page.goto(f"{console}approvals")
    page.get_by_role("link", name=title).first.click()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("heading", name="Confirm that it is you")).to_be_visible()
    page.get_by_test_id("use-passkey").click()
    expect(page.get_by_role("status")).to_have_text("approved")


def check_trail(live: Running, syslog: Receiver, siem: Collector) -> None:
    """What happened is in the trail in this order, and the syslog server and the SIEM have each entry of it."""
    with live.api(TENANT) as client:
        entries: list[dict[str, Any]] = client.get("/api/v1/logs/audit", params={"limit": 100}).json()["data"]
    actions = [each["action"] for each in reversed(entries)]
    expected = iter(actions)
    story = ("member.add", "session.open", "factor.add", "step_up.confirm", "approval.approve", "key.issue", "user.disable")
    assert all(action in expected for action in story), actions
    wait_until(lambda: all(each["hash"].encode() in b"\n".join(syslog.received) for each in entries))
    hashes = {each["hash"] for each in entries}
    wait_until(lambda: hashes <= {to_dict(record.attributes)["hash"] for record in siem.log_records()})
