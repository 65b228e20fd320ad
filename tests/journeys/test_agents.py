"""An agent in a real browser: started from its page, held for an approval that a person gives, and done once; pages that fit."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from appliance.testing.kit import Gos
from appliance.testing.pages import find_flaws
from appliance.testing.running import Running
from appliance.testing.tenants import QaTenant
from tests.agents.model_server import Call, script, serving
from tests.governance.ruling import put_rules

pytestmark = pytest.mark.browser
ASK = {"id": "ask", "effect": "require_approval", "tools": ["write_entities"], "reason": "somebody must look"}
WRITE = {"operations": [{"op": "create", "collection": "notes", "values": {"text": "Tea, 3"}}]}


@pytest.fixture(scope="module")
def clerks(gos: Gos, running: Running) -> Iterator[QaTenant]:
    """A tenant with an agent that writes a note after an approval."""
    tenant = gos.tenant("clerks")
    with serving(script(Call("write_entities", WRITE), "It is noted.")) as server:
        tenant.ask("POST", "/datapool", {"name": "notes", "fields": [{"name": "text", "type": "text"}]})
        tenant.ask("PUT", "/llm-profiles/default", {"kind": "openai", "model": "small", "base_url": server.url})
        clerk = {"id": "clerk", "name": "Clerk", "instructions": "Note what comes in.", "tools": ["write_entities"]}
        tenant.ask("PUT", "/agents/clerk", clerk)
        put_rules(running.tenant("clerks"), ASK)
        yield tenant


def test_a_run_waits_for_a_person_and_writes_once(gos_page_as: Callable[..., Page], clerks: QaTenant) -> None:
    olga, eve = gos_page_as("operator", clerks), gos_page_as("approver", clerks)
    olga.get_by_role("link", name="Agents", exact=True).click()
    olga.get_by_role("link", name="Clerk", exact=True).click()
    olga.get_by_label("Task").fill("Tea came in, three of it.")
    olga.get_by_role("button", name="Start run").click()
    expect(olga.get_by_role("status")).to_have_text("waiting", timeout=30_000)
    take_picture(olga)
    eve.goto(olga.url)
    eve.locator(".notice.wait a").click()
    eve.get_by_role("button", name="Approve").click()
    expect(olga.get_by_role("status")).to_have_text("succeeded", timeout=30_000)
    expect(olga.locator("#output")).to_contain_text("It is noted.")
    notes = clerks.ask("GET", "/datapool/notes/entities")
    assert [each["text"] for each in notes] == ["Tea, 3"]
    for url in (olga.url, olga.url.rpartition("/runs/")[0], clerks.url("/console/agents")):
        check_layout(olga, url)


def check_layout(page: Page, url: str) -> None:
    """The page is readable and fits the screen, narrow and wide, in light and dark."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            page.goto(url)
            take_picture(page, f"-{scheme}-{width}")
            assert find_flaws(page) == [], (url, width)


def take_picture(page: Page, name: str = "") -> None:
    if folder := os.environ.get("SHOTS"):
        parts = page.url.split("/console/")[1].replace("/", "_")[:30]
        page.screenshot(path=Path(folder) / f"{parts}{name}.png", full_page=True)
