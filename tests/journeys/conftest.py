"""Fixtures of the browser journeys."""

import pytest

from appliance.console.pages.agents import agents
from appliance.console.pages.operate import executions

BUSY_MS, CALM_MS = 200, 400


@pytest.fixture(autouse=True)
def poll_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make live pages poll more often than the 0.7 and 3 s of the console, which would slow the tests."""
    for pages in (executions, agents):
        monkeypatch.setattr(pages, "BUSY_MS", BUSY_MS)
        monkeypatch.setattr(pages, "CALM_MS", CALM_MS)
