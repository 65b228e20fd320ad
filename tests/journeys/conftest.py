"""One Chromium for the journeys of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

CHROMIUM = "/usr/bin/chromium"


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def chromium(playwright: Playwright) -> Iterator[Browser]:
    browser = launch(playwright)
    yield browser
    browser.close()


def launch(playwright: Playwright, *arguments: str) -> Browser:
    """A Chromium started with these arguments."""
    executable = CHROMIUM if Path(CHROMIUM).exists() else None
    return playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu", *arguments])
