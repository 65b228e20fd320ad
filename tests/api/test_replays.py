"""Replays of policies: one at a time per tenant, in separate threads, with a limited wait."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from appliance.api.governance import policy_replay
from appliance.core.scope import TenantScope
from appliance.governance.policies import ReplayReport, replay
from appliance.testing.running import Running
from tests.api.resources import fresh

POLICY = {"name": "rest-slow", "mode": "observe", "rules": [{"id": "no", "effect": "deny", "reason": "no"}]}


class SlowReplay:
    """Replays that block until released; records their threads."""

    def __init__(self) -> None:
        self.started, self.go_on = threading.Semaphore(0), threading.Event()
        self.threads: list[str] = []

    def replay(self, scope: TenantScope, *_: Any) -> ReplayReport:
        self.threads.append(threading.current_thread().name)
        self.started.release()
        assert self.go_on.wait(30)
        return ReplayReport()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowReplay]:
    replays = SlowReplay()
    monkeypatch.setattr(replay, "replay", replays.replay)
    yield replays
    replays.go_on.set()


def start(threads: ThreadPoolExecutor, client: httpx.Client) -> "Future[httpx.Response]":
    return threads.submit(client.post, "/api/v1/policies/replay", json={"policy": POLICY})


def test_a_tenant_runs_one_replay_at_a_time_and_others_queue_without_blocking_the_api(
    running: Running, slow: SlowReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [fresh("replays") for _ in range(3)]
    for name in names:
        running.tenant(name)
    with ThreadPoolExecutor(4) as threads, ExitStack() as clients:
        one, two, three = (clients.enter_context(running.api(name)) for name in names)
        under_way = [start(threads, one), start(threads, two)]
        for _ in under_way:
            assert slow.started.acquire(timeout=30)
        refused = one.post("/api/v1/policies/replay", json={"policy": POLICY})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "concurrency_limited")
        assert refused.headers["Retry-After"] == "5"
        monkeypatch.setattr(policy_replay, "LONGEST_WAIT", -1.0)
        late = start(threads, three)
        assert one.get("/api/v1/policies").status_code == 200
        slow.go_on.set()
        wait([*under_way, late], 60)
        assert [each.result().status_code for each in under_way] == [200, 200]
        assert (late.result().status_code, late.result().json()["error"]["code"]) == (429, "concurrency_limited")
        monkeypatch.undo()
        assert one.post("/api/v1/policies/replay", json={"policy": POLICY}).status_code == 200
    assert all(name.startswith("replay") for name in slow.threads)
