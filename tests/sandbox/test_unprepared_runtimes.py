"""An appliance that was started before PHP was prepared: processes wait for it, and health, Monitor and console show it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.sandbox.runtimes import background
from appliance.testing.running import Running, make_config, start
from tests.console.browser import Browser
from tests.sandbox.half_prepared import Preparation
from tests.sandbox.paused_steps import until

PROCESS = {"id": "answer", "steps": [{"id": "php", "code": {"language": "php", "source": "return fn ($input) => 6 * 7;"}}]}
BASE = "/api/v1/processes/answer"
PASSWORD = "correct horse battery"


def data(answer: httpx.Response) -> Any:
    return answer.raise_for_status().json()["data"]


@pytest.fixture
def preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Preparation:
    (tmp_path / "runtimes").mkdir()
    preparation = Preparation(tmp_path / "runtimes")
    monkeypatch.setattr(background, "launch", preparation.launch)
    return preparation


@pytest.fixture
def live(tmp_path: Path, preparation: Preparation) -> Iterator[Running]:
    """Started with a published process in PHP, as after an upgrade that brought another PHP."""
    settings = {"sandbox__processes": 1, "sandbox__queue_seconds": 1}
    earlier = start(make_config(tmp_path / "data", **settings))
    with earlier.api("acme") as client:
        data(client.post("/api/v1/processes", json=PROCESS))
        data(client.post(f"{BASE}/publish", json={}))
    earlier.user("ada@acme.test", PASSWORD, "acme")
    earlier.stop()
    appliance = start(make_config(tmp_path / "data", sandbox__runtimes=str(preparation.folder), **settings))
    yield appliance
    appliance.stop()


def test_an_execution_waits_in_its_first_attempt_and_everything_shows_it(
    live: Running, preparation: Preparation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.processes.engine.attempts.LOST_RETRIES", 0)  # waiting is no loss
    preparation.finish("types")
    with live.api("acme") as client:
        until(lambda: client.get("/readyz").json() == {"status": "ok", "runtimes": {"php": "preparing"}})
        health = data(client.get("/api/v1/logs/queues"))["sandbox"]["runtimes"]
        assert [(each["name"], each["state"]) for each in health] == [("types", "ready"), ("php", "preparing")]
        assert health[1]["message"].startswith("PHP is still being prepared, for ")
        browser = Browser(live)
        browser.sign_in("ada@acme.test", PASSWORD, "acme")
        for page in ("monitor", "about"):
            assert "PHP is still being prepared, for " in browser.get(browser.at("acme", f"/console/{page}")).text

        execution = data(client.post(f"{BASE}/execute", json={}))["execution_id"]
        until(lambda: [each["status"] for each in steps(client, execution)] == ["retrying"])
        assert steps(client, execution)[0]["error"]["code"] == "runtime_preparing"
        refused = client.post(f"{BASE}/publish", json={})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "30")

        preparation.finish("php")
        until(lambda: data(client.get(f"{BASE}/executions/{execution}"))["status"] == "succeeded")
        (step,) = steps(client, execution)
        assert (step["attempt"], step["output"]) == (1, 42)
        assert client.get("/readyz").json() == {"status": "ok"}
        assert "PHP" not in browser.get(browser.at("acme", "/console/monitor")).text


def test_an_execution_fails_with_the_reason_when_its_runtime_cannot_be_prepared(live: Running, preparation: Preparation) -> None:
    preparation.finish("types")
    preparation.finish("php", "the disk is full; free disk space")
    with live.api("acme") as client:
        until(lambda: client.get("/readyz").json() == {"status": "ok", "runtimes": {"php": "failed"}})
        execution = data(client.post(f"{BASE}/execute?wait=30", json={}))
        assert (execution["status"], execution["error"]["code"]) == ("failed", "runtime_unavailable")
        assert execution["error"]["message"] == "PHP could not be prepared: the disk is full; free disk space"


def steps(client: httpx.Client, execution: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = data(client.get(f"{BASE}/executions/{execution}/steps"))
    return rows
