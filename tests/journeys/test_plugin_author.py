"""The author of a connector generates it by a command, changes, tests and installs it, then connects and calls it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from appliance.testing.kit import Gos
from appliance.testing.pages import find_flaws
from tests.architecture.page_commands import Reader
from tests.journeys.first_run import connect_client, run_script, set_own_password

pytestmark = pytest.mark.browser
CODE, STAND_IN = "src/gos_connector_stock_room/connector.py", "tests/stand_in.py"
COUNT = """        Action(
            "count_items",
            "Count the items on a shelf",
            {"type": "object", "required": ["shelf"], "properties": {"shelf": {"type": "string", "title": "Shelf"}}},
            {"type": "object", "required": ["count"], "properties": {"count": {"type": "integer"}}},
            "read",
            {"shelf": "top"},
        ),
"""
CALL = """        if action == "count_items":
            return self._ask(ctx, "GET", f"/shelves/{quote(input['shelf'], safe='')}")
"""
ANSWER = """    server.answers["/shelves/top"] = guarded(lambda _: Answer(body=b'{"count": 12}'))
"""
INSTALL = """
.venv/bin/pip install --quiet --no-deps --no-build-isolation --target ~/plugins ~/gos-connector-stock-room
.venv/bin/gos init
"""
SERVE = """
.venv/bin/python ~/gos-connector-stock-room/tests/stand_in.py ~/stock-room.url &
PYTHONPATH=~/plugins GOS_EGRESS_ALLOW=127.0.0.1 .venv/bin/gos serve
"""
STOCK_TAKING = {
    "id": "stock-taking",
    "name": "Stock taking",
    "input": {"type": "object", "required": ["shelf"], "properties": {"shelf": {"type": "string", "title": "Shelf"}}},
    "steps": [{"id": "count", "integration": {"use": "stock", "action": "count_items", "input": {"shelf": "= input.shelf"}}}],
    "output": {"on_the_shelf": "= steps.count.count"},
}


def insert_before(file: Path, line: str, text: str) -> None:
    """Insert text before a line of a file of the package."""
    source = file.read_text("utf8")
    assert source.count(line) == 1, line
    file.write_text(source.replace(line, text + line), "utf8")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """The author's machine: a tested connector with a custom action, installed in a running appliance."""
    reader = Reader(tmp_path_factory.mktemp("author"))
    run_script(reader, ".venv/bin/gos connector new stock-room --in ~")
    folder = reader.home / "gos-connector-stock-room"
    insert_before(folder / CODE, '        Action("put_item"', COUNT)
    insert_before(folder / CODE, '        if action == "put_item":\n', CALL)
    insert_before(folder / STAND_IN, '    server.answers["/items/1"]', ANSWER)
    run_script(reader, ".venv/bin/gos connector test ~/gos-connector-stock-room")
    run_script(reader, INSTALL)
    set_own_password(reader)
    reader.start(SERVE)
    yield reader
    reader.stop()


@pytest.fixture(scope="module")
def gos(machine: Reader) -> Iterator[Gos]:
    """A client of that appliance."""
    client = connect_client(machine)
    yield client
    client.close()


def test_a_custom_connector_is_connected_and_called(gos: Gos, machine: Reader, gos_page_as: Callable[..., Page]) -> None:
    tenant = gos.tenant()
    page = gos_page_as("owner", tenant)
    page.goto(tenant.url("/console/integrations/catalogue"))
    page.get_by_label("Search the catalogue").fill("count_items")
    page.keyboard.press("Enter")
    entry = page.get_by_test_id("row")
    expect(entry.get_by_role("heading")).to_have_text("Stock room")
    entry.locator("summary").click()
    expect(entry).to_contain_text("Count the items on a shelf")
    assert find_flaws(page) == []
    entry.get_by_role("link", name="Connect Stock room").click()

    page.get_by_label("Address").fill((machine.home / "stock-room.url").read_text("utf8"))
    page.get_by_label("Token").fill("mistyped")
    page.get_by_label("Id", exact=True).fill("stock")
    page.get_by_test_id("test-settings").click()
    expect(page.get_by_test_id("tested")).to_contain_text("Stock room does not accept the credentials (401).")
    page.get_by_label("Token").fill("secret-canary")
    page.get_by_test_id("test-settings").click()
    expect(page.get_by_test_id("tested")).to_contain_text("These settings work.")
    page.get_by_test_id("save-settings").click()
    page.wait_for_url("**/console/integrations/stock")
    assert find_flaws(page) == []

    tenant.ask("POST", "/processes", STOCK_TAKING)
    tenant.ask("POST", "/processes/stock-taking/publish", {})
    page.goto(tenant.url("/console/processes/stock-taking"))
    page.get_by_label("Shelf").fill("top")
    page.get_by_test_id("run").click()
    expect(page.get_by_role("status").first).to_have_text("succeeded")
    expect(page.locator("#output")).to_contain_text('"on_the_shelf": 12')
    page.goto(tenant.url("/console/integrations/stock/calls"))
    expect(page.get_by_test_id("row").first).to_contain_text("count_items")
    assert "secret-canary" not in page.content()
