"""The connectors that docs/connectors.md shows pass the contract suite, one by the test it shows."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from appliance.connectors.registry import Installed, check_declaration
from appliance.connectors.testing import LoopbackServer, open_context

SHELF_TEST = """
import pytest
from gos_connector_shelf import ShelfConnector

from appliance.connectors.testing import ConnectorContract


class TestContract(ConnectorContract):
    connector = ShelfConnector

    @pytest.fixture
    def settings(self):
        return {"shelves": ["top", "bottom"]}

    @pytest.fixture
    def broken_settings(self):
        return {"shelves": []}

    def test_a_discovered_action_is_performed_by_its_plan(self, it, ctx):
        (top, bottom) = it.discover(ctx)
        assert it.perform(bottom, {}, ctx) == {"seen": "bottom"}
"""
PAGE = Path(__file__).parents[2] / "docs" / "connectors.md"


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_connectors_of_the_page_pass_the_contract_suite(tmp_path: Path) -> None:
    plugin, _, shelf, tests = blocks()
    (tmp_path / "gos_connector_counter.py").write_text(plugin)
    (tmp_path / "test_counter.py").write_text(tests)
    (tmp_path / "gos_connector_shelf.py").write_text(shelf)
    (tmp_path / "test_shelf.py").write_text(SHELF_TEST)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-W",
        "error",
        "--rootdir",
        str(tmp_path),
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
    ]
    run = subprocess.run([*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "27 passed" in run.stdout


def test_the_connector_that_shows_credentials_sends_them() -> None:
    names: dict[str, Any] = {}
    exec(blocks()[1], names)  # noqa: S102 - a page of our own
    people = names["PeopleConnector"]
    check_declaration(Installed(people, "page"), "people")
    server = LoopbackServer()
    server.answer("/me", 200)
    with open_context() as ctx:
        people({"url": server.url, "auth": {"kind": "header", "name": "X-Key", "value": "k"}}).check(ctx)
    server.close()
    assert server.received[0].headers["x-key"] == "k"
