"""An administrator's first day: install, first steps, a key, a backup, and another machine that has all of it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from appliance.solutions import starter_input
from appliance.testing.kit import Gos
from appliance.testing.pages import find_flaws
from appliance.testing.tenants import QaTenant
from tests.architecture.page_commands import Reader
from tests.journeys.first_run import OWN_PASSWORD, connect_client, get_first_login, run_script

pytestmark = pytest.mark.browser
PASSPHRASE = "kept far away from the file"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A machine on which the commands of the run script were just run."""
    reader = Reader(tmp_path_factory.mktemp("first"))
    run_script(reader, ".venv/bin/gos init")
    reader.start(".venv/bin/gos serve")
    yield reader
    reader.stop()


@pytest.fixture(scope="module")
def gos(machine: Reader) -> Iterator[Gos]:
    """A client of that appliance."""
    client = connect_client(machine)
    yield client
    client.close()


@pytest.fixture(scope="module")
def other_machine(machine: Reader, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """An empty machine that replaces the first."""
    reader = Reader(tmp_path_factory.mktemp("second"), machine.port)
    yield reader
    reader.stop()


def enter_password(page: Page, tenant: QaTenant, login: str, password: str) -> None:
    page.goto(tenant.url("/console/"))
    page.get_by_label("Login").fill(login)
    page.get_by_label("Password").fill(password)
    page.get_by_label("Password").press("Enter")


def choose_own_password(page: Page) -> None:
    expect(page.get_by_role("heading", name="Choose your own password")).to_be_visible()
    assert find_flaws(page) == []
    page.get_by_label("New password", exact=True).fill(OWN_PASSWORD)
    page.get_by_label("Confirm new password").fill(OWN_PASSWORD)
    page.get_by_test_id("choose-password").click()
    expect(page.get_by_role("heading", name="Home")).to_be_visible()


def sign_in(page: Page, tenant: QaTenant, login: str, password: str) -> None:
    enter_password(page, tenant, login, password)
    expect(page.get_by_role("heading", name="Home")).to_be_visible()


def execute_with(key: str, tenant: QaTenant) -> httpx.Response:
    """Execute the starter's process as a program with this key does."""
    body = starter_input().read_text("utf8")
    headers = {"X-API-Key": key, "Content-Type": "application/json"}
    return tenant.api.post("/api/v1/processes/order-intake/execute?wait=30", content=body, headers=headers)


def download_backup(page: Page, path: Path) -> None:
    """Create a backup from the first steps and download it to `path`."""
    page.get_by_role("link", name="Create a backup").click()
    page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
    page.get_by_label("Confirm passphrase").fill(PASSPHRASE[:-1])
    page.get_by_test_id("back-up").click()
    expect(page.get_by_label("Confirm passphrase")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
    page.get_by_label("Confirm passphrase").fill(PASSPHRASE)
    page.get_by_test_id("back-up").click()
    expect(page.get_by_test_id("verified")).to_have_text("verified")
    assert find_flaws(page) == []
    with page.expect_download() as download:
        page.get_by_test_id("download").click()
    download.value.save_as(path)


def test_from_the_installation_to_a_restore_on_another_machine(
    gos: Gos, machine: Reader, other_machine: Reader, gos_page_as: Callable[..., Page], tmp_path: Path
) -> None:
    tenant, (login, password) = gos.tenant(), get_first_login(machine)
    page = gos_page_as("visitor", tenant)
    enter_password(page, tenant, login, password)
    choose_own_password(page)
    steps = page.get_by_role("region", name="First steps")
    expect(steps).to_contain_text("0 of 4 done")
    assert find_flaws(page) == []
    steps.get_by_role("link", name="Run Order intake").click()
    page.get_by_test_id("run").click()
    expect(page.get_by_role("status").first).to_have_text("succeeded")
    execution = page.url

    page.goto(tenant.url("/console/keys/new"))
    page.get_by_label("Name").fill("web shop")
    page.get_by_role("button", name="Execute processes").click()
    page.get_by_test_id("issue-key").click()
    key = page.get_by_test_id("new-key").inner_text()
    assert execute_with(key, tenant).json()["data"]["status"] == "succeeded"
    orders = tenant.ask("GET", "/datapool/orders/entities")
    assert orders

    page.goto(tenant.url("/console/"))
    expect(steps).to_contain_text("2 of 4 done")
    backup = tmp_path / "whole.gosb"
    download_backup(page, backup)
    page.goto(tenant.url("/console/"))
    expect(steps).to_contain_text("3 of 4 done")
    page.goto("about:blank")
    machine.stop()

    phrase = tmp_path / "passphrase"
    phrase.write_text(PASSPHRASE)
    run_script(other_machine, f".venv/bin/gos restore {backup} --passphrase-file {phrase}")
    other_machine.start(".venv/bin/gos serve")
    page.goto(execution)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    sign_in(page, tenant, login, OWN_PASSWORD)
    page.goto(execution)
    expect(page.get_by_role("status").first).to_have_text("succeeded")
    assert tenant.ask("GET", "/datapool/orders/entities") == orders
    assert execute_with(key, tenant).json()["data"]["status"] == "succeeded"
