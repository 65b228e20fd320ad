"""An agent in a real browser: started from its page, held for an approval that a person gives, and done once; pages that fit."""

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from appliance.tenants import people
from appliance.testing.running import Running
from tests.agents.model_server import Call, script, serving
from tests.governance.ruling import put_rules
from tests.journeys.screen import PAGE_CHECKS, Watch, address

pytestmark = pytest.mark.browser
PASSWORD = "two people and an agent"
ASK = {"id": "ask", "effect": "require_approval", "tools": ["write_entities"], "reason": "somebody must look"}
WRITE = {"operations": [{"op": "create", "collection": "notes", "values": {"text": "Tea, 3"}}]}


@pytest.fixture(scope="module")
def api(running: Running) -> Iterator[httpx.Client]:
    """A tenant with somebody who starts runs, somebody who approves, and an agent that writes a note."""
    running.user("olga@clerks.test", PASSWORD, "clerks", "operator")
    running.user("eve@clerks.test", PASSWORD, "clerks", "operator")
    people.add_member(running.tenant("clerks"), "eve@clerks.test", "operator", approver=True)
    with serving(script(Call("write_entities", WRITE), "It is noted.")) as server, running.api("clerks") as api:
        api.post("/api/v1/datapool", json={"name": "notes", "fields": [{"name": "text", "type": "text"}]}).raise_for_status()
        profile = {"kind": "openai", "model": "small", "base_url": server.url}
        api.put("/api/v1/llm-profiles/default", json=profile).raise_for_status()
        clerk = {"id": "clerk", "name": "Clerk", "instructions": "Note what comes in.", "tools": ["write_entities"]}
        api.put("/api/v1/agents/clerk", json=clerk).raise_for_status()
        put_rules(running.tenant("clerks"), ASK)
        yield api


def sign_in(chromium: Browser, running: Running, name: str) -> tuple[Page, Watch]:
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(30_000)
    watch, page = Watch(context, running.config.server.port), context.new_page()
    page.goto(address(running.config, "/console/", "clerks."))
    page.get_by_label("Login").fill(f"{name}@clerks.test")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(address(running.config, "/console/processes", "clerks."))
    return page, watch


def test_a_run_waits_for_a_person_and_writes_once(chromium: Browser, running: Running, api: httpx.Client) -> None:
    olga, watch = sign_in(chromium, running, "olga")
    eve, _ = sign_in(chromium, running, "eve")
    olga.get_by_role("link", name="Agents", exact=True).click()
    olga.get_by_role("link", name="Clerk", exact=True).click()
    olga.get_by_label("What it is to do").fill("Tea came in, three of it.")
    olga.get_by_role("button", name="Start").click()
    expect(olga.get_by_role("status")).to_have_text("waiting", timeout=30_000)
    shoot(olga)
    eve.goto(olga.url)
    eve.locator(".notice.wait a").click()
    eve.get_by_role("button", name="Approve").click()
    expect(olga.get_by_role("status")).to_have_text("succeeded", timeout=30_000)
    expect(olga.locator("#output")).to_contain_text("It is noted.")
    notes = api.get("/api/v1/datapool/notes/entities").json()["data"]
    assert [each["text"] for each in notes] == ["Tea, 3"]
    for url in (olga.url, olga.url.rpartition("/runs/")[0], address(running.config, "/console/agents", "clerks.")):
        fits(olga, url)
    for page in (olga, eve):
        page.context.close()
    assert watch.troubles == []


def fits(page: Page, url: str) -> None:
    """Readable and within the screen, narrow and wide, light and dark."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            page.goto(url)
            shoot(page, f"-{scheme}-{width}")
            found = page.evaluate(PAGE_CHECKS)
            assert (found["faint"], found["unnamed"]) == ([], []), url
            assert found["overflow"] <= 0, (url, width)


def shoot(page: Page, name: str = "") -> None:
    if folder := os.environ.get("SHOTS"):
        parts = page.url.split("/console/")[1].replace("/", "_")[:30]
        page.screenshot(path=Path(folder) / f"{parts}{name}.png", full_page=True)
