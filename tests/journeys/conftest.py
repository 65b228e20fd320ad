"""Fixtures of the browser journeys."""

from pathlib import Path

import pytest

from appliance.console.pages.agents import agents
from appliance.console.pages.operate import executions

BUSY_MS, CALM_MS = 200, 400

NOT_SPREAD = {
    "test_first_day.py": "it sets up, backs up and restores one machine by commands",
    "test_plugin_author.py": "it installs a connector on one machine by commands",
    "test_sleeping.py": "it kills its server and worker itself, as tests/chaos does with several servers",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--spread`, leave out the journeys that control the machine; their reasons are in the summary."""
    if config.option.spread:
        for item in items:
            if item.path.parent == Path(__file__).parent and item.path.name in NOT_SPREAD:
                item.add_marker(pytest.mark.skip(reason=NOT_SPREAD[item.path.name]))


@pytest.fixture(autouse=True)
def poll_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make live pages poll more often than the 0.7 and 3 s of the console, which would slow the tests."""
    for pages in (executions, agents):
        monkeypatch.setattr(pages, "BUSY_MS", BUSY_MS)
        monkeypatch.setattr(pages, "CALM_MS", CALM_MS)
