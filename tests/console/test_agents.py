"""The pages of agents and their runs: escaped, started from an input field, followed and cancelled."""

import re
from collections.abc import Callable

import httpx
import pytest

from appliance.agents import RunRequest, runs
from appliance.core.database import db
from appliance.testing.running import Running
from tests.api.resources import fresh
from tests.console.browser import Browser

HOSTILE = "<script>alert(1)</script>"
SignedIn = Callable[[str], Browser]


@pytest.fixture
def agent(acme: httpx.Client) -> str:
    name = fresh("clerk")
    definition = {"id": name, "name": f"Clerk {HOSTILE}", "model": "missing", "instructions": HOSTILE}
    acme.put(f"/api/v1/agents/{name}", json=definition).raise_for_status()
    return name


def waiting_run(running: Running, agent: str) -> str:
    """A waiting run without a worker."""

    def insert() -> str:
        run, _ = runs.insert_run(running.tenant("acme"), agent, RunRequest(HOSTILE))
        db.execute("UPDATE agent_run SET status = 'waiting', tainted_by = '[\"integration:crm\"]' WHERE id = ?", (run.id,))
        return run.id

    return db.write(insert)


def show(browser: Browser, path: str, tenant: str = "acme") -> httpx.Response:
    return browser.get(browser.at(tenant, f"/console/agents{path}"))


def test_agents_and_runs_are_escaped(signed_in: SignedIn, running: Running, agent: str) -> None:
    viewer, run = signed_in("viewer@acme.test"), waiting_run(running, agent)
    for path in ("", f"/{agent}", f"/{agent}/runs/{run}", f"/{agent}/runs/{run}?part=live"):
        page = show(viewer, path)
        assert page.status_code == 200
        assert HOSTILE not in page.text
        assert "&lt;script&gt;" in page.text
    assert "integration:crm" in show(viewer, f"/{agent}/runs/{run}").text
    assert "Start a run" not in show(viewer, f"/{agent}").text


def test_a_run_is_started_from_the_page_once(owner: Browser, agent: str, acme: httpx.Client) -> None:
    token = str(re.findall(r'name="token" value="([^"]+)"', show(owner, f"/{agent}").text)[0])
    address = owner.at("acme", f"/console/agents/{agent}/runs")
    assert owner.post(address, {"input": " ", "token": token}).status_code == 422
    first, again = (owner.post(address, {"input": "Sort it.", "token": token}) for _ in range(2))
    assert first.url == again.url
    assert first.url.path.startswith(f"/console/agents/{agent}/runs/run_")
    (run,) = acme.get(f"/api/v1/agents/{agent}/runs").json()["data"]
    assert (run["input"], run["started_by"].partition(":")[0]) == ("Sort it.", "user")


def test_a_run_is_cancelled_from_its_page(owner: Browser, running: Running, agent: str) -> None:
    run = waiting_run(running, agent)
    address = owner.at("acme", f"/console/agents/{agent}/runs/{run}/cancel")
    assert owner.post(address, {}).status_code == 200
    assert runs.get_run(running.tenant("acme"), agent, run).status == "cancelled"
    assert owner.post(address, {}).status_code == 409
